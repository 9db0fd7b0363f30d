"""Leases as the student sees them: what becomes of them is reported, and the examiner may hold a command.

Held at a gate, a command is on its way to the server for as long as the examiner likes. What others do
meanwhile falls exactly between two commands of a program that should have used one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager

from autograder.messaging.route import Posted
from autograder.model import FOR_EVER, Kind
from autograder.storage import Lease, StoreGone
from autograder.subject.gates import RELEASE, TAKE, Gates
from autograder.subject.recorded import Book
from autograder.subject.reporter import Reporter

PREFIX = "charge:"
"""What the key of a lease begins with; the rest is the id of the message."""

MANY, PAUSES_S = 10, 0.2
"""So many pauses that come to less in sum are told: of those that the contract allows ten are 0.5 s, and
0.25 s where two deliveries of one message wait beside each other."""


def lease_key(message: str) -> str:
    """The key of this message's lease."""
    return PREFIX + message


_LOOK = "look"


class _Pauses:
    """How long it was each time from the answer that a lease is held to the next question about it.

    On the process's own clock, and without the time that an answer takes: a machine or a server that is
    slow makes pauses longer, never shorter. Looks and takes are apart: one may follow the other at once.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], float] = {}
        self._last: dict[tuple[str, str], deque[float]] = {}

    def begin(self, how: str, key: str) -> None:
        """It is held."""
        self._since[how, key] = asyncio.get_running_loop().time()

    def end(self, how: str, key: str) -> float | None:
        """It is asked for. Returns the sum of the last `MANY` pauses if that is below `PAUSES_S`, once."""
        since = self._since.pop((how, key), None)
        if since is None:
            return None
        last = self._last.setdefault((how, key), deque(maxlen=MANY))
        last.append(asyncio.get_running_loop().time() - since)
        total = sum(last)
        if len(last) < MANY or total >= PAUSES_S:
            return None
        last.clear()
        return total


class RecordedLease:
    """The port, reported: whose lease it is says nothing, what the server answered does."""

    def __init__(
        self,
        inner: Lease,
        reporter: Reporter,
        book: Book,
        gates: Mapping[str, Gates],
        to_lose: list[str],
        *,
        waits: bool,
    ) -> None:
        self._inner = inner
        self._reporter = reporter
        self._book = book
        self._gates = gates
        self._to_lose = to_lose  # the points whose next command meets a connection that breaks
        self._waits = waits
        self._mine: dict[str, str] = {}  # key -> the value it was set to here, last
        self._refused: set[str] = set()  # keys of which it was told that somebody holds them
        self._pauses = _Pauses()

    async def set_if_absent(self, key: str, value: str, *, ttl_s: float | None) -> bool:
        """See `autograder.storage.Lease.set_if_absent`."""
        self._asks(TAKE, key)
        await self._pass(TAKE, key)
        self._may_be_lost(TAKE, key)
        with self._asking():
            taken = await self._inner.set_if_absent(key, value, ttl_s=ttl_s)
        if taken:
            self._took(key, value, ttl_s)
        else:
            self._met(TAKE, key)
        return taken

    async def set(self, key: str, value: str, *, ttl_s: float | None = None) -> None:
        """See `autograder.storage.Lease.set`."""
        await self._pass(TAKE, key)
        self._may_be_lost(TAKE, key)
        with self._asking():
            await self._inner.set(key, value, ttl_s=ttl_s)
        self._took(key, value, ttl_s)

    async def get(self, key: str) -> str | None:
        """See `autograder.storage.Lease.get`."""
        self._asks(_LOOK, key)
        with self._asking():
            value = await self._inner.get(key)
        if value is not None and value != self._mine.get(key):
            self._met(_LOOK, key)
        return value

    async def delete_if_equals(self, key: str, value: str) -> bool:
        """See `autograder.storage.Lease.delete_if_equals`."""
        return await self._release(self._inner.delete_if_equals, key, value)

    async def delete(self, key: str) -> bool:
        """See `autograder.storage.Lease.delete`."""
        return await self._release(self._inner.delete, key)

    async def _release(self, ask: Callable[..., Awaitable[bool]], key: str, *value: str) -> bool:
        await self._pass(RELEASE, key)
        with self._asking():
            deleted = await ask(key, *value)
        self._tell(Kind.LEASE_RELEASED, key, "" if deleted else "no")
        self._may_be_lost(RELEASE, key)
        return deleted

    async def expire_if_equals(self, key: str, value: str, *, ttl_s: float) -> bool:
        """See `autograder.storage.Lease.expire_if_equals`."""
        with self._asking():
            return await self._inner.expire_if_equals(key, value, ttl_s=ttl_s)

    async def expire(self, key: str, *, ttl_s: float) -> bool:
        """See `autograder.storage.Lease.expire`."""
        with self._asking():
            return await self._inner.expire(key, ttl_s=ttl_s)

    async def _pass(self, point: str, key: str) -> None:
        """Wait at a gate, if the examiner has closed it: a command that is on its way."""
        gates, about = self._gates[point], Posted(key.removeprefix(PREFIX), "", b"")
        if gates.closed_for(about):
            self._tell(Kind.LEASE_WAITS, key, point)
            with self._book.adapter_at_work():
                await gates.wait_open(about)

    def _may_be_lost(self, point: str, key: str) -> None:
        """Raises `StoreGone` where the connection is to break: before a take is heard, after a release is done.

        So nothing stays behind that nobody could release.
        """
        if point in self._to_lose:
            self._to_lose.remove(point)
            self._tell(Kind.LEASE_LOST, key, point)
            lost = StoreGone("connection was closed in the middle of a command")
            raise self._book.raised.known(lost)

    def _asking(self) -> AbstractContextManager[None]:
        """As long as a question is under way: see `Book.asking`."""
        return self._book.asking(self._reporter, waits=self._waits)

    def _took(self, key: str, value: str, ttl_s: float | None) -> None:
        self._mine[key] = value
        self._refused.discard(key)
        self._tell(Kind.LEASE_TAKEN, key, FOR_EVER if ttl_s is None else f"{ttl_s:g} s")

    def _asks(self, how: str, key: str) -> None:
        paused_s = self._pauses.end(how, key)
        if paused_s is not None:
            self._tell(Kind.LEASE_HAMMERED, key, f"{MANY} pauses of {paused_s:.3f} s in all")

    def _met(self, how: str, key: str) -> None:
        self._pauses.begin(how, key)
        if key not in self._refused:
            self._refused.add(key)
            self._tell(Kind.LEASE_REFUSED, key)

    def _tell(self, kind: Kind, key: str, detail: str = "") -> None:
        self._reporter.event(kind, key.removeprefix(PREFIX), detail=detail)
