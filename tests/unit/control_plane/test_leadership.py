"""Epochs: a newer leader fences an older one, and no rightful leader is locked out."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.claim_leadership import (
    claim_leadership,
    fence_for,
    with_terms_of_the_leader,
)
from lcm.core.election import (
    ALONE_SECONDS,
    CLAIM_RETRY_SECONDS,
    Election,
    ElectionWin,
    LeaderElectionConfig,
)
from lcm.core.health import Health
from lcm.domain.errors import Conflict, Fenced
from lcm.domain.idle import ControllerTerms, IdlePolicy
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.worker import new_worker
from lcm.rest.schemas import LeadershipClaim
from support.control_plane import control_plane_over


async def claim(plane: ControlPlane, cluster: str, revision: int, instance: str = "a") -> int:
    request = LeadershipClaim(
        service="worker-controller", cluster_id=cluster, revision=revision, instance_id=instance
    )
    return (await claim_leadership(plane.records, request)).epoch


async def test_every_later_election_gets_a_higher_epoch(plane: ControlPlane) -> None:
    assert [await claim(plane, "etcd", revision) for revision in (5, 9, 30)] == [1, 2, 3]


async def test_the_same_claim_again_gets_the_same_epoch(plane: ControlPlane) -> None:
    assert await claim(plane, "etcd", 5) == await claim(plane, "etcd", 5) == 1


STATED = ControllerTerms(idle_detection_interval=60.0, min_workers=2)


async def stating(plane: ControlPlane, own: ControllerTerms) -> int:
    """Claim with these settings at the controller, and the others at the control plane."""
    request = LeadershipClaim(
        service="worker-controller", cluster_id="etcd", revision=1, instance_id="a", terms=STATED
    )
    return (await claim_leadership(plane.records, request, own)).epoch


@pytest.mark.parametrize("own", [ControllerTerms(), ControllerTerms(min_workers=2), STATED])
async def test_what_the_leader_states_is_enforced(plane: ControlPlane, own: ControllerTerms) -> None:
    assert (await with_terms_of_the_leader(plane.records, plane.policies)).idle == plane.policies.idle
    await stating(plane, own)
    idle = (await with_terms_of_the_leader(plane.records, plane.policies)).idle
    assert (idle.check_interval, idle.min_workers) == (timedelta(seconds=60), 2)
    assert replace_idle(idle) == replace_idle(plane.policies.idle)


def replace_idle(policy: IdlePolicy) -> IdlePolicy:
    """The policy without what the leader states."""
    return ControllerTerms(idle_detection_interval=1.0, min_workers=0).applied_to(policy)


async def test_a_leader_that_is_set_otherwise_is_refused_with_both_values(plane: ControlPlane) -> None:
    with pytest.raises(Conflict) as refused:
        await stating(plane, ControllerTerms(idle_detection_interval=300.0, min_workers=0))
    for text in ("IDLE_DETECTION_INTERVAL is 300", "60 at the worker", "MIN_WORKERS is 0", "2 at the worker"):
        assert text in str(refused.value)
    assert await stating(plane, ControllerTerms()) == 1  # once it is corrected


async def test_a_winner_that_was_paused_cannot_fence_out_the_real_leader(plane: ControlPlane) -> None:
    await claim(plane, "etcd", 9, "new")
    with pytest.raises(Fenced):
        await claim(plane, "etcd", 5, "paused")
    assert await claim(plane, "etcd", 9, "new") == 1


async def test_a_wiped_coordination_store_starts_above_the_stored_epoch(plane: ControlPlane) -> None:
    await claim(plane, "etcd", 900)
    assert await claim(plane, "etcd-after-the-wipe", 3) == 2


async def test_a_leader_of_the_store_before_the_wipe_is_refused(plane: ControlPlane) -> None:
    await claim(plane, "etcd", 900)
    await claim(plane, "etcd-after-the-wipe", 3)
    with pytest.raises(Fenced):
        await claim(plane, "etcd", 900)


async def test_a_late_claim_of_a_lost_store_does_not_lock_out_the_living_one(plane: ControlPlane) -> None:
    await claim(plane, "etcd", 900)
    await claim(plane, "etcd-after-two-wipes", 3, "rightful")
    await claim(plane, "etcd-between-the-wipes", 7, "late")
    with pytest.raises(Fenced):
        await claim(plane, "etcd-after-two-wipes", 3, "rightful")
    assert await claim(plane, "etcd-after-two-wipes", 4, "rightful") == 4


async def claim_alone(plane: ControlPlane, instance: str) -> int:
    return await claim(plane, f"alone-{instance}", 1, instance)


async def test_a_second_controller_without_etcd_is_told_what_to_set_and_disturbs_nothing(
    plane: ControlPlane,
) -> None:
    assert await claim_alone(plane, "first") == 1
    with pytest.raises(Conflict, match=r"first leads: .*ETCD_HOST or ETCD_ENDPOINTS"):
        await claim_alone(plane, "second")
    assert await claim_alone(plane, "first") == 1


async def test_a_controller_without_etcd_takes_over_from_one_that_is_silent(plane: ControlPlane) -> None:
    await claim_alone(plane, "first")
    await plane.records.clock.sleep(ALONE_SECONDS)
    assert await claim_alone(plane, "second") == 2
    with pytest.raises(Conflict, match="second leads"):
        await claim_alone(plane, "first")
    await plane.records.clock.sleep(ALONE_SECONDS)
    assert await claim_alone(plane, "first") == 3


async def test_a_control_plane_that_restarted_waits_for_the_controller_that_led_without_etcd(
    plane: ControlPlane,
) -> None:
    await claim_alone(plane, "first")
    clock, ids = plane.records.clock, plane.records.ids
    restarted = control_plane_over(plane.records.store, clock=clock, ids=ids)
    with pytest.raises(Conflict):
        await claim_alone(restarted, "second")
    assert await claim_alone(restarted, "first") == 1


async def test_a_controller_without_etcd_does_not_replace_one_that_was_elected_since(
    plane: ControlPlane,
) -> None:
    await claim_alone(plane, "first")
    assert await claim(plane, "etcd", 5, "elected") == 2
    with pytest.raises(Fenced, match=r"elected leads since.*ETCD_HOST or ETCD_ENDPOINTS"):
        await claim_alone(plane, "first")


async def test_a_controller_that_starts_without_etcd_beside_an_elected_one_is_refused_after_its_next_election(
    plane: ControlPlane,
) -> None:
    await claim(plane, "etcd", 5, "elected")
    assert await claim_alone(plane, "other") == 2
    assert await claim(plane, "etcd", 6, "elected") == 3
    with pytest.raises(Fenced, match=r"elected leads since.*ETCD_HOST or ETCD_ENDPOINTS"):
        await claim_alone(plane, "other")


class Standing:
    """The election of a controller without etcd, against a control plane."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        clock = plane.records.clock
        self.health = Health(clock)
        config = LeaderElectionConfig(instance_id=name)
        ids = plane.records.ids
        self.election = Election(
            config, None, clock=clock, health=self.health, trace_ids=ids, fatal=(Fenced,)
        )
        self._plane = plane

    async def run(self) -> None:
        await self.election.run(self._claim, self._lead)

    async def _lead(self) -> None:
        await asyncio.Event().wait()

    async def _claim(self, win: ElectionWin) -> int:
        return await claim(self._plane, win.cluster_id, win.revision, win.instance_id)


async def test_of_two_elections_without_etcd_the_second_waits_until_the_first_ends(
    plane: ControlPlane,
) -> None:
    first, second, clock = Standing(plane, "first"), Standing(plane, "second"), plane.records.clock
    async with asyncio.TaskGroup() as tasks:
        leading = tasks.create_task(first.run())
        await clock.sleep(1)
        waiting = tasks.create_task(second.run())
        await clock.sleep(1_000)
        assert (first.election.epoch, second.election.epoch) == (1, 0)
        [reason] = second.health.freeze_reasons
        assert "set ETCD_HOST or ETCD_ENDPOINTS" in reason
        assert not first.health.freeze_reasons
        leading.cancel()
        await clock.sleep(ALONE_SECONDS + CLAIM_RETRY_SECONDS)
        assert (second.election.epoch, second.health.freeze_reasons) == (2, [])
        waiting.cancel()


async def test_a_write_under_an_older_epoch_is_refused_and_changes_nothing(plane: ControlPlane) -> None:
    worker = await plane.records.workers.add(
        new_worker(
            worker_id=WorkerId("ada"),
            name="ada",
            template_name="small",
            aws_region="us-east-1",
            tags={},
            by="ann",
            now=datetime(2026, 1, 1, tzinfo=UTC),
        )
    )
    old = fence_for("worker-controller", await claim(plane, "etcd", 5))
    new = fence_for("worker-controller", await claim(plane, "etcd", 6))
    with pytest.raises(Fenced):
        await plane.records.workers.change("ada", lambda w: replace(w, status=RUNNING), fence=old)
    assert await plane.records.workers.get("ada") == worker
    await plane.records.workers.change("ada", lambda w: replace(w, status=RUNNING), fence=new)
