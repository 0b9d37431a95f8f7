"""A hosted service is something that runs for the life of its process.

`run()` is the whole life: entering it starts the service, cancelling it stops the service, and
leaving it by itself is a fault. `run_services` starts them in order and stops them in reverse.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

import structlog

from lcm.core.backoff import Backoff
from lcm.core.clock import Clock

log = structlog.get_logger(__name__)


class HostedService(ABC):
    """Something that works until it is cancelled."""

    name = "service"

    @abstractmethod
    async def run(self) -> None:
        """Work until cancelled; on cancellation leave everything tidy and pass it on."""


class ServiceEnded(RuntimeError):
    """A service that should run for ever returned."""


async def run_services(*services: HostedService) -> None:
    """Run all of them until cancelled; if one dies the others are stopped and the fault is raised."""

    async def run_one(service: HostedService) -> None:
        await service.run()
        raise ServiceEnded(service.name)

    if not services:
        return
    # Nested, so that each one is only cancelled after all that were started later have stopped.
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run_one(services[0]), name=services[0].name)
        await run_services(*services[1:])


def contains(error: BaseException, kinds: tuple[type[Exception], ...]) -> bool:
    """Whether it is one of these, or a group with one of these inside."""
    if isinstance(error, BaseExceptionGroup):
        return any(contains(inner, kinds) for inner in error.exceptions)
    return isinstance(error, kinds)


async def supervise(
    work: Callable[[], Awaitable[None]],
    *,
    name: str,
    clock: Clock,
    backoff: Backoff | None = None,
    fatal: tuple[type[Exception], ...] = (),
) -> None:
    """Run `work` for ever: when it fails or ends, say so and start it again after a backoff.

    Errors in `fatal` are not ours to repair and pass through. Ten quiet minutes forgive past failures.
    """
    backoff = backoff or Backoff()
    failures = 0
    while True:
        started = clock.monotonic()
        try:
            await work()
            log.error("a loop ended by itself", loop=name)
        except Exception as error:
            if contains(error, fatal):
                raise
            log.exception("a loop failed", loop=name)
        if clock.monotonic() - started > 600:
            failures = 0
        await clock.sleep(backoff.delay_seconds(failures))
        failures += 1
