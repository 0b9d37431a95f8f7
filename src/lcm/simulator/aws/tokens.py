"""EC2's memory of client tokens: what makes a repeated launch harmless."""

from typing import Any, NamedTuple

from lcm.simulator.aws.errors import Ec2Error
from lcm.simulator.aws.instances import SimulatedInstances


class _Launch(NamedTuple):
    parameters: Any
    instance_ids: list[str]
    reservation: Any


class LaunchTokens:
    """Remembers every launch that named a token, for as long as the simulator runs."""

    def __init__(self, instances: SimulatedInstances) -> None:
        self._instances = instances
        self._launches: dict[tuple[str, str], _Launch] = {}

    def recall(self, region: str, token: str, parameters: Any) -> Any | None:
        """The reservation this token made before, or None if it is new.

        Refuses a token that comes with other parameters, or whose instance is gone.
        """
        launch = self._launches.get((region, token))
        if launch is None:
            return None
        if launch.parameters != parameters:
            raise Ec2Error(
                "IdempotentParameterMismatch",
                "Arguments on this idempotent request are inconsistent with those of a previous request.",
            )
        if all(map(self._instances.is_gone, launch.instance_ids)):
            raise Ec2Error(
                "IdempotentInstanceTerminated",
                "The instance launched with this client token has been terminated.",
            )
        return launch.reservation

    def remember(
        self, region: str, token: str, parameters: Any, instance_ids: list[str], reservation: Any
    ) -> None:
        """Record a launch that succeeded. Not a failed one: it may be retried with the same token."""
        self._launches[region, token] = _Launch(parameters, instance_ids, reservation)
