"""The alert rules: they fire by what LCM measures, and each has a page that says what to do."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.metrics import measured

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((DIRECTORY / "rules.yaml").read_text())["groups"]
    for rule in group["rules"]
]
RUNBOOK = ROOT / "docs" / "how-to" / "answer-an-alert.md"
TESTS: list[dict[str, Any]] = yaml.safe_load((DIRECTORY / "rules.test.yaml").read_text())["tests"]
PROMTOOL = shutil.which("promtool", path=f"{Path(sys.prefix) / 'bin'}")
OF_PROMQL = {
    *("sum", "max", "min", "count", "time", "increase", "absent", "label_replace", "by", "or"),
    *("job", "instance", "reason", "outcome", "controller"),
}
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])


@each_rule
def test_an_alert_asks_only_for_what_is_measured(rule: dict[str, Any]) -> None:
    expression = re.sub(r"\{[^}]*\}|\[[^]]*\]|\"[^\"]*\"", "", rule["expr"])
    names = set(re.findall(r"[a-z_][a-z0-9_]+", expression)) - OF_PROMQL - {"up"}
    assert {re.sub(r"_(bucket|count)$", "", name) for name in names} - measured() == set()


@each_rule
def test_an_alert_has_a_severity_a_summary_and_a_runbook(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert rule["annotations"]["summary"]
    page, anchor = rule["annotations"]["runbook"].split("#")
    assert ROOT / page == RUNBOOK
    assert anchor == rule["alert"].lower()
    assert f"### {rule['alert']}\n" in RUNBOOK.read_text()


def test_the_reference_has_every_metric() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    named = set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE))
    assert {name for name in measured() if name.islower()} == named


def test_every_runbook_has_its_alert() -> None:
    assert re.findall(r"^### (\w+)$", RUNBOOK.read_text(), re.MULTILINE) == [rule["alert"] for rule in RULES]


@each_rule
def test_an_alert_is_shown_to_fire_and_not_to_fire(rule: dict[str, Any]) -> None:
    cases = [case for test in TESTS for case in test["alert_rule_test"] if case["alertname"] == rule["alert"]]
    assert {bool(case.get("exp_alerts")) for case in cases} == {True, False}


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool here; tools/install-prometheus says why")
def test_promtool_finds_the_rules_right() -> None:
    assert PROMTOOL is not None
    for arguments in (("check", "rules", "rules.yaml"), ("test", "rules", "rules.test.yaml")):
        done = subprocess.run(
            [PROMTOOL, *arguments], cwd=DIRECTORY, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
