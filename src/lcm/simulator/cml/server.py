"""One CML server: requests in, answers and events out, no sockets and no clock of its own.

Answers as the simulated release does, byte for byte where clients depend on it. It exists as long as its
instance: a stop and a start boot it again with the same users, labs and license. Its owner calls
`advance` when `due_at` is reached, and again after every request, which may have changed that time.
"""

import random
import re
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec

from lcm.simulator.cml.accounts import Accounts, User
from lcm.simulator.cml.api import access, catalogue, elements, labs, licensing, system
from lcm.simulator.cml.api.routing import Answer, Call, Query, Router
from lcm.simulator.cml.boot import BootPhase, BootSchedule
from lcm.simulator.cml.definitions import DEFINITIONS, NodeDefinition, shipped_images
from lcm.simulator.cml.hardware import Load, hardware_of, system_stats
from lcm.simulator.cml.lab import STARTED, Lab
from lcm.simulator.cml.labs import Labs
from lcm.simulator.cml.licensing import LicensePool, Licensing
from lcm.simulator.cml.load import demand, lab_stats
from lcm.simulator.cml.patty import OpenPort, open_ports
from lcm.simulator.cml.people import People
from lcm.simulator.cml.refusal import Refused, lab_not_found
from lcm.simulator.cml.sessions import Sessions
from lcm.simulator.cml.telemetry import HARDWARE_CATEGORIES, Telemetry
from lcm.simulator.cml.ui import Subscriber, Subscribers
from lcm.simulator.cml.version import CmlVersion
from lcm.simulator.listing import ListedInstance
from lcm.simulator.pace import Delays, Pace

__all__ = ["Answer", "CmlServer", "Credentials", "Query", "ServerOptions", "is_cml_image"]

DEREGISTRATION: Final = "/api/v0/licensing/deregistration"
IMAGE_NAME: Final = re.compile(r"CML-(?P<version>\d+\.\d+\.\d+)-\d+")
AUTH_SECONDS: Final = 10.0
STATS_SECONDS: Final = 3.3
"""How often `/ws/ui` shows the load of the host and of every running lab."""

BAD_GATEWAY: Final = (
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n"
    b"<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
)

_OPEN: Final = (*access.OPEN_ROUTES, *system.OPEN_ROUTES)
_NEEDS_NO_TOKEN: Final = frozenset(handler for _, _, handler in _OPEN)
_ROUTES: Final = Router(
    (
        *_OPEN,
        *access.ROUTES,
        *system.ROUTES,
        *licensing.ROUTES,
        *labs.ROUTES,
        *elements.ROUTES,
        *catalogue.ROUTES,
    )
)


class Credentials(msgspec.Struct, frozen=True):
    """The login of the administrator."""

    username: str
    password: str


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a server that can be changed while it runs."""

    version: str | None = None
    """The release to simulate; null: that of the image."""
    people: bool = True
    """Whether simulated people use it."""
    stats_seconds: float = STATS_SECONDS
    auth_seconds: float = AUTH_SECONDS
    """How long a WebSocket may stay open without sending a token."""
    patty: bool = True
    """Whether the ports that tags of nodes name are opened."""
    node_trouble: float = 0.0
    """The share of starts of nodes that fail, as the seed decides: half never boot, half boot and stop."""
    request_trouble: float = 0.0
    """The share of requests about labs that go wrong, as the seed decides: imports lose their answer or take
    effect late, starts, stops, wipes and deletions are refused, nodes stop slowly."""

    def __post_init__(self) -> None:
        if self.version is not None:
            CmlVersion.parse(self.version)
        if self.stats_seconds <= 0 or self.auth_seconds <= 0:
            raise ValueError("stats_seconds and auth_seconds must be above 0")
        if not 0 <= self.node_trouble <= 1 or not 0 <= self.request_trouble <= 1:
            raise ValueError("node_trouble and request_trouble must be from 0 to 1")


def is_cml_image(image_name: str) -> bool:
    """Whether an instance with this image is a CML server."""
    return IMAGE_NAME.fullmatch(image_name) is not None


class CmlServer:
    """The server on one instance."""

    def __init__(
        self,
        instance: ListedInstance,
        *,
        credentials: Credentials,
        pace: Pace,
        delays: Delays,
        secret: bytes,
        pool: LicensePool,
        server_options: ServerOptions,
        load: Load | None = None,
    ) -> None:
        self._pace = pace
        self._delays = delays
        self.instance = instance
        # The address, not the id, names the instance for the seed: ids differ from run to run.
        name = instance.private_ip
        rng = random.Random(f"{pace.seed}/labs/{name}")
        self.sessions = Sessions(secret)
        self.telemetry = Telemetry()
        self.subscribers = Subscribers()
        self.definitions: dict[str, NodeDefinition] = dict(DEFINITIONS)
        """By id: those that CML ships, and those that users have added."""
        self.images = shipped_images()
        self.labs = Labs(
            pace=pace,
            rng=rng,
            emit=self.subscribers.show,
            record=self.telemetry.record,
            definitions=self.definitions,
        )
        self.accounts = Accounts(
            username=credentials.username,
            password=credentials.password,
            at=instance.running_since or 0.0,
            new_id=self.labs.new_id,
        )
        self.licensing = Licensing(pool=pool, pace=pace, name=name)
        self._hardware = hardware_of(instance)
        self._load = load or Load(f"{pace.seed}/load/{name}")
        self._people = People(
            seed=f"{pace.seed}/people/{name}",
            speed=pace.speed,
            memory_gib=self._hardware.memory_gib,
            labs=self.labs,
            accounts=self.accounts,
            telemetry=self.telemetry,
        )
        self._stats_offset = random.Random(f"{pace.seed}/stats/{name}").random()
        self._next_stats_at = 0.0
        self._are_people_here = False
        self.server_options = server_options
        self._apply_trouble()
        self.counters: Counter[str] = Counter()
        self.web_session_seconds = 86_400
        self.is_in_maintenance = False
        self.has_no_compute = False
        """A fault: none of its compute hosts can start nodes."""
        self.opt_in: bool | None = None

    # Power

    def power_on(self, instance: ListedInstance) -> BootSchedule:
        """Begin a boot; the schedule says when to listen."""
        self.instance = instance
        self._running_since = instance.running_since or 0.0
        self.labs.lose_power(self._running_since)
        self.licensing.lose_power(self._running_since)
        self._boot = BootSchedule.draw(self._pace, self._delays, instance.private_ip, instance.generation)
        self._ready_since = self._running_since + self._boot.ready_at
        self._are_people_here = False
        for category in HARDWARE_CATEGORIES:
            self.telemetry.record(category, self._ready_since, {})
        return self._boot

    # State

    @property
    def version(self) -> CmlVersion:
        if self.server_options.version is not None:
            return CmlVersion.parse(self.server_options.version)
        match = IMAGE_NAME.fullmatch(self.instance.image_name)
        return CmlVersion.parse(match["version"]) if match else CmlVersion(0, 0, 0)

    @property
    def compute_id(self) -> str:
        return self._load.compute_id

    def is_ready(self, now: float) -> bool:
        return self._phase(now) is BootPhase.READY

    def is_serving(self, now: float) -> bool:
        """Whether the application behind nginx answers."""
        return self._phase(now) in {BootPhase.LOADING, BootPhase.READY}

    def system_stats(self, now: float) -> dict[str, Any]:
        return system_stats(
            self._hardware,
            self._load,
            now - self._running_since,
            demand(self.labs.nodes(), now),
            hyperthreading=self.version.is_2_10,
        )

    def stats_event(self, now: float) -> dict[str, Any]:
        """The load of the host, as `/ws/ui` shows it."""
        return {"event_type": "system_stats", "data": self.system_stats(now)}

    def visible_lab(self, user: User, lab_id: str) -> Lab:
        """A lab, if this user may see it; others' labs do not exist for users."""
        lab = self.labs.get(lab_id)
        return lab if user.admin or lab.owner_id == user.id else lab_not_found(lab_id)

    def open_ports(self) -> list[OpenPort]:
        """What PATty opens now."""
        return open_ports(self.labs.nodes()) if self.server_options.patty else []

    # Time

    def due_at(self) -> float | None:
        """When `advance` has something to do; None if nothing will happen by itself."""
        moments = [self.labs.next_change_at()]
        if self.server_options.people:
            moments.append(self._people.next_act_at() if self._are_people_here else self._ready_since)
        if self.subscribers:
            moments.append(self._next_stats_at)
        return min((moment for moment in moments if moment is not None), default=None)

    def advance(self, now: float) -> None:
        """Apply everything that is due: nodes, people, and the statistics on `/ws/ui`."""
        if self.server_options.people:
            self._let_people_act(now)
        else:
            self._are_people_here = False
        self.labs.advance(now)
        if self.subscribers and now >= self._next_stats_at:
            self.show_stats(now)

    def subscribe(self, subscriber: Subscriber, now: float) -> None:
        """Add a subscriber of `/ws/ui`: it gets events, and the load within one interval."""
        if not self.subscribers:
            self._next_stats_at = self._next_on_grid(now)
        self.subscribers.join(subscriber)

    def apply_options(self, server_options: ServerOptions, now: float) -> None:
        """Change the options from now on."""
        self.server_options = server_options
        self._apply_trouble()
        self.labs.tags_revision += 1
        self._next_stats_at = self._next_on_grid(now)

    def _apply_trouble(self) -> None:
        self.labs.faults.trouble = self.server_options.node_trouble
        self.labs.faults.request_trouble = self.server_options.request_trouble

    def _let_people_act(self, now: float) -> None:
        if not self._are_people_here and now >= self._ready_since:
            self._are_people_here = True
            self._people.begin(now)
        if self._are_people_here:
            self._people.advance(now)

    def _next_on_grid(self, now: float) -> float:
        """The next time to send the load. Servers have offsets, so that a fleet does not send at once."""
        every = self.server_options.stats_seconds
        offset = self._stats_offset * every
        return ((now - offset) // every + 1) * every + offset

    def show_stats(self, now: float) -> None:
        """Send the load of the host and of every running lab to the subscribers."""
        self._next_stats_at = self._next_on_grid(now)
        self.subscribers.show(self.stats_event(now))
        for lab in self.labs.all():
            if lab.state is STARTED:
                self.subscribers.show(
                    {"event_type": "lab_stats", "lab_id": lab.id, "data": lab_stats(lab, now)}
                )

    def _phase(self, now: float) -> BootPhase:
        phase = self._boot.phase(now - self._running_since)
        return BootPhase.LOADING if phase is BootPhase.READY and self.has_no_compute else phase

    # Requests

    def answer(self, query: Query, now: float) -> Answer:
        """The answer to a request at that time (Unix seconds)."""
        self.counters["requests"] += 1
        if not self.is_serving(now):
            return Answer(502, BAD_GATEWAY, "text/html")
        self.labs.advance(now)
        try:
            return self._perform(query, now)
        except Refused as refusal:
            return error(refusal.code, refusal.description)
        except Exception:
            traceback.print_exc()  # a bug of the simulator; a client gets what CML would answer
            return error(500, f"The API at {query.path} encountered an unexpected error.")

    def duration(self, query: Query, now: float) -> float:
        """How many seconds pass until the request takes effect and is answered."""
        is_deregistration = (query.method, query.path) == ("DELETE", DEREGISTRATION)
        return self.licensing.deregistration_seconds(now) if is_deregistration else 0.0

    def user_of(self, token: str, now: float) -> User | None:
        user_id = self.sessions.user_of(token, now)
        return None if user_id is None else self.accounts.users.get(user_id)

    def _perform(self, query: Query, now: float) -> Answer:
        handler, names = _ROUTES.find(query.method, query.path)
        is_open = handler in _NEEDS_NO_TOKEN
        call = Call(self, query, now, names) if is_open else self._authorized(query, names, now)
        return _answer(handler, handler(call))

    def _authorized(self, query: Query, names: dict[str, str], now: float) -> Call:
        scheme, _, token = query.authorization.partition(" ")
        if scheme != "Bearer" or not token:
            raise Refused(401, "No authorization token provided.")
        user = self.user_of(token, now)
        if user is None:
            raise Refused(401, "Authorization token is invalid or has expired.")
        self.telemetry.see(user.id, now)
        return Call(self, query, now, names, user, token)


def error(code: int, description: str) -> Answer:
    """An error as CML writes it."""
    return Answer(code, msgspec.json.encode({"code": code, "description": description}))


def _answer(handler: Callable[[Call], Any], result: Any) -> Answer:
    if isinstance(result, Answer):
        return result
    if result is None:
        return Answer(204)
    return Answer(201 if handler in catalogue.CREATED else 200, msgspec.json.encode(result))
