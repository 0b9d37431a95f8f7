"""etcd behind the coordination port.

From aetcd come the generated messages and stubs. Its client is not used: it knows one endpoint and no TLS,
never renews its token, buffers events without bound, and stays silent when the server cancels a watch.

- One channel per member. A call goes to the member that answered last; one that fails moves the next call
  on to the next member. Calls that may be repeated are, once per member, within the same time.
- Each watch is a stream of its own, so a slow reader is held back by HTTP/2's flow control and nothing
  piles up here. A stream that answers neither pings nor requests for progress is broken off.
- etcd derives its cluster id from its flags: a wiped one comes back with the same. The identity of a history
  is therefore kept in a key, which is lost with the rest.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

import grpc
from aetcd import rpc
from grpc import StatusCode

from lcm.core.clock import Clock
from lcm.core.ids import Ids
from lcm.core.kv.etcd_options import EtcdOptions, Tls
from lcm.core.kv.port import (
    Change,
    ChangeKind,
    Compacted,
    Item,
    KvUnavailable,
    LeaseExpired,
    LeaseId,
    Listing,
)
from lcm.core.timeouts import timeout

_CHANNEL_OPTIONS: Final = {
    # The first two alone do not notice a server that hangs: without the others no ping is sent on a
    # stream that carries no data. Below 5 seconds etcd itself hangs up ("too many pings").
    "grpc.keepalive_time_ms": 6000,
    "grpc.keepalive_timeout_ms": 2000,
    "grpc.http2.ping_timeout_ms": 2000,
    "grpc.http2.max_pings_without_data": 0,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.initial_reconnect_backoff_ms": 50,
    # Not the time between two attempts, but what a server has to greet in: a busy one needs more than 50 ms.
    "grpc.min_reconnect_backoff_ms": 1000,
    "grpc.max_reconnect_backoff_ms": 500,
    # Two clients of one process that name the same member must not share a connection's fate.
    "grpc.use_local_subchannel_pool": 1,
}

_OF_THE_MEMBER: Final = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED)
"""Another member may answer where this one does not."""

_LISTING_RESTARTS: Final = 3


class _Member:
    """The calls to one endpoint, each `(message, timeout=…, metadata=…)`."""

    def __init__(self, endpoint: str, tls: Tls | None) -> None:
        self.endpoint = endpoint
        options = list(_CHANNEL_OPTIONS.items())
        if tls is None:
            self.channel = grpc.aio.insecure_channel(endpoint, options)
        else:
            credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate)
            self.channel = grpc.aio.secure_channel(endpoint, credentials, options)
        kv, lease = rpc.KVStub(self.channel), rpc.LeaseStub(self.channel)
        self.range, self.put, self.delete, self.txn = kv.Range, kv.Put, kv.DeleteRange, kv.Txn
        self.grant, self.revoke, self._keep_alive = lease.LeaseGrant, lease.LeaseRevoke, lease.LeaseKeepAlive
        self.watch = rpc.WatchStub(self.channel).Watch
        self.authenticate = rpc.AuthStub(self.channel).Authenticate

    async def keep_alive(self, message: Any, *, timeout: float, metadata: Any) -> Any:
        call = self._keep_alive([message], timeout=timeout, metadata=metadata)
        try:
            return await call.read()
        finally:
            call.cancel()


class EtcdKv:
    """Use as `async with EtcdKv(options, clock, ids) as kv`."""

    def __init__(self, options: EtcdOptions, clock: Clock, ids: Ids) -> None:
        self._options = options
        self._clock = clock
        self._ids = ids
        self._members: list[_Member] = []
        self._current = 0
        self._token: str | None = None
        self._authenticating = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._members = [_Member(endpoint, self._options.tls) for endpoint in self._options.endpoints]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._members:
            await member.channel.close()

    async def cluster_id(self) -> str:
        key = self._options.identity_key.encode()
        reply = await self._ask(
            lambda member: member.txn,
            rpc.TxnRequest(
                compare=[_is_absent(key)],
                success=[_put(key, self._ids.new_id().encode(), 0)],
                failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=key))],
            ),
            is_repeatable=True,
        )
        if reply.succeeded:
            return await self.cluster_id()
        history = reply.responses[0].response_range.kvs[0].value.decode()
        return f"{reply.header.cluster_id:x}/{history}"

    async def get(self, key: str) -> Item | None:
        reply = await self._ask(
            lambda member: member.range, rpc.RangeRequest(key=key.encode()), is_repeatable=True
        )
        return _item(reply.kvs[0]) if reply.kvs else None

    async def list_prefix(self, prefix: str) -> Listing:
        for _ in range(_LISTING_RESTARTS):
            try:
                return await self._list_at_one_revision(*_range_of(prefix))
            except Compacted:
                continue  # between two pages: begin again at a revision that is still kept
        raise KvUnavailable("etcd forgets revisions faster than they can be listed")

    async def put(self, key: str, value: bytes, lease: LeaseId | None = None) -> int:
        message = rpc.PutRequest(key=key.encode(), value=value, lease=lease or 0)
        reply = await self._ask(lambda member: member.put, message)
        return int(reply.header.revision)

    async def put_if_absent(self, key: str, value: bytes, lease: LeaseId | None = None) -> int | None:
        message = rpc.TxnRequest(
            compare=[_is_absent(key.encode())], success=[_put(key.encode(), value, lease or 0)]
        )
        reply = await self._ask(lambda member: member.txn, message)
        return int(reply.header.revision) if reply.succeeded else None

    async def delete(self, key: str) -> bool:
        reply = await self._ask(lambda member: member.delete, rpc.DeleteRangeRequest(key=key.encode()))
        return bool(reply.deleted)

    async def grant_lease(self, ttl_seconds: int) -> LeaseId:
        message = rpc.LeaseGrantRequest(TTL=ttl_seconds)  # a lease whose grant got lost just expires
        reply = await self._ask(lambda member: member.grant, message, is_repeatable=True)
        return LeaseId(reply.ID)

    async def keep_alive(self, lease: LeaseId) -> int:
        message = rpc.LeaseKeepAliveRequest(ID=lease)
        reply = await self._ask(lambda member: member.keep_alive, message, is_repeatable=True)
        if reply is grpc.aio.EOF:
            raise KvUnavailable("etcd ended the renewal of a lease without an answer")
        return int(reply.TTL)

    async def revoke_lease(self, lease: LeaseId) -> None:
        try:
            message = rpc.LeaseRevokeRequest(ID=lease)
            await self._ask(lambda member: member.revoke, message, is_repeatable=True)
        except LeaseExpired:
            return

    async def watch_prefix(self, prefix: str, start_revision: int) -> AsyncGenerator[Change, None]:
        key, range_end = _range_of(prefix)
        create = rpc.WatchCreateRequest(
            key=key, range_end=range_end, start_revision=start_revision, fragment=True
        )
        member = self._members[self._current]
        try:
            stream = member.watch(self._requests(create), metadata=await self._metadata(member))
        except grpc.aio.AioRpcError as error:
            raise self._translated(error, member) from None
        try:
            await self._heard(stream, member, within_seconds=self._options.call_timeout_seconds)
            events: list[Any] = []
            while True:
                response = await self._heard(stream, member, within_seconds=self._options.silence_seconds)
                events += response.events
                if not response.fragment:  # changes of one revision are delivered together
                    for event in events:
                        yield _change(event)
                    events = []
        finally:
            stream.cancel()

    async def _requests(self, create: Any) -> AsyncIterator[Any]:
        """Open the watch, then ask now and then how far it is: a living server answers."""
        yield rpc.WatchRequest(create_request=create)
        while True:
            await self._clock.sleep(self._options.silence_seconds / 3)
            yield rpc.WatchRequest(progress_request=rpc.WatchProgressRequest())

    async def _heard(self, stream: Any, member: _Member, *, within_seconds: float) -> Any:
        """The next thing a watch says. Raises if it is the end of the watch, or silence."""
        try:
            async with timeout(within_seconds):
                response = await stream.read()
        except TimeoutError:
            self._move_on_from(member)
            raise KvUnavailable(
                f"etcd at {member.endpoint}: a watch was silent for {within_seconds:g} s"
            ) from None
        except grpc.aio.AioRpcError as error:
            raise self._translated(error, member) from None
        if response is grpc.aio.EOF:
            raise KvUnavailable(f"etcd at {member.endpoint}: the watch ended")
        if response.compact_revision:
            raise Compacted(response.compact_revision)
        if response.canceled:
            self._token = None  # an expired token is refused in this way, too
            raise KvUnavailable(f"etcd at {member.endpoint} cancelled a watch: {response.cancel_reason}")
        return response

    async def _list_at_one_revision(self, key: bytes, range_end: bytes) -> Listing:
        items: list[Item] = []
        revision, page_size = 0, self._options.page_size
        while True:
            message = rpc.RangeRequest(key=key, range_end=range_end, limit=page_size, revision=revision)
            try:
                reply = await self._ask(lambda member: member.range, message, is_repeatable=True)
            except _AnswerTooLarge:
                page_size = max(1, page_size // 2)
                continue
            items += map(_item, reply.kvs)
            revision = revision or int(reply.header.revision)
            if not reply.more:
                return Listing(items, revision)
            key = reply.kvs[-1].key + b"\0"

    async def _ask(
        self,
        method: Callable[[_Member], Callable[..., Awaitable[Any]]],
        message: Any,
        *,
        is_repeatable: bool = False,
    ) -> Any:
        tries = len(self._members) if is_repeatable else 1
        timeout = self._options.call_timeout_seconds / tries
        while True:
            tries -= 1
            member = self._members[self._current]
            try:
                return await self._ask_as_user(member, method(member), message, timeout)
            except grpc.aio.AioRpcError as error:
                failure = self._translated(error, member)
                if tries == 0 or error.code() not in _OF_THE_MEMBER:
                    raise failure from None

    async def _ask_as_user(
        self, member: _Member, method: Callable[..., Awaitable[Any]], message: Any, timeout: float
    ) -> Any:
        """With a token that has expired nothing was done, so asking again is safe for writes, too."""
        metadata = await self._metadata(member)
        used = self._token
        try:
            return await method(message, timeout=timeout, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if used is None or not _is_about_the_token(error):
                raise
            if self._token == used:
                self._token = None
        return await method(message, timeout=timeout, metadata=await self._metadata(member))

    async def _metadata(self, member: _Member) -> tuple[tuple[str, str], ...]:
        """A member that sees no leader must say so instead of keeping us waiting."""
        demand = (("hasleader", "true"),)
        if self._options.username is None:
            return demand
        async with self._authenticating:
            if self._token is None:
                who = rpc.AuthenticateRequest(name=self._options.username, password=self._options.password)
                reply = await member.authenticate(who, timeout=self._options.call_timeout_seconds)
                self._token = str(reply.token)
            return (*demand, ("token", self._token))

    def _move_on_from(self, member: _Member) -> None:
        if self._members[self._current] is member:
            self._current = (self._current + 1) % len(self._members)

    def _translated(self, error: grpc.aio.AioRpcError, member: _Member) -> Exception:
        code, details = error.code(), error.details() or ""
        if code in _OF_THE_MEMBER:
            self._move_on_from(member)
        if "requested lease not found" in details:
            return LeaseExpired("the lease is gone")
        if "required revision has been compacted" in details:
            return Compacted(0)
        if code is StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
            return _AnswerTooLarge(details)
        reason = details.rpartition("last error: ")[2] or code.name.lower()
        return KvUnavailable(f"etcd at {member.endpoint}: {reason}")


class _AnswerTooLarge(KvUnavailable):
    """Ask for less at once."""


def _is_about_the_token(error: grpc.aio.AioRpcError) -> bool:
    """An expired one, or one from before the users and roles were changed."""
    return error.code() is StatusCode.UNAUTHENTICATED or "revision in header is old" in (
        error.details() or ""
    )


def _range_of(prefix: str) -> tuple[bytes, bytes]:
    """First key and end of everything that begins with the prefix."""
    start = prefix.encode()
    end = start.rstrip(b"\xff")
    if not end:
        return start or b"\0", b"\0"
    return start, end[:-1] + bytes([end[-1] + 1])


def _is_absent(key: bytes) -> Any:
    return rpc.Compare(key=key, target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL, create_revision=0)


def _put(key: bytes, value: bytes, lease: int) -> Any:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease))


def _item(kv: Any) -> Item:
    return Item(kv.key.decode(), kv.value, kv.create_revision, kv.mod_revision)


def _change(event: Any) -> Change:
    is_put = event.type == rpc.Event.PUT
    return Change(
        ChangeKind.PUT if is_put else ChangeKind.DELETE,
        event.kv.key.decode(),
        event.kv.value if is_put else b"",
        event.kv.mod_revision,
    )
