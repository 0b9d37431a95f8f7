"""The simulated people of one server: they arrive, open labs, work, and leave, as the seed decides.

They act through the same functions as the REST API, so what they do is seen on `/ws/ui` and kept in
the telemetry. Their clock is driven by the caller, as everywhere here.
"""

import random
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from lcm.simulator.cml.accounts import Accounts
from lcm.simulator.cml.definitions import DEFINITIONS
from lcm.simulator.cml.lab import BOOTED, Lab, Node
from lcm.simulator.cml.labs import Labs
from lcm.simulator.cml.refusal import Refused
from lcm.simulator.cml.telemetry import Telemetry

NAMES: Final = ("ada", "grace", "edsger", "barbara", "donald", "margaret", "dennis", "radia")
LABS_EACH: Final = 2

# Mean seconds, before `speed` divides them.
ARRIVAL_SECONDS: Final = 30.0
THINK_SECONDS: Final = 15.0
BREAK_SECONDS: Final = 240.0


class Blueprint(NamedTuple):
    """A lab that people build."""

    title: str
    definition: str
    nodes: int
    has_switch: bool = False

    @property
    def ram_mib(self) -> int:
        return self.nodes * (DEFINITIONS[self.definition].ram or 0)


BLUEPRINTS: Final = (
    Blueprint("Two hosts", "server", 2),
    Blueprint("Hosts on a switch", "server", 3, has_switch=True),
    Blueprint("Linux basics", "alpine", 2),
    Blueprint("Web and client", "alpine", 3, has_switch=True),
    Blueprint("OSPF triangle", "iol-xe", 3),
    Blueprint("Spanning tree", "ioll2-xe", 4),
    Blueprint("BGP between two", "iosv", 2),
    Blueprint("Campus core", "iosvl2", 4, has_switch=True),
    Blueprint("Leaf and spine", "nxosv9000", 4),
)
SHARE_OF_MEMORY: Final = 0.5
"""Of the host, that one lab may take."""


class Stage(StrEnum):
    """What a person is doing."""

    AWAY = "away"
    AT_THE_LAB = "at the lab"
    """The lab is open, not started yet."""
    WORKING = "working"
    TIDYING = "tidying"
    """The lab is stopped and deleted next."""


@dataclass
class Person:
    """One simulated person."""

    name: str
    rng: random.Random
    next_at: float
    stage: Stage = Stage.AWAY
    acts_left: int = 0
    lab_id: str | None = None


class People:
    """The people of one server."""

    def __init__(
        self,
        *,
        seed: str,
        speed: float,
        memory_gib: int,
        labs: Labs,
        accounts: Accounts,
        telemetry: Telemetry,
    ) -> None:
        self._speed = speed
        self._labs = labs
        self._accounts = accounts
        self._telemetry = telemetry
        most = memory_gib * 1024 * SHARE_OF_MEMORY
        self._blueprints = [b for b in BLUEPRINTS if b.ram_mib <= most] or list(BLUEPRINTS[:1])
        rng = random.Random(seed)
        count = 1 if memory_gib < 4 else 2 if memory_gib < 64 else 4
        self._people = [
            Person(name, random.Random(rng.getrandbits(64)), float("inf"))
            for name in rng.sample(NAMES, count)
        ]

    def begin(self, at: float) -> None:
        """Let every person arrive some time after this moment."""
        for person in self._people:
            person.stage = Stage.AWAY
            self._plan(person, at, ARRIVAL_SECONDS)

    def next_act_at(self) -> float:
        return min(person.next_at for person in self._people)

    def advance(self, now: float) -> None:
        """Apply every action that is due by then, each at its own time, in order."""
        while (person := min(self._people, key=lambda p: p.next_at)).next_at <= now:
            at = person.next_at
            self._labs.advance(at)
            try:
                self._act(person, at)
            except Refused:
                # Another user has changed the lab meanwhile: take a break, come back later.
                person.stage = Stage.AWAY
                self._plan(person, at, BREAK_SECONDS)

    def _act(self, person: Person, at: float) -> None:
        user_id = self._accounts.person(person.name, at).id
        self._telemetry.see(user_id, at)
        match person.stage:
            case Stage.AWAY:
                person.lab_id = self._open_lab(person, user_id, at).id
                person.stage = Stage.AT_THE_LAB
                self._plan(person, at, THINK_SECONDS)
            case Stage.AT_THE_LAB:
                self._labs.start(self._lab(person), at, user_id)
                person.stage, person.acts_left = Stage.WORKING, person.rng.randint(2, 6)
                self._plan(person, at, 2 * THINK_SECONDS)
            case Stage.WORKING if person.acts_left > 0:
                person.acts_left -= 1
                self._work(person, user_id, at)
                self._plan(person, at, THINK_SECONDS)
            case Stage.WORKING:
                self._leave(person, user_id, at)
            case Stage.TIDYING:
                self._tidy(person, user_id, at)

    def _open_lab(self, person: Person, user_id: str, at: float) -> Lab:
        mine = [lab for lab in self._labs.all() if lab.owner_id == user_id]
        if mine and (len(mine) >= LABS_EACH or person.rng.random() < 0.3):
            return person.rng.choice(mine)
        blueprint = person.rng.choice(self._blueprints)
        lab = self._labs.create(at, title=f"{blueprint.title} ({person.name})", owner_id=user_id)
        self._build(lab, blueprint, at)
        return lab

    def _build(self, lab: Lab, blueprint: Blueprint, at: float) -> None:
        """All nodes on one switch, or in a ring."""
        prefix = DEFINITIONS[blueprint.definition].prefix
        nodes = [
            self._labs.add_node(
                lab,
                at,
                label=f"{prefix}{n}",
                definition_id=blueprint.definition,
                x=200 * (n % 3),
                y=200 * (n // 3),
            )
            for n in range(blueprint.nodes)
        ]
        if blueprint.has_switch:
            switch = self._labs.add_node(
                lab, at, label="switch", definition_id="unmanaged_switch", x=200, y=-200
            )
            pairs = [(node, switch) for node in nodes]
        else:
            pairs = list(pairwise(nodes))
            if len(nodes) > 2:
                pairs.append((nodes[-1], nodes[0]))
        for a, b in pairs:
            self._connect(a, b, at)

    def _connect(self, a: Node, b: Node, at: float) -> None:
        self._labs.connect(self._labs.add_interface(a, at), self._labs.add_interface(b, at), at)

    def _work(self, person: Person, user_id: str, at: float) -> None:
        lab = self._lab(person)
        node = person.rng.choice(list(lab.nodes.values()))
        what = person.rng.random()
        if not node.is_running:
            self._labs.start_node(node, at, user_id)
        elif node.state is BOOTED and what < 0.4:
            self._labs.stop_node(node, at, user_id)
        elif what < 0.6:
            self._telemetry.record("packet_capture", at, {"lab_id": lab.id, "user_id": user_id})
        elif what < 0.7:
            self._telemetry.record("export_lab", at, {"lab_id": lab.id, "user_id": user_id})

    def _leave(self, person: Person, user_id: str, at: float) -> None:
        """Two in three stop their lab; the others let it run and are idle."""
        if person.rng.random() < 0.66:
            self._labs.stop(self._lab(person), at, user_id)
            person.stage = Stage.TIDYING
            self._plan(person, at, THINK_SECONDS)
        else:
            person.stage = Stage.AWAY
            self._plan(person, at, BREAK_SECONDS)

    def _tidy(self, person: Person, user_id: str, at: float) -> None:
        """Half of the people delete the lab they have stopped."""
        if person.rng.random() < 0.5:
            lab = self._lab(person)
            self._labs.wipe(lab, at, user_id)
            self._labs.delete(lab)
        person.stage = Stage.AWAY
        self._plan(person, at, BREAK_SECONDS)

    def _lab(self, person: Person) -> Lab:
        return self._labs.get(person.lab_id or "")

    def _plan(self, person: Person, at: float, mean_seconds: float) -> None:
        person.next_at = at + mean_seconds * person.rng.uniform(0.4, 1.6) / self._speed
