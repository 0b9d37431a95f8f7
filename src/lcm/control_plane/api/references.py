"""Names in the place of ids: a person who types a path knows a worker or a definition by its name.

An id wins over a name, and a name that nothing has is passed on, so that the route says what is not there.
"""

from typing import Annotated

from fastapi import Depends, Path

from lcm.control_plane.api.dependencies import Plane


async def worker_id_of(
    worker_id: Annotated[str, Path(description="Its id, or the name of a worker that is not terminated.")],
    plane: Plane,
) -> str:
    """Return the id of the worker that the path names."""
    cache = plane.caches.worker_cache
    await cache.load()
    if cache.get(worker_id) is not None:
        return worker_id
    named = cache.id_of(worker_id)
    if named is not None:
        return named
    if await plane.records.workers.find(worker_id) is not None:
        return worker_id
    # The commit of another control plane may not be cached yet.
    for worker in await plane.records.workers.list_live():
        if worker.name == worker_id:
            return worker.id
    return worker_id


async def definition_id_of(
    definition_id: Annotated[
        str, Path(description="Its id, NAME for the newest version of this name, or NAME@VERSION.")
    ],
    plane: Plane,
) -> str:
    """Return the id of the definition that the path names."""
    definitions = plane.records.definitions
    if await definitions.find(definition_id) is not None:
        return definition_id
    name, _, version = definition_id.partition("@")
    if version:
        return (await definitions.named(name, version)).id
    newest = await definitions.newest(name)
    return newest.id if newest is not None else definition_id


WorkerRef = Annotated[str, Depends(worker_id_of)]
DefinitionRef = Annotated[str, Depends(definition_id_of)]
