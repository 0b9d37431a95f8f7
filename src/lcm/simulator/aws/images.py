"""The AMIs of every simulated region: those for workers, and those that a lookup must not take."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

ACCOUNT: Final = "123456789012"
SHARED_BY: Final = "210987654321"
"""Another account, whose images may be launched when its owner is named."""
ROOT_DEVICE: Final = "/dev/sda1"
IMAGE_DISK_GB: Final = 16
"""Of the root volume of every image: what an instance has that is launched without a size."""


class SimulatedImage(NamedTuple):
    """An AMI. A launch from one that is not available is refused."""

    name: str
    description: str
    created_at: datetime
    owner: str = ACCOUNT
    state: str = "available"
    architecture: str = "x86_64"

    @property
    def is_for_workers(self) -> bool:
        return self.name.startswith("CML-") and self == self._replace(
            owner=ACCOUNT, state="available", architecture="x86_64"
        )


IMAGES: Final = (
    SimulatedImage("CML-2.8.1-20250310", "Cisco Modeling Labs 2.8.1", datetime(2025, 3, 10, tzinfo=UTC)),
    SimulatedImage("CML-2.9.0-20251102", "Cisco Modeling Labs 2.9.0", datetime(2025, 11, 2, tzinfo=UTC)),
    SimulatedImage("CML-2.9.1-20260415", "Cisco Modeling Labs 2.9.1", datetime(2026, 4, 15, tzinfo=UTC)),
    # Newer than all of the above, and each of them wrong for a worker in its own way.
    SimulatedImage("build-agent-20260501", "Not a CML server", datetime(2026, 5, 1, tzinfo=UTC)),
    SimulatedImage(
        "CML-2.9.1-shared-20260510",
        "Cisco Modeling Labs 2.9.1",
        datetime(2026, 5, 10, tzinfo=UTC),
        owner=SHARED_BY,
    ),
    SimulatedImage(
        "CML-2.9.1-arm64-20260520",
        "Not for the processor of a worker",
        datetime(2026, 5, 20, tzinfo=UTC),
        architecture="arm64",
    ),
    SimulatedImage(
        "CML-2.10.0-20260601", "Still being made", datetime(2026, 6, 1, tzinfo=UTC), state="pending"
    ),
)


def newest_for_workers(images: Iterable[SimulatedImage] = IMAGES) -> SimulatedImage:
    """The image that a right lookup finds."""
    return max((image for image in images if image.is_for_workers), key=lambda image: image.created_at)
