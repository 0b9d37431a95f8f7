"""What the dashboard knows of the server is generated, not written a second time."""

from pathlib import Path

import pytest
from tools.generate_ui import GENERATED, modules

from lcm.domain.lablet import states
from lcm.domain.lifecycle import COLOR, WorkerStatus

TOKENS = Path(__file__).parents[2] / "ui" / "src" / "styles" / "tokens.css"


@pytest.mark.parametrize("name", ["api.ts", "rules.ts"])
def test_the_generated_modules_of_the_dashboard_are_up_to_date(name: str) -> None:
    assert (GENERATED / name).read_text() == modules()[name], "run 'make docs'"


def test_the_dashboard_has_no_generated_module_that_nothing_generates() -> None:
    assert {path.name for path in GENERATED.iterdir()} == set(modules())


def test_every_status_has_a_color_that_the_dashboard_can_show() -> None:
    styles = TOKENS.read_text()
    assert set(COLOR) == set(WorkerStatus)
    assert set(states.COLOR) == set(states.SessionStatus)
    colors = {*COLOR.values(), *states.COLOR.values()}
    assert all(f'[data-color="{color}"]' in styles for color in colors)
