"""One leader at a time: who leads, for how long, and what happens when the store or the epoch fails."""

import asyncio
import random
from collections.abc import Callable

import pytest

from lcm.core.election import (
    Election,
    ElectionWin,
    LeaderElectionConfig,
    Leadership,
    LeadershipLost,
)
from lcm.core.health import Health
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.core.loop import ReconciliationConfig
from lcm.core.results import ReconciliationResult, Success
from support.core import (
    AT_ONCE,
    NEVER_POLLS,
    Candidate,
    LeadershipLog,
    Link,
    Resources,
    Thing,
    memory_kv,
    running,
)
from support.virtual_time import VirtualClock

clock = VirtualClock()
TTL, RETRY = 15.0, 5.0


class Cluster:
    """A store, an office, and candidates that each have their own link to the store."""

    def __init__(self, *names: str, config: ReconciliationConfig = AT_ONCE) -> None:
        self.kv: MemoryKv = memory_kv(clock)
        self.world = Resources(clock, "a")
        self.office = LeadershipLog(clock)
        self.links = {name: Link(self.kv, clock) for name in names}
        self.candidates = {
            name: Candidate(name, self.world, self.office, link, config) for name, link in self.links.items()
        }

    def __getitem__(self, name: str) -> Candidate:
        return self.candidates[name]

    @property
    def leader(self) -> str | None:
        return next(iter(self.office.holders), None)

    @property
    def standby(self) -> str:
        return next(name for name in self.candidates if name != self.leader)

    async def key_holder(self) -> str | None:
        item = await self.kv.get("/elections/service/leader")
        return item.value.decode() if item else None


def test_the_defaults_are_those_of_the_contract() -> None:
    config = LeaderElectionConfig(instance_id="me")
    assert (config.lease_ttl, config.retry_interval) == (TTL, RETRY)
    assert config.key == "/elections/service/leader"
    assert config.renew_every_seconds == 5.0
    assert config.act_for_seconds == 0.7 * TTL


def test_each_service_has_an_office_of_its_own() -> None:
    config = LeaderElectionConfig(
        instance_id="me", election_key_prefix="/lcm", service_name="worker-controller"
    )
    assert config.key == "/lcm/worker-controller/leader"


# Who leads.


def test_an_instance_has_the_name_it_was_given_or_one_that_no_other_has() -> None:
    clock, ids = VirtualClock(), RandomIds(random.Random(1))

    def name(config: LeaderElectionConfig) -> str:
        return Election(config, None, clock=clock, health=Health(clock), trace_ids=ids).config.instance_id

    assert name(LeaderElectionConfig(instance_id="one")) == "one"
    assert len({name(LeaderElectionConfig()) for _ in range(3)} - {"auto"}) == 3


async def test_exactly_one_of_two_leads() -> None:
    cluster = Cluster("ada", "bob")
    async with running(cluster.kv, cluster["ada"], cluster["bob"]):
        await clock.sleep(600)
        assert len(cluster.office.holders) == 1  # the office itself refuses a second one
        assert await cluster.key_holder() == cluster.leader
        assert sorted([cluster["ada"].election.is_leader, cluster["bob"].election.is_leader]) == [False, True]
    assert len(cluster.office.terms) == 1


async def test_only_the_leader_reconciles() -> None:
    cluster = Cluster("ada", "bob")
    async with running(cluster.kv, cluster["ada"], cluster["bob"]):
        await clock.sleep(61)
    assert cluster.world.starts("a") == [0, 2, 30, 60]


async def test_a_leader_renews_every_third_of_the_lease() -> None:
    cluster = Cluster("ada")
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(21)
    assert cluster.links["ada"].times_of("keep_alive") == [5, 10, 15, 20]


async def test_without_a_store_a_single_instance_leads_at_once() -> None:
    office = LeadershipLog(clock)
    alone = Candidate("ada", Resources(clock, "a"), office, kv=None)
    async with running(alone):
        await clock.sleep(1)
        assert alone.election.is_leader
        assert alone.election.leadership is not None
        await clock.sleep(9_999)
        alone.election.leadership.check()
    assert office.terms == [("ada", 0.0, 10_000.0)]
    assert set(office.epochs) == {ElectionWin("alone-ada", 1, "ada")}


async def test_without_a_store_an_instance_claims_its_epoch_again_to_stay_known() -> None:
    office = LeadershipLog(clock)
    alone = Candidate("ada", Resources(clock, "a"), office, kv=None)
    async with running(alone):
        await clock.sleep(16)
    assert office.epochs == [ElectionWin("alone-ada", 1, "ada")] * 4
    assert office.terms == [("ada", 0.0, 16.0)]


async def test_without_a_store_an_instance_whose_epoch_is_not_the_newest_leads_anew() -> None:
    office = LeadershipLog(clock)
    alone = Candidate("ada", Resources(clock, "a"), office, kv=None)
    async with running(alone):
        await clock.sleep(4)
        office.granted += 1
        await clock.sleep(4)
    assert office.terms == [("ada", 0.0, 5.0), ("ada", 6.0, 8.0)]


async def test_a_win_proves_itself_with_cluster_revision_and_instance() -> None:
    cluster = Cluster("ada")
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(1)
        item = await cluster.kv.get("/elections/service/leader")
        assert item is not None
        win = ElectionWin(await cluster.kv.cluster_id(), item.create_revision, "ada")
        assert cluster.office.epochs == [win]
        assert cluster["ada"].election.leadership is not None
        assert cluster["ada"].election.leadership.epoch == 1


async def test_each_win_has_a_higher_revision_than_the_last() -> None:
    cluster = Cluster("ada", "bob")
    async with running(cluster.kv, cluster["ada"], cluster["bob"]):
        for _ in range(5):
            await clock.sleep(10)
            assert cluster.leader is not None
            cluster[cluster.leader].election.resign()
        await clock.sleep(10)
    revisions = [win.revision for win in cluster.office.epochs]
    assert len(revisions) == 6
    assert revisions == sorted(set(revisions))


# Handing over.


async def test_a_leader_that_is_stopped_hands_over_at_once() -> None:
    cluster = Cluster("ada", "bob")
    async with running(cluster.kv), asyncio.TaskGroup() as tasks:
        ada = tasks.create_task(cluster["ada"].run())
        await clock.sleep(1)
        bob = tasks.create_task(cluster["bob"].run())
        await clock.sleep(10)
        ada.cancel()
        await clock.sleep(1)
        assert cluster.leader == "bob"
        bob.cancel()
    assert cluster.office.terms == [("ada", 0.0, 11.0), ("bob", 11.0, 12.0)]


async def test_a_leader_that_is_stopped_in_the_moment_in_which_it_resigns_stops() -> None:
    cluster = Cluster("ada")
    async with running(cluster.kv), asyncio.TaskGroup() as tasks:
        ada = tasks.create_task(cluster["ada"].run())
        await clock.sleep(10)
        cluster["ada"].election.resign()
        ada.cancel()
        await clock.sleep(10)
        assert ada.done()


async def test_a_leader_that_resigns_hands_over_at_once_and_stands_by() -> None:
    cluster = Cluster("ada", "bob")
    async with running(cluster.kv, cluster["ada"], cluster["bob"]):
        await clock.sleep(10)
        old, new = cluster.leader, cluster.standby
        assert old is not None
        cluster[old].election.resign()
        await clock.sleep(1)
        assert cluster.leader == new
        assert not cluster[old].election.is_leader
        await clock.sleep(100)
    assert cluster.office.terms == [(old, 0.0, 10.0), (new, 10.0, 111.0)]


async def test_a_leader_without_a_rival_leads_again_a_second_after_resigning() -> None:
    cluster = Cluster("ada")
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(10)
        cluster["ada"].election.resign()
        await clock.sleep(5)
    assert cluster.office.terms == [("ada", 0.0, 10.0), ("ada", 11.0, 15.0)]


async def test_a_standby_takes_over_when_the_lease_is_no_longer_renewed() -> None:
    cluster = Cluster("ada", "bob")
    async with running(cluster.kv, cluster["ada"], cluster["bob"]):
        await clock.sleep(21)
        old, new = cluster.leader, cluster.standby
        assert old is not None
        cluster.links[old].freeze()
        await clock.sleep(79)
    # last renewed at 20: the old one stops 0.7 TTL later, the new one starts when the lease ends
    assert cluster.office.terms == [(old, 0.0, 30.5), (new, 35.0, 100.0)]


async def test_a_standby_that_hears_nothing_takes_over_within_lease_and_retry_interval() -> None:
    cluster = Cluster("ada", "bob")
    for link in cluster.links.values():
        link.hanging = {"watch_prefix"}
    async with running(cluster.kv, cluster["ada"], cluster["bob"]):
        await clock.sleep(21)
        old = cluster.leader
        assert old is not None
        cluster.links[old].freeze()
        await clock.sleep(79)
    assert 35.0 <= cluster.office.terms[1][1] <= 20 + TTL + RETRY


async def test_a_former_leader_that_stands_by_is_healthy() -> None:
    cluster = Cluster("ada", "bob")
    async with running(cluster.kv, cluster["ada"], cluster["bob"]):
        await clock.sleep(10)
        old = cluster.leader
        assert old is not None
        cluster[old].election.resign()
        await clock.sleep(1_000)
        assert not cluster[old].election.is_leader
        assert cluster[old].loop.health.silent_loops == []


# The leader's own deadline.


@pytest.mark.parametrize("fault", [Link.freeze, Link.cut])
async def test_a_leader_stops_by_its_own_deadline_when_the_store_does_not_answer(
    fault: Callable[[Link], None],
) -> None:
    cluster = Cluster("ada")
    cluster.world.last_for(1_000)
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(1)
        leadership = cluster["ada"].election.leadership
        assert leadership is not None
        fault(cluster.links["ada"])
        await clock.sleep(9.49)
        leadership.check()
        assert cluster.world.busy == {"a"}
        await clock.sleep(0.02)
        with pytest.raises(LeadershipLost):
            leadership.check()
        assert not cluster["ada"].election.is_leader
        assert cluster.world.busy == set()
    assert cluster.office.terms == [("ada", 0.0, 10.5)]


async def test_a_leader_whose_loop_was_blocked_past_the_deadline_must_not_act() -> None:
    leadership = Leadership(ElectionWin("c", 1, "ada"), 1, deadline=10.5, _monotonic=clock.monotonic)
    await clock.sleep(10.4)
    leadership.check()
    await clock.sleep(0.1)
    with pytest.raises(LeadershipLost, match="renewed in time"):
        leadership.check()


async def test_the_deadline_counts_from_when_the_renewal_was_asked_for() -> None:
    cluster = Cluster("ada")
    cluster.links["ada"].slow = {"keep_alive": 1.5}
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(6.6)
        assert cluster["ada"].election.leadership is not None
        assert cluster["ada"].election.leadership.deadline == 5 + 10.5
        await clock.sleep(600)
    assert len(cluster.office.terms) == 1  # slow is not lost


async def test_the_first_deadline_counts_from_when_the_lease_was_asked_for() -> None:
    cluster = Cluster("ada")
    cluster.links["ada"].slow = {"grant_lease": 1.5, "put_if_absent": 1.5}
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(4)
        assert cluster["ada"].election.leadership is not None
        assert cluster["ada"].election.leadership.deadline == 10.5


async def test_a_short_trouble_with_the_store_costs_nothing() -> None:
    cluster = Cluster("ada", "bob")
    async with running(cluster.kv, cluster["ada"], cluster["bob"]):
        await clock.sleep(21)
        assert cluster.leader is not None
        cluster.links[cluster.leader].freeze()
        await clock.sleep(6)
        cluster.links[cluster.leader].mend()
        await clock.sleep(100)
    assert len(cluster.office.terms) == 1


async def test_a_renewal_whose_answer_is_lost_does_not_prolong_the_lead() -> None:
    cluster = Cluster("ada")
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(1)
        cluster.links["ada"].losing = {"keep_alive"}
        await clock.sleep(13)
    assert cluster.office.terms[0] == ("ada", 0.0, 10.5)


async def test_when_the_lease_is_gone_the_loops_stop_before_anything_else() -> None:
    cluster = Cluster("ada")
    link = cluster.links["ada"]
    calls_when_stopped: list[str] = []

    async def act(_: Thing) -> ReconciliationResult:
        try:
            await clock.sleep(1_000)
        finally:
            calls_when_stopped.extend(name for name, _ in link.calls)
        return Success()

    cluster.world.act = act
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(7)
        await cluster.kv.revoke_lease(link.leases[0])
        await clock.sleep(3.5)
        assert cluster.office.terms == [("ada", 0.0, 10.0)]
        assert calls_when_stopped[-1] == "keep_alive"
        assert link.calls[len(calls_when_stopped)] == ("revoke_lease", 10.0)


# The store is away.


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        (Link.cut, "coordination store: list_prefix: no way through"),
        (Link.freeze, "coordination store: no answer"),
    ],
)
async def test_while_the_store_is_unreachable_nobody_leads_and_health_says_why(
    fault: Callable[[Link], None], shown: str
) -> None:
    cluster = Cluster("ada", "bob")
    for link in cluster.links.values():
        fault(link)
    async with running(cluster.kv, cluster["ada"], cluster["bob"]):
        await clock.sleep(600)
        assert cluster.leader is None
        assert cluster.world.runs == []
        for name, link in cluster.links.items():
            assert cluster[name].loop.health.freeze_reasons == [shown]
            link.mend()
        await clock.sleep(RETRY)
        assert cluster.leader is not None
        for name in cluster.links:
            assert cluster[name].loop.health.freeze_reasons == []


async def test_a_leader_that_loses_the_store_shows_the_freeze() -> None:
    cluster = Cluster("ada")
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(1)
        cluster.links["ada"].cut()
        await clock.sleep(20)
        assert [r.split(":")[0] for r in cluster["ada"].loop.health.freeze_reasons] == ["coordination store"]


async def test_a_dead_store_is_not_asked_more_than_once_a_second() -> None:
    cluster = Cluster("ada")
    cluster.links["ada"].cut()
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(60.5)
    assert cluster.links["ada"].times_of("list_prefix") == list(range(61))


async def test_a_candidacy_whose_answer_was_lost_is_given_back_and_repeated() -> None:
    cluster = Cluster("ada")
    link = cluster.links["ada"]
    link.losing = {"put_if_absent"}
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(0.5)
        link.losing = set()
        assert await cluster.key_holder() is None
        await clock.sleep(2)
        assert cluster.leader == "ada"


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_happens_to_the_links_two_never_lead_and_in_the_end_one_does(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster("ada", "bob", "eve")
    async with running(cluster.kv, *cluster.candidates.values()):
        for _ in range(300):
            await clock.sleep(rng.choice([0.1, 0.5, 1.0, 3.0, 7.0, 12.0]))
            link = cluster.links[rng.choice(["ada", "bob", "eve"])]
            rng.choice([link.cut, link.freeze, link.mend, link.mend, link.break_watches])()
            link.losing = {rng.choice(["keep_alive", "put_if_absent", "revoke_lease", "nothing"])}
            link.slow = {"keep_alive": rng.choice([0.0, 0.0, 1.9, 3.0])}
        for link in cluster.links.values():
            link.mend()
            link.losing, link.slow = set(), {}
        await clock.sleep(TTL + RETRY)
        assert cluster.leader is not None
        assert await cluster.key_holder() == cluster.leader
    assert len(cluster.office.terms) > 3  # it was not a quiet time


# The epoch.


async def test_a_failing_epoch_claim_is_repeated_while_the_lease_is_held() -> None:
    cluster = Cluster("ada", "bob")
    cluster.office.epoch_errors = [ConnectionError("control plane away")] * 5
    async with running(cluster.kv, cluster["ada"], cluster["bob"]):
        await clock.sleep(1)
        holder = await cluster.key_holder()
        assert holder is not None
        assert cluster.leader is None
        assert cluster[holder].loop.health.freeze_reasons == ["epoch: control plane away"]
        await clock.sleep(23)
        assert await cluster.key_holder() == holder
        assert cluster.world.runs == []
        await clock.sleep(2)
        assert cluster.leader == holder
        assert cluster[holder].loop.health.freeze_reasons == []
    assert cluster.office.terms == [(holder, 1 + 2 + 4 + 8 + 10, 26.0)]


async def test_a_candidate_that_lost_the_lease_before_its_epoch_misses_no_epoch() -> None:
    cluster = Cluster("ada", "bob")
    cluster.office.epoch_errors = [ConnectionError("control plane away")] * 4
    async with running(cluster.kv, cluster["ada"], cluster["bob"]):
        await clock.sleep(1)
        unlucky = await cluster.key_holder()
        assert unlucky is not None
        cluster[unlucky].election.resign()
        await clock.sleep(100)
        assert cluster.leader not in (None, unlucky)
        assert cluster[unlucky].loop.health.freeze_reasons == []


async def test_an_epoch_refused_for_a_newer_leader_gives_the_office_back() -> None:
    cluster = Cluster("ada")
    cluster.office.epoch_errors = [LeadershipLost("a newer leader exists")]
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(0.5)
        assert await cluster.key_holder() is None
        await clock.sleep(1.5)
    assert cluster.office.terms == [("ada", 1.0, 2.0)]


# What a leader does.


async def test_a_fatal_error_ends_the_leadership_and_the_campaign_starts_again() -> None:
    cluster = Cluster("ada")
    cluster.world.script(LeadershipLost("fenced"))
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(5)
    assert cluster.office.terms == [("ada", 0.0, 0.0), ("ada", 1.0, 5.0)]
    assert [win.revision for win in cluster.office.epochs] == [1, 3]


async def test_a_bug_in_one_reconcile_does_not_cost_the_leadership() -> None:
    cluster = Cluster("ada")
    cluster.world.script(RuntimeError("a bug"))
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(60)
    assert len(cluster.office.terms) == 1


async def test_two_seconds_after_the_election_everything_is_looked_at_settled_or_not() -> None:
    cluster = Cluster("ada")
    cluster.world.change("a", marker="rests")
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(100)
    assert cluster.world.starts("a") == [0, 2]


async def test_a_first_look_that_fails_is_repeated_until_it_succeeds() -> None:
    cluster = Cluster("ada", config=NEVER_POLLS)
    cluster.world.list_error = ConnectionError("control plane away")
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(8)
        cluster.world.list_error = None
        await clock.sleep(100)
    assert cluster.world.lists == [2, 3, 5, 9]
    assert cluster.world.starts("a") == [9]


async def test_a_new_term_forgets_the_backoff_of_the_last() -> None:
    cluster = Cluster("ada")
    cluster.world.script(*[RuntimeError("a bug")] * 6)
    async with running(cluster.kv, cluster["ada"]):
        await clock.sleep(16)
        cluster["ada"].election.resign()
        await clock.sleep(1.5)
    assert cluster.world.starts("a")[-1] == 17.0
