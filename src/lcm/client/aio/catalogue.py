"""Templates, labs and access tokens."""

from lcm.client.aio.link import AsyncLink
from lcm.client.calls import PAGE, Call, route
from lcm.domain.lablet.listed_lab import LabAction, LabKind
from lcm.domain.template import WorkerTemplate
from lcm.rest.access import TokenCreated, TokenList, TokenView
from lcm.rest.labs import LabAdoptionRequest, LabPage, LabRemoval, LabView
from lcm.rest.schemas import TemplateList


class AsyncTemplates:
    """Worker templates, named by their name."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def list_all(self, *, enabled_only: bool = False) -> list[WorkerTemplate]:
        """Return the templates, cheapest first."""
        query = {"enabled_only": enabled_only or None}
        call = Call(path="/api/worker-templates", query=query, answer=TemplateList)
        return (await self._link.send(call)).items

    async def get(self, name: str) -> WorkerTemplate:
        return await self._link.send(
            Call(path=route("/api/worker-templates/{}", name), answer=WorkerTemplate)
        )

    async def enable(self, name: str) -> WorkerTemplate:
        return await self._switch(name, "enable")

    async def disable(self, name: str) -> WorkerTemplate:
        return await self._switch(name, "disable")

    async def delete(self, name: str) -> None:
        path = route("/api/worker-templates/{}", name)
        return await self._link.send(Call(method="DELETE", path=path, answer=type(None)))

    async def _switch(self, name: str, action: str) -> WorkerTemplate:
        path = route("/api/worker-templates/{}/", name) + action
        return await self._link.send(Call(method="POST", path=path, is_keyed=True, answer=WorkerTemplate))


class AsyncLabs:
    """The labs on all workers."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def list_all(self, *, worker_id: str | None = None, kind: LabKind | None = None) -> list[LabView]:
        found: list[LabView] = []
        after: str | None = None
        while True:
            query = {"worker_id": worker_id, "kind": kind, "limit": PAGE, "after": after}
            page = await self._link.send(Call(path="/api/labs", query=query, answer=LabPage))
            found += page.items
            after = page.next
            if after is None:
                return found

    async def request(
        self, worker_id: str, lab_id: str, action: LabAction, *, title: str | None = None
    ) -> LabView:
        """Start, stop, remove, adopt or disown a lab; the removal of one that people keep needs its title."""
        path = route("/api/workers/{}/labs/{}/{}", worker_id, lab_id, action)
        body = LabRemoval(title=title) if action is LabAction.REMOVE else None
        return await self._link.send(Call(method="POST", path=path, body=body, answer=LabView))

    async def adopt(
        self, worker_id: str, lab_id: str, *, definition: str | None = None, version: str | None = None
    ) -> LabView:
        """Keep a lab of no session, as a lab of a definition if one is named."""
        path = route("/api/workers/{}/labs/{}/adopt", worker_id, lab_id)
        body = LabAdoptionRequest(definition=definition, version=version)
        return await self._link.send(Call(method="POST", path=path, body=body, answer=LabView))


class AsyncTokens:
    """Access tokens, for admins."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def list_all(self) -> list[TokenView]:
        return (await self._link.send(Call(path="/api/tokens", answer=TokenList))).items

    async def create(self, name: str, role: str, *, expires_in_seconds: int | None = None) -> TokenCreated:
        """Never sent twice: the token of a lost answer is not kept by LCM either."""
        body = {"name": name, "role": role, "expires_in_seconds": expires_in_seconds}
        return await self._link.send(Call(method="POST", path="/api/tokens", body=body, answer=TokenCreated))

    async def revoke(self, token_id: str) -> None:
        path = route("/api/tokens/{}", token_id)
        return await self._link.send(Call(method="DELETE", path=path, answer=type(None)))
