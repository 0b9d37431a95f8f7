"""etcd or the control plane is gone for a while: everything waits, and goes on by itself."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import pytest

from support.api import Json
from support.ha import NAMES, OUTAGE_SECONDS, RECOVERY_SECONDS, Life, assert_promised, now, printed_figures
from support.processes import eventually


@contextmanager
def killed(life: Life) -> Iterator[None]:
    life.ensemble.etcd.kill()
    try:
        yield
    finally:
        life.ensemble.etcd.restart()


@contextmanager
def paused(life: Life) -> Iterator[None]:
    member = life.ensemble.etcd.members[0]
    member.freeze()
    try:
        yield
    finally:
        member.thaw()


@pytest.mark.parametrize("gone", [killed, paused])
async def test_while_etcd_is_gone_nobody_acts_and_afterwards_all_goes_on(
    life: Life, gone: Callable[[Life], AbstractContextManager[None]]
) -> None:
    worker = await life.running(f"etcd-{gone.__name__}")
    with gone(life):
        await life.wait_until_frozen(*NAMES)
        before = await life.newest_call()
        await life.api.act(worker, "stop")  # people are heard, and told what is missing
        await asyncio.sleep(OUTAGE_SECONDS)  # noqa: TID251 - nothing happens, for a whole lease or more
        assert await life.calls(since=before) == []
        for name in NAMES:
            said = await eventually(partial(life.health, name))
            assert any("coordination store" in reason for reason in said["frozen"])
    back_at = now()
    await life.until(worker, "stopped")
    took = now() - back_at
    with printed_figures(f"function after etcd was {gone.__name__}") as figures:
        figures["seconds"] = f"{took:.1f}"
    assert_promised(RECOVERY_SECONDS, [took])
    await life.remove(worker)


async def test_a_wiped_etcd_elects_a_leader_with_a_higher_epoch(life: Life) -> None:
    worker = await life.running("etcd-wiped")
    before = await life.wait_for_a_pair()
    life.ensemble.etcd.kill()
    life.ensemble.etcd.members[0].wipe()
    life.ensemble.etcd.restart()

    await life.wait_for_a_later_leader(before["epoch"])
    await life.api.act(worker, "stop")
    await life.until(worker, "stopped")
    await life.remove(worker)


async def test_while_the_control_plane_is_gone_nobody_acts_and_afterwards_all_goes_on(life: Life) -> None:
    with life.ensemble.long_leases():
        worker = await life.running("plane-gone")
        async with life.api.stream() as stream:
            last_seen = (await stream.until("connected"))["id"]
        leader = await life.wait_for_a_leader()
        before = await life.newest_call()
        life.ensemble.plane.end(signal.SIGKILL)

        async def is_frozen() -> bool:
            said = await life.health(leader)
            return said is not None and bool(said["frozen"])

        await eventually(is_frozen)
        [instance] = await life.launched_for(worker)
        await life.console.click("stop", instance)  # the world goes on, and must not be corrected blindly
        await asyncio.sleep(OUTAGE_SECONDS)  # noqa: TID251 - nothing happens
        assert await life.calls(since=before) == []
        await life.wait_until_leading(leader)  # it has nobody to report to, and still holds its lease
        life.ensemble.restore()
        back_at = now()
        async with life.api.stream(last_seen) as stream:  # as a browser does
            assert (await stream.next())["event"] == "reset"
            await eventually(partial(was_stopped_and_started_again, life, worker))
            took = now() - back_at
            newest = await life.see(worker)
            shown: Json = None
            while shown is None or shown["version"] < newest["version"]:
                event = await stream.next()
                if (told_of := event["data"].get("worker")) and told_of["id"] == worker["id"]:
                    shown = told_of
            assert shown["status"] == newest["status"] == "running"
        await life.remove(worker)
    with printed_figures("function after the control plane was gone") as figures:
        figures["seconds"] = f"{took:.1f}"
    assert_promised(RECOVERY_SECONDS, [took])


async def was_stopped_and_started_again(life: Life, worker: Json) -> bool:
    """What happened outside is told first, and then it is made what people want."""
    return (await life.api.statuses(worker))[-3:] == ["stopped", "starting", "running"]
