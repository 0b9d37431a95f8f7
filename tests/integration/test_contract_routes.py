"""Routes of the contract that only move a record: each is asked once over HTTP and does what it says."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.lone_plane import LonePlane, lone_plane
from support.topologies import TWO_ALPINES


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[LonePlane]:
    async with lone_plane(tmp_path) as running:
        yield running


async def test_a_controller_can_want_a_worker_terminated(plane: LonePlane) -> None:
    status, worker = await plane.reported("POST", f"/workers/{plane.worker_id}/terminate")
    assert (status, worker["desired_status"], worker["status"]) == (202, "terminated", "running")
    assert worker["state_history"][-1]["by"] == "worker-controller"


async def test_a_controller_can_ask_for_the_templates_that_are_offered(plane: LonePlane) -> None:
    await plane.admin.call("POST", "/api/worker-templates/large/disable")
    _, every = await plane.reported("GET", "/worker-templates")
    _, offered = await plane.reported("GET", "/worker-templates?enabled_only=true")
    names = [template["name"] for template in every["items"]]
    assert {"micro", "small", "medium", "large", "metal"} <= set(names)
    assert [template["name"] for template in offered["items"]] == [name for name in names if name != "large"]


async def test_a_controllers_list_is_filtered_by_status_region_and_end(plane: LonePlane) -> None:
    waiting = (await plane.admin.create("waiting"))["id"]
    ended = (await plane.admin.create("ended"))["id"]
    for version, status in enumerate(("terminated",), start=1):
        await plane.accepted(
            f"/{ended}/status", {"status": status, "reason": "test", "expected_version": version}
        )

    async def listed(query: str) -> set[str]:
        status, page = await plane.reported("GET", f"/workers{query}")
        assert status == 200
        return {worker["id"] for worker in page["items"]}

    assert await listed("") == {plane.worker_id, waiting}
    assert await listed("?include_terminated=true") == {plane.worker_id, waiting, ended}
    assert await listed("?status=running") == {plane.worker_id}
    assert await listed("?status=running&status=pending") == {plane.worker_id, waiting}
    assert await listed("?aws_region=us-east-1") == {plane.worker_id, waiting}
    assert await listed("?aws_region=eu-west-1") == set()


async def place(plane: LonePlane, epoch: int = 1) -> tuple[int, Any]:
    """Book two hosts as soon as possible and order them onto the worker."""
    definition = {"name": "hosts", "lab_yaml": TWO_ALPINES}
    await plane.admin.call("POST", "/api/lablet-definitions", definition)
    _, made = await plane.admin.call("POST", "/api/lablet-sessions", {"definition": "hosts"})
    order = {"session_id": made["session"]["id"], "worker_id": plane.worker_id, "attempt": 1}
    return await plane.reported("POST", "/lablet-sessions/schedule", {"orders": [order]}, epoch=epoch)


async def test_what_a_session_needs_is_claimed_and_released(plane: LonePlane) -> None:
    await plane.accepted("/{id}/cml-data", {"version": "2.9.0", "ready": True})
    _, placed = await place(plane)
    assert placed["results"][0]["outcome"] == "scheduled", placed
    session = placed["results"][0]["session_id"]
    worker = await plane.admin.get(f"/api/workers/{plane.worker_id}")
    claimed = worker["allocated_capacity"]
    assert (claimed["cpu"], claimed["nodes"]) == (2.0, 2.0)
    assert worker["declared_capacity"] == {"cpu": 2.0, "memory_gb": 2.0, "storage_gb": 50.0, "nodes": 5.0}
    key = f"/lcm/workers/{plane.worker_id}/capacity"
    await published(plane, key, lambda value: value["allocated"] == claimed)
    await plane.admin.accepted("POST", f"/api/lablet-sessions/{session}/end")
    status, counted = await plane.reported("POST", f"/workers/{plane.worker_id}/recalculate-capacity")
    assert (status, counted["claims"]) == (200, [])
    await published(plane, key, lambda value: value["allocated"]["cpu"] == 0)


async def published(plane: LonePlane, key: str, is_expected: Callable[[Any], bool]) -> None:
    """Wait until the key has the value."""
    item = await plane.kv.get(key)
    while item is None or not is_expected(msgspec.json.decode(item.value)):
        await plane.admin.get("/ready")
        item = await plane.kv.get(key)


async def test_an_old_leader_places_no_session(plane: LonePlane) -> None:
    status, problem = await place(plane, epoch=0)
    assert (status, problem["type"]) == (409, "urn:lcm:problem:fenced")


async def test_a_license_that_waits_says_that_it_has_a_token_and_not_which(plane: LonePlane) -> None:
    path = f"/api/workers/{plane.worker_id}"
    asked = await plane.admin.accepted("POST", f"{path}/license", {"token": "a-token-of-a-smart-account"})
    assert asked["license"]["pending_operation"] == "register"
    assert asked["license"]["pending_token"] is True
    assert "token_ref" not in asked["license"]
    given_up = await plane.admin.accepted("DELETE", f"{path}/license")
    assert given_up["license"]["pending_token"] is False


async def test_a_login_of_a_workers_own_is_read_by_its_controller_alone(plane: LonePlane) -> None:
    path = f"/api/workers/{plane.worker_id}"
    login = {"username": "lcm", "password": "canary-password"}
    asked = await plane.admin.accepted("PUT", f"{path}/cml-login", login)
    assert asked["cml_username"] == "lcm"
    assert "canary-password" not in str(await plane.admin.get(path))
    _, told = await plane.reported("GET", f"/workers/{plane.worker_id}/cml-login")
    assert {name: told[name] for name in login} == login
    removed = await plane.admin.accepted("DELETE", f"{path}/cml-login")
    assert removed["cml_username"] is None
    status, problem = await plane.reported("GET", f"/workers/{plane.worker_id}/cml-login")
    assert (status, problem["type"]) == (404, "urn:lcm:problem:not-found")


async def test_a_changed_certificate_is_shown_and_accepted_by_its_fingerprint(plane: LonePlane) -> None:
    path, pinned, shown = f"/api/workers/{plane.worker_id}", "a" * 64, "b" * 64
    for certificate in (pinned, shown):
        await plane.accepted("/{id}/cml-data", {"ready": True, "certificate_sha256": certificate})
    worker = await plane.admin.get(path)
    assert worker["cml_certificate_sha256"] == pinned
    assert worker["cml_refused_certificate_sha256"] == shown
    status, problem = await plane.admin.call("PUT", f"{path}/cml-certificate", {"sha256": "c" * 64})
    assert (status, problem["type"]) == (409, "urn:lcm:problem:conflict")
    assert shown in problem["detail"]
    worker = await plane.admin.accepted("PUT", f"{path}/cml-certificate", {"sha256": shown})
    assert (worker["cml_certificate_sha256"], worker["cml_refused_certificate_sha256"]) == (shown, None)
    asked = f"/api/audit?target={plane.worker_id}&action=cml-certificate"
    [entry] = (await plane.admin.get(asked))["items"]
    assert pinned in str(entry)
    assert shown in str(entry)


async def test_what_cml_reports_of_itself_is_shown(plane: LonePlane) -> None:
    health = {"valid": False, "is_licensed": True, "is_enterprise": True, "failing": ["cml: kvm_vmx_enabled"]}
    license = {
        "registration_status": "COMPLETED",
        "authorization_status": "IN_COMPLIANCE",
        "product_license": "CML_Enterprise",
    }
    body = {"ready": True, "system_info": {"oui": "52:54:00"}, "health": health, "license": license}
    await plane.accepted("/{id}/cml-data", body)
    worker = await plane.admin.get(f"/api/workers/{plane.worker_id}")
    assert worker["cml_health"] == health
    assert worker["cml_license"] == license
    assert worker["cml_system_info"] == {"oui": "52:54:00"}


async def test_no_secret_is_read_with_an_epoch_that_was_never_granted_or_by_another_service(
    plane: LonePlane,
) -> None:
    login = {"username": "lcm", "password": "canary-password"}
    await plane.admin.accepted("PUT", f"/api/workers/{plane.worker_id}/cml-login", login)
    for secret in ("cml-login", "license-token"):
        path = f"/workers/{plane.worker_id}/{secret}"
        for epoch in (0, 2, 999_999):
            status, problem = await plane.reported("GET", path, epoch=epoch)
            assert (status, problem["type"]) == (409, "urn:lcm:problem:fenced")
        for service in ("anybody", "resource-scheduler"):
            headers = {"X-LCM-Service": service, "X-LCM-Epoch": "1"}
            async with plane.controller.get(f"/api/internal{path}", headers=headers) as response:
                assert response.status == 403
    await plane.admin.accepted("DELETE", f"/api/workers/{plane.worker_id}/cml-login")


@pytest.mark.parametrize("address", ["169.254.169.254", "metadata.google.internal:80/#"])
async def test_no_report_leads_lcm_to_another_address_than_a_workers(plane: LonePlane, address: str) -> None:
    instance = {"id": "i-1", "region": "us-east-1", "state": "running", "instance_type": "m5.large"}
    before = await plane.admin.get(f"/api/workers/{plane.worker_id}")
    body = {"instance": {**instance, "image_id": "ami-1", "public_ip": address}, "expected_version": 1}
    for route in ("/{id}/ec2-details", "/{id}/status"):
        report = body if "ec2" in route else {**body, "status": "running", "reason": "test"}
        status, problem = await plane.report(route, report)
        assert (status, problem["type"]) == (422, "urn:lcm:problem:invalid-address"), problem
    after = await plane.admin.get(f"/api/workers/{plane.worker_id}")
    assert (after["version"], after["public_ip"]) == (before["version"], before["public_ip"])


async def test_a_forced_delete_leaves_no_record(plane: LonePlane) -> None:
    path = f"/api/workers/{plane.worker_id}"
    worker = await plane.admin.accepted("DELETE", f"{path}?force=true")
    for status in ("terminating", "terminated"):
        report = {"status": status, "reason": "test", "expected_version": worker["version"]}
        worker = await plane.accepted("/{id}/status", report)
    assert (await plane.admin.call("GET", path))[0] == 404
    while await plane.kv.get(f"/lcm/workers/{plane.worker_id}/state") is not None:
        await plane.admin.get("/ready")


async def test_other_tags_are_accepted_and_those_of_lcm_are_not_for_people(plane: LonePlane) -> None:
    path = f"/api/workers/{plane.worker_id}/tags"
    worker = await plane.admin.accepted("PUT", path, {"tags": {"team": "a"}})
    assert (worker["tags"], worker["generation"]) == ({"team": "a"}, 2)
    for key in ("aws:cost", "worker_id", "lcm:managed_by", "cml-managed"):
        status, problem = await plane.admin.call("PUT", path, {"tags": {key: "mine"}})
        assert (status, problem["type"]) == (422, "urn:lcm:problem:invalid"), key


async def test_the_fleets_license_token_is_set_and_forgotten_and_never_shown(plane: LonePlane) -> None:
    path = "/api/settings/license"
    assert await plane.admin.get(path) == {"has_token": False, "terms": {}}
    status, answer = await plane.admin.call("PUT", path, {"token": "a-token-of-a-smart-account"})
    assert (status, answer) == (200, {"has_token": True, "terms": {}})
    assert (await plane.admin.call("DELETE", path))[0] == 204
    assert await plane.admin.get(path) == {"has_token": False, "terms": {}}


async def test_a_hold_that_is_over_already_is_refused_and_says_what_to_do(plane: LonePlane) -> None:
    body = {"until": "2020-01-01T00:00:00Z"}
    status, problem = await plane.admin.call("PUT", f"/api/workers/{plane.worker_id}/hold", body)
    assert status == 422
    assert problem["type"].endswith("moment-passed")
    assert "send a later moment, or DELETE the hold" in problem["detail"]
