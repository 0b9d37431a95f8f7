"""The whole system over HTTP: control plane, controller, simulated AWS and CML, nothing replaced."""

import json
from pathlib import Path

from support.api import Api, Console, admin_of, console_of
from support.processes import RunningLcm, eventually, running_lcm

WHOLE_LIFE = [
    *("pending", "provisioning", "starting", "running"),
    *("stopping", "stopped", "starting", "running"),
    *("terminating", "terminated"),
]


async def test_a_worker_lives_its_whole_life(api: Api, console: Console) -> None:
    worker = await api.create("whole-life")
    worker = await api.until(worker, "running", cml_ready=True)
    assert worker["cml_version"] == "2.9.1+build.7"
    assert worker["ami_name"] == "CML-2.9.1-20260415"
    assert worker["instance_type"] == "t3.small"
    first_address = worker["public_ip"]

    await api.act(worker, "stop")
    worker = await api.until(worker, "stopped")
    assert (worker["public_ip"], worker["cml_ready"]) == (None, False)

    await api.act(worker, "start")
    worker = await api.until(worker, "running", cml_ready=True)
    assert worker["public_ip"] not in (None, first_address)

    await api.act(worker, "delete")
    await api.until(worker, "terminated")
    assert await api.statuses(worker) == WHOLE_LIFE
    [instance] = await console.instances_of(worker)
    assert instance["state"] == "terminated"


async def test_the_stream_tells_the_same_life_in_order(api: Api) -> None:
    async with api.stream() as events:
        assert (await events.next())["event"] == "connected"
        worker = await api.create("streamed")
        told: list[str] = []
        for action, goal in (("stop", "running"), ("delete", "stopped"), (None, "terminated")):
            while not told or told[-1] != goal:
                event = await events.next()
                told_of = (event.get("data") or {}).get("worker") or {}  # not of its live connection
                if told_of.get("id") == worker["id"] and told_of["status"] not in told[-1:]:
                    told.append(told_of["status"])
            if action is not None:
                await api.act(worker, action)
        assert event["event"] == "worker.terminated"
        assert told == [
            *("pending", "provisioning", "starting", "running"),
            *("stopping", "stopped", "terminating", "terminated"),
        ]


async def test_watch_and_poll_on_the_same_pending_worker_launch_exactly_one_instance(
    lcm: RunningLcm, api: Api, console: Console
) -> None:
    keys = json.loads((Path(lcm.ready.data_dir) / "keys.json").read_text())
    await console.disturb(operation="RunInstances", kind="delay", seconds=0.5, count=1)
    worker = await api.create("contended")
    # While the launch is on its way (woken by the watch), every poll and trigger wants it too.
    for _ in range(25):
        status, _ = await api.call(
            "POST",
            f"{lcm.worker_controller_url}/admin/trigger-reconcile",
            headers={"X-API-Key": keys["controller"]},
        )
        assert status == 202
    await api.until(worker, "running")
    assert len(await console.instances_of(worker)) == 1


async def test_a_worker_stopped_in_the_aws_console_is_started_again(api: Api, console: Console) -> None:
    """E9: stopped by someone outside."""
    worker = await api.until(await api.create("drifting"), "running")
    [instance] = await console.instances_of(worker)
    await console.click("stop", instance)
    # What EC2 did is told first; then it is made what people want.
    await eventually(lambda: _has(api, worker, "stopped"))
    await api.until(worker, "running")
    timeline = await api.get(f"/api/workers/{worker['id']}/timeline")
    assert any("outside LCM" in entry["reason"] for entry in timeline["items"])


async def _has(api: Api, worker: dict[str, str], status: str) -> bool:
    return status in await api.statuses(worker)


async def test_a_hanging_ec2_call_of_one_worker_does_not_delay_another(api: Api, console: Console) -> None:
    stuck = await api.until(await api.create("stuck"), "running")
    healthy = await api.until(await api.create("healthy"), "running")
    [instance] = await console.instances_of(stuck)
    await console.disturb(operation="StopInstances", kind="hang", instance_id=instance["id"], count=None)
    await api.act(stuck, "stop")
    await eventually(lambda: _is_hung(console))
    await api.act(healthy, "stop")
    await api.until(healthy, "stopped")
    assert (await api.get(f"/api/workers/{stuck['id']}"))["status"] == "stopping"
    await console.heal()
    await api.until(stuck, "stopped")


async def _is_hung(console: Console) -> bool:
    return any(call["outcome"] == "hung" for call in await console.calls("StopInstances"))


async def test_no_capacity_is_shown_as_the_reason(api: Api, console: Console) -> None:
    await console.disturb(
        operation="RunInstances", kind="error", code="InsufficientInstanceCapacity", status=500, count=None
    )
    worker = await api.create("drought")

    async def reason_is_shown() -> bool:
        seen = await api.get(f"/api/workers/{worker['id']}")
        return "InsufficientInstanceCapacity" in seen["status_reason"]

    await eventually(reason_is_shown)
    assert (await api.get(f"/api/workers/{worker['id']}"))["status"] == "pending"
    await console.heal()


async def test_a_click_reaches_ec2_before_the_debounce_window_is_over() -> None:
    """Who waited for the end of the window, or for the next look at everything, would wait for an hour."""
    hour = "3600"
    with running_lcm("--workers", "0", WATCH_DEBOUNCE_SECONDS=hour, RECONCILE_INTERVAL=hour) as lcm:
        assert lcm.ready.aws_endpoint is not None
        async with admin_of(lcm) as api, console_of(lcm.ready.aws_endpoint) as console:
            await api.until(await api.create("first"), "running")  # the look at everything is over

            async def is_launched_too() -> bool:
                return len(await console.calls("RunInstances")) == 2

            await api.create("clicked")
            await eventually(is_launched_too)


async def test_the_first_workers_come_to_life_by_themselves() -> None:
    with running_lcm("--workers", "3", "--seed", "7") as lcm:
        async with admin_of(lcm) as api:
            workers = (await api.get("/api/workers"))["items"]
            assert len(workers) == 3
            for worker in workers:
                await api.until(worker, "running", cml_ready=True)
