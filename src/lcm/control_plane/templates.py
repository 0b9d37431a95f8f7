"""The worker templates, seeded from YAML and kept with the records."""

from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from lcm.control_plane.store.port import Document, Store
from lcm.domain.errors import NotFound
from lcm.domain.template import WorkerTemplate

log = structlog.get_logger(__name__)

KIND = "worker-template"

_decoder = msgspec.json.Decoder(WorkerTemplate)


class Templates:
    """Templates by name."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, name: str) -> WorkerTemplate | None:
        document = await self._store.get(KIND, name)
        return _decoder.decode(document.body) if document else None

    async def get(self, name: str) -> WorkerTemplate:
        template = await self.find(name)
        if template is None:
            raise NotFound(f"there is no template {name!r}; list them with GET /api/worker-templates")
        return template

    async def list_all(self) -> list[WorkerTemplate]:
        """Cheapest first."""
        templates = [_decoder.decode(document.body) for document in await self._store.list_all(KIND)]
        return sorted(templates, key=lambda template: (template.usd_per_hour, template.name))

    async def upsert(self, template: WorkerTemplate) -> None:
        body = msgspec.json.encode(template)
        current = await self._store.get(KIND, template.name)
        if current is None:
            await self._store.insert(Document(KIND, template.name, 1, body))
        elif current.body != body:
            await self._store.replace(Document(KIND, template.name, current.version + 1, body))

    async def seed(self, config: Mapping[str, Any]) -> int:
        """Upsert every template of a parsed YAML file by name; a bad one is reported and left out."""
        seeded = 0
        for position, entry in enumerate(config.get("worker_templates") or [], start=1):
            try:
                template = msgspec.convert(entry, WorkerTemplate)
            except msgspec.ValidationError as error:
                name = entry.get("name") if isinstance(entry, dict) else None
                log.error("template left out", position=position, template=name, error=str(error))
                continue
            await self.upsert(template)
            seeded += 1
        return seeded
