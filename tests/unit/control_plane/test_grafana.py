"""The Grafana dashboard asks only for what LCM measures, and has the shape Grafana imports."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.metrics import measured

ROOT = Path(__file__).parents[3]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "lcm.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
CHARTS = [panel for panel in PANELS if panel["type"] != "row"]
PROMQL = {
    *("sum", "max", "count", "rate", "increase", "topk", "vector", "histogram_quantile", "by", "or"),
    *("le", "job", "instance", "state", "result", "kind", "outcome", "event_type", "drift_type", "worker_id"),
    *("status", "reason", "action", "template", "definition", "region", "operation"),
}


def asked_for() -> set[str]:
    names: set[str] = set()
    for panel in CHARTS:
        for target in panel["targets"]:
            expression = re.sub(r"\{[^}]*\}|\[[^]]*\]", "", target["expr"])
            names |= set(re.findall(r"[a-z_][a-z0-9_]+", expression)) - PROMQL
    return names


def shown() -> set[str]:
    """The instruments that it asks for; a histogram is asked for by its parts."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked_for()}


def test_every_metric_it_asks_for_is_measured() -> None:
    assert shown() - measured() == set()


def test_it_shows_everything_about_the_stream_and_what_is_live() -> None:
    live = {
        name for name in measured() if name.startswith(("lcm_sse_", "lcm_live_", "lcm_worker_websocket_"))
    }
    assert live - asked_for() == set()


def test_it_shows_everything_about_sessions_and_their_placement() -> None:
    about = (
        "lcm_sessions",
        "lcm_session_",
        "lcm_scheduler_",
        "lcm_scheduling_",
        "lcm_timeslots_",
        "lcm_claims_",
        "lcm_labs",
    )
    # Fetched once in each cycle, under a name that others know: it says nothing besides.
    known = {name for name in measured() if name.startswith(about)} - {
        "lcm_scheduler_etcd_capacity_fetches_total"
    }
    assert known - shown() == set()


def test_it_shows_everything_about_labs() -> None:
    about = ("lablet_controller_leader", "lcm_lablet_", "lcm_lab_")
    assert {name for name in measured() if name.startswith(about)} - shown() == set()


def test_it_shows_the_fleet_its_cost_and_how_long_people_wait() -> None:
    about = ("lcm_workers", "lcm_worker_r", "lcm_fleet_", "lcm_api_")
    known = {name for name in measured() if name.startswith(about)}
    assert len(known) == 7
    assert known - shown() == set()


def test_it_can_be_imported() -> None:
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time", "annotations"} <= set(DASHBOARD)
    assert "id" not in DASHBOARD  # Grafana's own number for it; an imported one has none
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource"]


@pytest.mark.parametrize("panel", CHARTS, ids=[panel["title"] for panel in CHARTS])
def test_a_panel_has_a_place_a_query_and_the_chosen_data_source(panel: dict[str, Any]) -> None:
    place = panel["gridPos"]
    assert 0 <= place["x"] <= place["x"] + place["w"] <= 24
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_no_two_panels_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
