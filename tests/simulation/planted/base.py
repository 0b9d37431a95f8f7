"""Planted bugs: small changes to the real code that can be switched on."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from simulation.scenarios.lifecycle import wander

Plant = Callable[[], Iterator[None]]


@dataclass(frozen=True)
class Planted:
    """A bug, and the random story that must show it."""

    story: str
    switched_on: Callable[[], AbstractContextManager[None]]


PLANTED: dict[str, Planted] = {}


def planted(plant: Plant) -> Plant:
    return planted_in(wander)(plant)


def planted_in(story: Callable[..., Any]) -> Callable[[Plant], Plant]:
    """Plant a bug that another story than the common one shows."""

    def add(plant: Plant) -> Plant:
        PLANTED[plant.__name__] = Planted(story.__name__, contextmanager(plant))
        return plant

    return add


def swapped(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Replace an attribute for the time of a run."""
    original = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)


swapped_in = contextmanager(swapped)
