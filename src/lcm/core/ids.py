"""Randomness and identifiers come in through here, so that a seed decides them in a simulation."""

import random
import uuid
from typing import Protocol


def operating_system_chance() -> random.Random:
    """Return unpredictable randomness, for jitter."""
    return random.SystemRandom()


class Ids(Protocol):
    """Makes unique identifiers."""

    def new_id(self) -> str:
        """A fresh UUID4 in its usual lower-case form."""
        ...


class RandomIds:
    """UUIDs drawn from a source of randomness; the operating system's by default."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.SystemRandom()

    def new_id(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
