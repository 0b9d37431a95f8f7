"""How many workers a group of sessions needs, and of which template."""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import NamedTuple

from lcm.domain.capacity import Capacity
from lcm.domain.lablet.claim import allocatable
from lcm.domain.lablet.definition import NODE_LIMIT, Demand
from lcm.domain.lablet.filters import TOLERANCE, Vector, fits, vector
from lcm.domain.lablet.ports import HIGHEST_PORT
from lcm.domain.lablet.snapshot import PlacementTemplate

Bins = list[list[int]]


class Item(NamedTuple):
    """What one session takes of a worker."""

    needs: Vector
    ports: int = 0
    fixed: frozenset[int] = frozenset()


class TemplateChoice(NamedTuple):
    """A template for one worker; a warning if the needs exceed it."""

    name: str
    warning: str = ""


class Purchase(NamedTuple):
    """Workers of one template, and which items of the group each is for."""

    template: str
    bins: tuple[tuple[int, ...], ...]
    usd_per_hour: float


def item_of(demand: Demand) -> Item:
    """What a session with this demand takes."""
    fixed = frozenset(spec.fixed for spec in demand.ports if spec.fixed is not None)
    return Item(vector(demand.needs), len(demand.ports), fixed)


def room_of(template: PlacementTemplate, headroom_percent: float = 0.0) -> Vector:
    """What sessions may take of a new worker."""
    cpu, memory, storage, nodes = vector(allocatable(template.declared, template.reserve))
    share = 1 / (1 + headroom_percent / 100)
    limit = NODE_LIMIT.get(template.license) if template.license else None
    most = nodes * share if limit is None else min(nodes * share, limit)
    return (cpu * share, memory * share, storage * share, most)


def choose_template(
    templates: Sequence[PlacementTemplate], needs: Capacity, headroom_percent: float = 0.0
) -> TemplateChoice:
    """The cheapest enabled template that fits, else the largest by CPU, else a name by CPU alone."""
    enabled = sorted((t for t in templates if t.is_enabled), key=lambda t: (t.usd_per_hour, t.name))
    for template in enabled:
        if fits(vector(needs), room_of(template, headroom_percent)):
            return TemplateChoice(template.name)
    if enabled:
        largest = max(enabled, key=lambda t: (t.declared.cpu, t.declared.memory_gb))
        return TemplateChoice(largest.name, f"no enabled template fits; {largest.name} is the largest")
    names = ((32, "metal"), (16, "large"), (4, "medium"))
    name = next((name for cpu, name in names if needs.cpu >= cpu), "small")
    return TemplateChoice(name, "no template is enabled; chosen by CPU alone")


def pack(
    items: Sequence[Item], room: Vector, *, ports: int = HIGHEST_PORT, at_most: int | None = None
) -> Bins | None:
    """Bins of items, as few as found: never more than first-fit needs, decreasing or in the given order.

    None if that is more than `at_most`. Every item must fit.
    """
    shares = [
        [need / size if size else 0.0 for need, size in zip(item.needs, room, strict=True)] for item in items
    ]
    totals = [sum(share[kind] for share in shares) for kind in range(len(room))]
    least = max((ceil(total - TOLERANCE) for total in totals), default=0)
    if at_most is not None and least > at_most:
        return None
    best: Bins | None = None
    for order in _orders(shares, totals):
        limit = len(best) - 1 if best is not None else at_most
        found = _first_fit(items, order, room, ports, limit)
        best = best if found is None else found
        if best is not None and len(best) <= least:
            break
    return best


def _orders(shares: Sequence[Sequence[float]], totals: Sequence[float]) -> Iterable[Sequence[int]]:
    every = range(len(shares))
    yield sorted(every, key=lambda i: (-max(shares[i]), i))
    yield sorted(every, key=lambda i: (-sum(shares[i]), i))
    yield sorted(every, key=lambda i: (-sum(map(float.__mul__, shares[i], totals)), i))
    yield every


def _first_fit(
    items: Sequence[Item], order: Sequence[int], room: Vector, ports: int, at_most: int | None
) -> Bins | None:
    bins: Bins = []
    rooms: list[Vector] = []
    ports_left: list[int] = []
    fixed: list[frozenset[int]] = []
    for index in order:
        item = items[index]
        places = (number for number, left in enumerate(rooms) if fits(item.needs, left))
        if item.ports:
            places = (
                number
                for number in places
                if item.ports <= ports_left[number] and fixed[number].isdisjoint(item.fixed)
            )
        place = next(places, None)
        if place is None:
            place = len(bins)
            if place == at_most:
                return None
            bins.append([])
            rooms.append(room)
            ports_left.append(ports)
            fixed.append(frozenset())
        bins[place].append(index)
        rooms[place] = subtract(rooms[place], item.needs)
        ports_left[place] -= item.ports
        fixed[place] |= item.fixed
    return bins


def add(one: Vector, other: Vector) -> Vector:
    """The sum of two amounts."""
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3])


def subtract(room: Vector, needs: Vector) -> Vector:
    """What is left of the room."""
    return (room[0] - needs[0], room[1] - needs[1], room[2] - needs[2], room[3] - needs[3])


def buy(
    items: Sequence[Item],
    templates: Iterable[PlacementTemplate],
    headroom_percent: float = 0.0,
    *,
    ports: int = HIGHEST_PORT,
    at_most: int | None = None,
) -> Purchase | None:
    """The cheapest workers of one template for all items; None if no template takes every one.

    `ports` is how many ports a worker grants, `at_most` how many workers may be bought.
    """
    offers = []
    for template in templates:
        room = room_of(template, headroom_percent)
        if not template.is_enabled or not all(fits(item.needs, room) for item in items):
            continue
        bins = pack(items, room, ports=ports, at_most=at_most)
        if bins is not None:
            price = round(len(bins) * template.usd_per_hour, 6)
            offers.append((price, len(bins), template.name, bins))
    if not offers:
        return None
    price, _, name, bins = min(offers, key=lambda offer: offer[:3])
    return Purchase(name, tuple(map(tuple, bins)), price)
