"""What is imported, what never is, and the record of an imported instance."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lcm.domain.discovery import (
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
from lcm.domain.errors import Conflict
from lcm.domain.launch import Ami, InstanceId, WorkerId
from lcm.domain.lifecycle import PENDING, RUNNING, STOPPED, TERMINATED, DesiredStatus, WorkerStatus
from lcm.domain.template import WorkerTemplate
from lcm.domain.transitions import with_launch_intent
from lcm.domain.worker import Instance, Worker
from support.core import NOON, SPEC, a_worker, an_instance, with_fields

LCM = {"lcm:managed_by": "lablet-cloud-manager", "cml-environment": "production"}
NOBODY = KnownWorkers(frozenset(), frozenset())


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
