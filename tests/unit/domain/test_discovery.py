"""What is imported, what never is, and the record of an imported instance."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lcm.cml.sessions import host_of, server_of
from lcm.domain.capacity import Capacity
from lcm.domain.discovery import (
    AllowList,
    DiscoveryPlan,
    DiscoverySettings,
    FoundInstance,
    KnownWorkers,
    imported_worker,
    matches_ami_filter,
    parse_tag_filter,
    plan_discovery,
    reason_not_to_import,
    worker_name,
)
from lcm.domain.errors import ActionRefused, Conflict, PlacementRefused
from lcm.domain.explain import explain
from lcm.domain.idle import Evidence, IdlePolicy, PauseGuard, pause_due_at, pause_guard, snoozed_until
from lcm.domain.lablet.admission import claim
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.ports import PortRange
from lcm.domain.launch import Ami, InstanceId, WorkerId
from lcm.domain.lifecycle import PENDING, RUNNING, STOPPED, TERMINATED, DesiredStatus, WorkerStatus
from lcm.domain.requests import adopt
from lcm.domain.template import WorkerTemplate
from lcm.domain.transitions import with_launch_intent
from lcm.domain.worker import Instance, Worker
from support.core import NOON, SPEC, a_worker, an_instance, with_fields

LCM = {"lcm:managed_by": "lablet-cloud-manager", "cml-environment": "production"}
NOBODY = KnownWorkers(frozenset(), frozenset())


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def planned(stored: DiscoverySettings, **environment: Any) -> DiscoveryPlan:
    given: dict[str, Any] = {
        "enabled": True,
        "regions": (),
        "default_region": "us-east-1",
        "tag_filter": None,
        "ami_filter": "",
        **environment,
    }
    return plan_discovery(stored, **given)


class TestThePlan:
    def test_without_any_setting_it_is_the_default_region_and_our_tag(self) -> None:
        plan = planned(DiscoverySettings())
        assert plan.enabled
        assert plan.regions == ("us-east-1",)
        assert plan.tags == {"cml-managed": "true"}
        assert plan.ami_filter == ""

    def test_the_environment_wins_over_defaults_and_people_win_over_the_environment(self) -> None:
        environment: dict[str, Any] = {
            "regions": ("eu-west-1",),
            "tag_filter": "a=b, c=d",
            "ami_filter": "CML-2*",
        }
        by_environment = planned(DiscoverySettings(), **environment)
        assert (by_environment.regions, by_environment.tags) == (
            ("eu-west-1",),
            {"a": "b", "c": "d"},
        )
        stored = DiscoverySettings(regions=("us-west-2",), tag_filter={"team": "labs"}, ami_filter="")
        by_people = planned(stored, **environment)
        assert by_people.regions == ("us-west-2",)
        assert by_people.tags == {"team": "labs"}
        assert by_people.ami_filter == ""

    @pytest.mark.parametrize(
        ("environment", "stored", "expected"),
        [(True, None, True), (True, True, True), (True, False, False), (False, True, False)],
    )
    def test_switched_off_in_either_place_is_off(
        self, environment: bool, stored: bool | None, expected: bool
    ) -> None:
        plan = planned(DiscoverySettings(enabled=stored), enabled=environment)
        assert plan.enabled is expected

    @pytest.mark.parametrize("text", ["cml-managed", "=true", "a=b,c"])
    def test_a_tag_filter_that_cannot_be_read_is_an_error(self, text: str) -> None:
        with pytest.raises(ValueError, match="key=value"):
            parse_tag_filter(text)


class TestWhatIsImported:
    def test_an_instance_without_a_record_is_new(self) -> None:
        assert reason_not_to_import(an_instance(), NOBODY, "production") is None

    @pytest.mark.parametrize("status", [RUNNING, STOPPED, TERMINATED])
    def test_an_instance_that_a_record_names_is_never_imported_again(self, status: WorkerStatus) -> None:
        instance = an_instance()
        known = KnownWorkers.of([a_worker(status=status, ec2_instance_id=instance.id)])
        assert "already" in str(reason_not_to_import(instance, known, "production"))

    def test_an_instance_that_lcm_launched_for_a_known_worker_is_never_imported(self) -> None:
        known = KnownWorkers.of([a_worker()])
        instance = replace(an_instance(), tags={**LCM, "worker_id": "w-1"})
        assert "w-1" in str(reason_not_to_import(instance, known, "production"))

    def test_an_instance_that_lcm_launched_and_no_record_names_is_imported(self) -> None:
        instance = replace(an_instance(), tags={**LCM, "worker_id": "w-lost"})
        assert reason_not_to_import(instance, NOBODY, "production") is None

    def test_h7_an_instance_of_another_fleet_is_left_to_that_fleet(self) -> None:
        """H7: import of another fleet."""
        instance = replace(an_instance(), tags={**LCM, "worker_id": "w-9", "cml-environment": "staging"})
        assert "staging" in str(reason_not_to_import(instance, NOBODY, "production"))

    @pytest.mark.parametrize("state", ["shutting-down", "terminated"])
    def test_an_instance_that_is_being_terminated_is_not_imported(self, state: str) -> None:
        assert reason_not_to_import(replace(an_instance(), state=state), NOBODY, "p") is not None

    @pytest.mark.parametrize(
        ("pattern", "fits"),
        [("", True), ("CML-*", True), ("CML-2.?.1", True), ("cml-*", False), ("CML-[2]*", False)],
    )
    def test_an_image_name_is_matched_as_ec2_matches_it(self, pattern: str, fits: bool) -> None:
        assert matches_ami_filter(Ami(id="ami-1", name="CML-2.9.1"), pattern) is fits

    def test_an_image_that_no_longer_exists_matches_no_name(self) -> None:
        assert matches_ami_filter(None, "")
        assert not matches_ami_filter(None, "*")


class TestTheRecord:
    def record(self, instance: Instance | None = None, **changes: Any) -> Worker:
        found = FoundInstance(instance=instance or an_instance(), **changes)
        template = WorkerTemplate(
            name="small",
            description="",
            instance_type=found.instance.instance_type,
            cpu=2,
            memory_gb=2,
            disk_gb=8,
            max_nodes=5,
            usd_per_hour=0.1,
        )
        return imported_worker(
            found, worker_id=WorkerId("w-9"), taken_names=(), templates=[template], by="c", now=NOON
        )

    @pytest.mark.parametrize(
        ("state", "status", "desired"),
        [
            ("running", "running", DesiredStatus.RUNNING),
            ("pending", "provisioning", DesiredStatus.RUNNING),
            ("stopped", "stopped", DesiredStatus.STOPPED),
            ("stopping", "stopping", DesiredStatus.STOPPED),
        ],
    )
    def test_it_is_wanted_as_it_is(self, state: str, status: str, desired: DesiredStatus) -> None:
        worker = self.record(replace(an_instance(), state=state))
        assert (worker.status, worker.desired_status, worker.imported) == (status, desired, True)
        [entry] = worker.state_history
        assert (entry.source, entry.target) == (None, worker.status)
        assert "imported" in entry.reason

    def test_it_holds_what_was_observed_of_the_instance(self) -> None:
        worker = self.record(
            image=Ami(id="ami-1", name="CML-2.9.1", description="d", creation_date="2026"),
            cml_version="2.9.1",
            cml_ready=True,
            cml_certificate_sha256="a" * 64,
        )
        assert (
            worker.instance.ami_name,
            worker.instance.ami_description,
            worker.instance.ami_creation_date,
        ) == (
            "CML-2.9.1",
            "d",
            "2026",
        )
        assert (worker.cml.version, worker.cml.is_ready) == ("2.9.1", True)
        assert worker.template_name == "small"
        assert worker.instance.id == an_instance().id

    def test_it_keeps_the_tags_that_say_where_it_belongs_and_no_others(self) -> None:
        kept = {"cml-environment": "class", "cml-region": "emea"}
        worker = self.record(replace(an_instance(), tags={**kept, "Name": "lab", "owner": "ada"}))
        assert worker.tags == kept
        assert worker.aws_region == an_instance().region

    def test_it_can_never_be_launched(self) -> None:
        worker = with_fields(self.record(), status=PENDING, ec2_instance_id=None)
        with pytest.raises(Conflict, match="imported"):
            with_launch_intent(worker, SPEC, now=NOON)


class TestNames:
    @pytest.mark.parametrize(
        ("tag", "name"),
        [
            ("Lab 1", "lab-1"),
            ("--x--", "x"),
            ("", "i-0123456789abcdef0"),
            ("日本", "i-0123456789abcdef0"),
            ("A" * 80, "a" * 63),
        ],
    )
    def test_a_name_tag_becomes_a_host_name(self, tag: str, name: str) -> None:
        instance = replace(an_instance(), id=InstanceId("i-0123456789abcdef0"), tags={"Name": tag})
        assert worker_name(instance, ()) == name

    @given(st.text(max_size=200), st.text("0123456789abcdef", min_size=17, max_size=17))
    def test_every_name_is_valid_and_a_taken_one_is_avoided(self, tag: str, digits: str) -> None:
        instance = replace(an_instance(), id=InstanceId(f"i-{digits}"), tags={"Name": tag})
        first = worker_name(instance, ())
        second = worker_name(instance, {first})
        assert first != second
        for name in (first, second):
            assert 0 < len(name) <= 63
            assert name.strip("-") == name
            assert all(c.isascii() and (c.isalnum() or c == "-") and not c.isupper() for c in name)


class TestTrust:
    PIN = "a" * 64

    def found(self, **changes: Any) -> Worker:
        instance = replace(an_instance(), owner_id="111122223333", vpc_id="vpc-7", subnet_id="subnet-7")
        found = FoundInstance(instance=instance, cml_ready=True, cml_certificate_sha256=self.PIN, **changes)
        return imported_worker(
            found, worker_id=WorkerId("w-9"), taken_names=(), templates=[], by="worker-controller", now=NOON
        )

    def test_a_tag_is_no_reason_to_trust_an_instance(self) -> None:
        worker = self.found()
        assert not worker.is_trusted
        assert server_of(worker, use_private_ip=False) is None
        assert host_of(worker, use_private_ip=False) == "198.51.100.5"
        assert worker.discovered is not None
        assert (worker.discovered.owner_id, worker.discovered.vpc_id) == ("111122223333", "vpc-7")
        assert "before an admin adopts it" in worker.status_reason

    def test_an_instance_on_the_allow_list_needs_no_adoption(self) -> None:
        worker = self.found(is_allowed=True)
        assert worker.is_trusted
        assert worker.discovered is not None
        assert worker.discovered.adopted_by == "worker-controller"

    def test_a_worker_that_was_imported_before_there_were_adoptions_stays_trusted(self) -> None:
        document = msgspec.to_builtins(replace(self.found(), discovered=None))
        del document["discovered"]
        assert msgspec.convert(document, Worker).is_trusted

    def test_an_adopted_worker_gets_a_login_and_the_timeline_says_who_adopted_it(self) -> None:
        worker = self.found()
        adopted = adopt(worker, self.PIN, by="ann", now=at(5))
        assert adopted.is_trusted
        assert adopted.generation == worker.generation + 1
        assert (adopted.state_history[-1].by, self.PIN in adopted.state_history[-1].reason) == ("ann", True)
        server = server_of(adopted, use_private_ip=False)
        assert server is not None
        assert server.certificate_sha256 == self.PIN
        assert adopt(adopted, None, by="bob", now=at(6)) is adopted

    @pytest.mark.parametrize("certificate", ["b" * 64, None])
    def test_a_server_that_was_not_compared_is_not_adopted(self, certificate: str | None) -> None:
        with pytest.raises(Conflict, match=self.PIN):
            adopt(self.found(), certificate, by="ann", now=at(5))

    def test_a_server_that_has_not_answered_is_adopted_only_by_saying_so(self) -> None:
        silent = with_fields(self.found(), cml_certificate_sha256=None)
        with pytest.raises(Conflict, match="no certificate yet"):
            adopt(silent, self.PIN, by="ann", now=at(5))
        assert adopt(silent, None, by="ann", now=at(5)).is_trusted

    def test_a_worker_that_is_being_deleted_is_not_adopted(self) -> None:
        with pytest.raises(ActionRefused):
            adopt(
                with_fields(self.found(), desired_status=DesiredStatus.TERMINATED), None, by="ann", now=at(5)
            )

    def test_a_worker_that_lcm_launched_needs_no_adoption(self) -> None:
        worker = a_worker(status=RUNNING)
        assert worker.is_trusted
        assert adopt(worker, None, by="ann", now=at(5)) is worker

    def test_a_worker_that_nobody_adopted_takes_no_session(self) -> None:
        with pytest.raises(PlacementRefused, match="not adopted"):
            claim(
                self.found(),
                Demand(needs=Capacity(cpu=1)),
                session_id="s-1",
                attempt=1,
                ends_at=None,
                ports=PortRange(first=2000, last=2099),
                now=NOON,
            )

    def test_a_worker_that_nobody_adopted_is_never_paused(self) -> None:
        """LCM does not log in, so it does not know who uses it."""
        worker, evidence = self.found(), Evidence(telemetry_fetched=True)
        assert pause_due_at(worker, IdlePolicy()) is None
        assert pause_guard(worker, IdlePolicy(), evidence, at(600)) is PauseGuard.UNCONFIRMED

    def test_a_worker_is_not_paused_right_after_its_adoption(self) -> None:
        adopted = adopt(self.found(), self.PIN, by="ann", now=at(600))
        snoozed = snoozed_until(adopted, IdlePolicy())
        assert snoozed is not None
        assert snoozed > at(600)

    def test_the_explanation_says_that_an_admin_has_to_adopt_it(self) -> None:
        codes = [point.code for point in explain(self.found(), IdlePolicy(), NOON).holding]
        assert "not_adopted" in codes


class TestTheAllowList:
    HERE = replace(an_instance(), owner_id="111122223333", vpc_id="vpc-7", subnet_id="subnet-7")

    @pytest.mark.parametrize(
        ("text", "is_allowed"),
        [
            ("", False),
            ("owner=111122223333", True),
            ("vpc=vpc-1, vpc=vpc-7", True),
            ("vpc=vpc-1", False),
            ("vpc=vpc-7,subnet=subnet-1", False),
            (f"subnet=subnet-7,ami={an_instance().image_id}", True),
        ],
    )
    def test_one_value_of_each_named_kind_is_needed(self, text: str, is_allowed: bool) -> None:
        assert AllowList.parse(text).allows(self.HERE) is is_allowed

    def test_an_instance_of_which_nothing_is_known_is_on_no_list(self) -> None:
        assert not AllowList.parse("vpc=").allows(an_instance())

    @pytest.mark.parametrize("text", ["tag=cml", "vpc-7"])
    def test_a_list_that_cannot_be_read_is_an_error(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"tag|key=value"):
            AllowList.parse(text)
