"""An intruder sends requests without the right to."""

from random import Random
from typing import Final

from simulation.story import Story
from simulation.world.processes import KEYS
from simulation.world.world import World

WRONG_TOKENS: Final = (
    "lcm_3fJq8sVx0LwZ7dTbN5yR",
    "canary+with/base64=signs",
    'canary "quoted" \\ and % escaped',
    "canary-of-a-token-that-ended",
)

_TRIES: Final = (
    ("PUT", "/api/workers/{id}/hold", {"until": "2099-01-01T00:00:00Z"}),
    ("DELETE", "/api/workers/{id}/hold", None),
    ("POST", "/api/workers/{id}/idle-detection/disable", None),
    ("POST", "/api/workers/{id}/stop", None),
    ("DELETE", "/api/workers/{id}", None),
    ("GET", "/api/workers/{id}/idle-status", None),
    ("POST", "/api/internal/workers/{id}/detect-idle", {"raw_telemetry_events": [], "force_check": True}),
    ("POST", "/api/internal/workers/{id}/sessions", {"session_id": "mine"}),
    ("POST", "/api/internal/workers/{id}/drain", None),
)


class Stranger(Story):
    """Sends no token, a wrong one, or one whose role is too weak."""

    def __init__(self, world: World, rng: Random) -> None:
        super().__init__(world)
        self._rng = rng

    async def intrude(self, worker_id: str) -> None:
        method, path, body = self._rng.choice(_TRIES)
        await self._ask(method, path.replace("{id}", worker_id), body, credentials=self._credentials(path))

    async def try_everything(self, worker_id: str) -> None:
        """Try every request with a token of the right form."""
        credentials = {"Authorization": f"Bearer {WRONG_TOKENS[0]}"}
        for method, path, body in _TRIES:
            await self._ask(method, path.replace("{id}", worker_id), body, credentials=credentials)

    def _credentials(self, path: str) -> dict[str, str]:
        is_internal = path.startswith("/api/internal/")
        too_weak = self._rng.choice((KEYS.viewer, KEYS.operator, KEYS.admin)) if is_internal else KEYS.viewer
        token = self._rng.choice((self._rng.choice(WRONG_TOKENS), too_weak))
        as_bearer = {"Authorization": f"Bearer {token}"}
        return self._rng.choice((as_bearer, as_bearer, {}, {"Authorization": token}, {"X-API-Key": token}))
