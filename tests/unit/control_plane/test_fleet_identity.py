"""A fleet has one id for good, whichever control plane creates it."""

from lcm.control_plane.records.fleet_identity import FleetIdentity
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence
from lcm.core.ids import RandomIds


class LateStore(MemoryStore):
    """Another control plane creates the id between the read and the write of this one."""

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        if not await super().list_all(document.kind):
            await super().insert(Document(document.kind, document.id, 1, b'{"fleet_id":"theirs"}'))
        await super().insert(document, fence)


async def test_the_fleet_id_is_created_once_and_survives_a_restart() -> None:
    store = MemoryStore()
    created = await FleetIdentity(store, RandomIds()).get()
    assert await FleetIdentity(store, RandomIds()).get() == created


async def test_of_two_control_planes_that_create_it_at_once_the_first_counts() -> None:
    identity = FleetIdentity(LateStore(), RandomIds())
    assert (await identity.get(), await identity.get()) == ("theirs", "theirs")
