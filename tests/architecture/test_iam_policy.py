"""The IAM policy in the documentation allows exactly the calls that the code makes, no more and no less."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name
from botocore.session import get_session

from lcm.worker_controller.ports import CHANGING_ACTIONS, READING_ACTIONS

ROOT = Path(__file__).parents[2]
ADAPTERS = sorted((ROOT / "src" / "lcm" / "worker_controller" / "adapters").glob("*.py"))
HOW_TO = ROOT / "docs" / "how-to" / "connect-an-aws-account.md"

SERVICES = {
    "ec2": "ec2",
    "cloudwatch": "cloudwatch",
    "sts": "sts",
    "servicequotas": "service-quotas",
}
"""In adapters, a client is called by its service's name in policies; the SDK has names of its own."""

OF_DOCTOR = {"ec2:DescribeSubnets", "ec2:DescribeSecurityGroups", "servicequotas:GetServiceQuota"}
"""Only `lcm doctor` makes these calls."""

WITH_A_LAUNCH = {"ec2:CreateTags", "iam:PassRole"}
"""Permissions for what RunInstances does besides launching."""


def calls_in_code() -> set[str]:
    """`service:Operation` for every call of an SDK client."""
    operations = {
        (service, xform_name(name)): f"{service}:{name}"
        for service, sdk_name in SERVICES.items()
        for name in get_session().get_service_model(sdk_name).operation_names
    }
    called = set()
    for path in ADAPTERS:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                client = node.func.value
                if isinstance(client, ast.Name) and client.id in SERVICES:
                    called.add(operations[client.id, node.func.attr])
    return called


def policy() -> dict[str, list[dict[str, Any]]]:
    [document] = re.findall(r"```json\n(\{.*?\n\})\n```", HOW_TO.read_text(), re.DOTALL)
    parsed: dict[str, list[dict[str, Any]]] = json.loads(document)
    return parsed


def allowed() -> set[str]:
    actions: set[str] = set()
    for statement in policy()["Statement"]:
        action = statement["Action"]
        actions |= {action} if isinstance(action, str) else set(action)
    return actions


def test_the_policy_allows_exactly_the_calls_that_are_made() -> None:
    assert allowed() == calls_in_code() | WITH_A_LAUNCH


def test_the_code_makes_these_ec2_calls_and_no_others() -> None:
    ec2 = {call.removeprefix("ec2:") for call in calls_in_code() if call.startswith("ec2:")}
    assert ec2 == {
        "CreateTags",
        "DeleteTags",
        "DescribeImages",
        "DescribeInstanceTypes",
        "DescribeInstances",
        "DescribeSecurityGroups",
        "DescribeSubnets",
        "RunInstances",
        "StartInstances",
        "StopInstances",
        "TerminateInstances",
    }


def test_besides_ec2_it_only_measures_and_asks_whose_the_credentials_are() -> None:
    others = {call for call in calls_in_code() if not call.startswith("ec2:")} - OF_DOCTOR
    assert others == {"cloudwatch:GetMetricData", "sts:GetCallerIdentity"}


def test_the_doctor_asks_for_every_action_that_a_worker_needs() -> None:
    asked = {f"ec2:{action}" for action in (*READING_ACTIONS, "RunInstances", *CHANGING_ACTIONS)}
    free = {"sts:GetCallerIdentity"}  # needs no permission
    assert asked | {"cloudwatch:GetMetricData"} == calls_in_code() - OF_DOCTOR - free


def test_only_the_doctor_makes_its_calls() -> None:
    inspection = (ROOT / "src/lcm/worker_controller/adapters/ec2_inspection.py").read_text()
    others = "".join(path.read_text() for path in ADAPTERS if path.name != "ec2_inspection.py")
    for call in OF_DOCTOR:
        method = f".{xform_name(call.partition(':')[2])}("
        assert method in inspection
        assert method not in others


def test_no_call_of_a_client_hides_from_these_tests() -> None:
    """A client that is not in a variable of its service's name would not be seen above."""
    operations = {
        xform_name(name)
        for sdk_name in SERVICES.values()
        for name in get_session().get_service_model(sdk_name).operation_names
    }
    hidden = [
        f"{path.name}: {ast.unparse(node.func)}"
        for path in ADAPTERS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in operations
        and not (isinstance(node.func.value, ast.Name) and node.func.value.id in SERVICES)
    ]
    assert hidden == []


@pytest.mark.parametrize(
    "action", ["ec2:StartInstances", "ec2:StopInstances", "ec2:TerminateInstances", "ec2:DeleteTags"]
)
def test_what_changes_a_machine_is_limited_to_tagged_ones(action: str) -> None:
    [statement] = [s for s in policy()["Statement"] if action in s["Action"]]
    assert "aws:ResourceTag" in json.dumps(statement["Condition"])


def test_a_role_is_passed_to_ec2_and_to_nobody_else() -> None:
    [statement] = [s for s in policy()["Statement"] if s["Action"] == "iam:PassRole"]
    assert statement["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}


def test_every_call_has_a_row_in_the_table() -> None:
    text = HOW_TO.read_text()
    for call in calls_in_code():
        assert call.partition(":")[2] in text.split("```json")[0], call
