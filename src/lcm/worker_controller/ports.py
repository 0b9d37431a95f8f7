"""What the worker controller needs from the outside, in its own words.

The consumer owns these; adapters translate and decide nothing. Every call is bounded in time by its
adapter, and raises only errors of `lcm.domain.errors`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from lcm.domain.discovery import DiscoverySettings, FoundInstance
from lcm.domain.launch import InstanceId, LaunchSpec, MachineImage, WorkerId
from lcm.domain.lifecycle import WorkerStatus
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import Instance, Worker
from lcm.rest.fleet import BulkImportResult, Cleanup, CleanupResult


class ControlPlane(Protocol):
    """The records. Writes are compare-and-set on the version that was read, under our epoch:

    Conflict means read again, Fenced means stop acting, Unreachable means it may have happened.
    """

    async def list_resources(self, *, include_terminated: bool = False) -> Sequence[Worker]: ...

    async def fetch_single_resource(self, worker_id: str) -> Worker | None: ...

    async def get_worker_template(self, name: str) -> WorkerTemplate | None: ...

    async def claim_leadership(self, cluster_id: str, revision: int, instance_id: str) -> int: ...

    async def update_status(
        self,
        worker: Worker,
        status: WorkerStatus,
        reason: str,
        *,
        observed: bool = False,
        instance: Instance | None = None,
    ) -> Worker: ...

    async def promise_launch(self, worker: Worker, spec: LaunchSpec) -> Worker: ...

    async def void_launch(self, worker: Worker, reason: str, *, refused: bool = False) -> Worker: ...

    async def report_instance(self, worker: Worker, instance: Instance) -> Worker: ...

    async def report_cml(
        self, worker: Worker, *, ready: bool, version: str | None, certificate_sha256: str | None
    ) -> Worker: ...

    async def get_discovery_settings(self) -> DiscoverySettings: ...

    async def bulk_import(self, found: Sequence[FoundInstance]) -> BulkImportResult: ...

    async def clean_up(self, cleanup: Cleanup) -> CleanupResult: ...


class CloudProvider(Protocol):
    """EC2, as far as workers need it."""

    async def list_instances(self, region: str, tags: Mapping[str, str] | None = None) -> Sequence[Instance]:
        """Every instance of the region with all these tags, by default our discovery tag.

        Complete or not at all.
        """
        ...

    async def describe_instance(self, region: str, instance_id: InstanceId) -> Instance | None:
        """None once EC2 does not know the id: being gone is an answer, not an error."""
        ...

    async def describe_instances(self, region: str, instance_ids: Sequence[InstanceId]) -> Sequence[Instance]:
        """Those of them that EC2 knows; one it does not know never hides the others."""
        ...

    async def find_instances(self, region: str, worker_id: WorkerId) -> Sequence[Instance]:
        """Every instance that carries this worker's tag, terminated ones included while EC2 shows them."""
        ...

    async def launch_instance(self, spec: LaunchSpec, client_token: str) -> Instance:
        """Start one instance. The same token again gives the same instance, never a second.

        Raises LaunchVoid if the token's instance is gone for good, LaunchRefused if nothing was
        launched and nothing will be, TokenMismatch if the token was used with other parameters.
        """
        ...

    async def start_instance(self, region: str, instance_id: InstanceId) -> None:
        """Ask for a start. Starting a running instance succeeds."""
        ...

    async def stop_instance(self, region: str, instance_id: InstanceId) -> None:
        """Ask for a stop. Stopping a stopped instance succeeds."""
        ...

    async def terminate_instance(self, region: str, instance_id: InstanceId) -> None:
        """Ask for termination. Terminating a terminated or unknown instance succeeds."""
        ...

    async def resolve_ami(self, region: str, name_pattern: str) -> MachineImage:
        """The newest image of that name. Raises ImageNotFound."""
        ...

    async def list_images(self, region: str, image_ids: Sequence[str]) -> Sequence[MachineImage]:
        """Those of the images that still exist and may be looked at."""
        ...


class CmlSystemInformation(NamedTuple):
    """What a CML server says about itself without a login."""

    version: str
    ready: bool
    certificate_sha256: str


class CmlSystem(Protocol):
    """CML's system API. Never its labs."""

    async def get_system_information(self, host: str, pinned_sha256: str | None) -> CmlSystemInformation:
        """Raises Unreachable while it boots, CertificateChanged if it shows another certificate."""
        ...
