"""The CML releases that can be simulated, and their differences for a client."""

import re
from typing import Final, NamedTuple, Self

_VERSION: Final = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{1,2})")

BUILDS: Final = {
    "2.6.1": 11,
    "2.7.2": 26,
    "2.8.1": 14,
    "2.9.0": 6,
    "2.9.1": 7,
    "2.10.0": 13,
}


class CmlVersion(NamedTuple):
    """A release, as `GET /system_information` names it without its build."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Refuses what is no version."""
        match = _VERSION.fullmatch(text)
        if match is None:
            raise ValueError(f"not a CML version: {text!r}")
        return cls(*map(int, match.groups()))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def with_build(self) -> str:
        return f"{self}+build.{BUILDS.get(str(self), 1)}"

    @property
    def has_ui_socket(self) -> bool:
        """Whether `/ws/ui` is there: the official client has listened to it since 2.7."""
        return self >= (2, 7, 0)

    @property
    def has_associations(self) -> bool:
        """Rights per lab as associations and `effective_permissions`, `PUT …/bootstrap`."""
        return self >= (2, 9, 0)

    @property
    def is_2_10(self) -> bool:
        """`GET /authentication`, autostart and staging of labs, `GET …/interfaces`, opt-in as text."""
        return self >= (2, 10, 0)
