"""Publishing with confirmation, and reading one message at a time: dead letters, and their way back.

A `Route` is one place of a broker's (a queue, a stream, a topic) over a connection of its own, so
that it can fail while the consumer's goes on. Each adapter has one, in `{engine}_route`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Literal

from autograder.messaging import PublishFailed
from autograder.messaging.adapter import Lane
from autograder.messaging.delivery import Delivery

CONFIRM_S = 1.0
"""How long a broker has for a confirmation. A second is far more than one that lives needs."""

Settlement = Literal["ack", "requeue", "give up"]


@dataclass(frozen=True, slots=True)
class Posted:
    """What is published: everything a message says."""

    id: str
    key: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Letter(Delivery):
    """One message that was read from a route."""

    __slots__ = ("_route", "token")

    def __init__(self, posted: Posted, attempt: int, token: object, route: Route) -> None:
        super().__init__(posted.id, posted.key, posted.body, posted.headers, attempt)
        self.token = token  # what the broker knows this delivery by
        self._route = route

    async def _ack(self) -> None:
        await self._route.settle(self, "ack")

    async def _requeue(self, delay_s: float) -> None:
        await self._route.settle(self, "requeue")

    async def _give_up(self) -> None:
        await self._route.settle(self, "give up")


class Route(ABC):
    """A `DeadLetters`, and a `Publish` by its method of that name, over a connection of its own.

    A connection that is lost is made again by whoever needs it next.
    """

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self._unheard: set[asyncio.Task[None]] = set()  # letters of which nobody wants to hear

    async def publish(
        self, body: bytes, *, id: str, key: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish, and wait until the broker has confirmed. Raises `PublishFailed`."""
        try:
            async with asyncio.timeout(CONFIRM_S):
                await self.send(Posted(id, key, body, dict(headers or {})))
        except OSError as error:  # a TimeoutError is one, too
            why = str(error) or f"it has said nothing for {CONFIRM_S:g} s"
            raise PublishFailed(f"the broker did not confirm message {id}: {why}") from error

    def publish_nowait(
        self, body: bytes, *, id: str, key: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish, and let nobody know what becomes of it."""

        async def unheard() -> None:
            with suppress(PublishFailed):
                await self.publish(body, id=id, key=key, headers=headers)

        task = asyncio.create_task(unheard(), name="ackademy: publish")
        self._unheard.add(task)
        task.add_done_callback(self._unheard.discard)

    def __aiter__(self) -> Route:
        return self

    async def __anext__(self) -> Letter:
        letter = await self.next_letter()
        if letter is None:
            raise StopAsyncIteration
        return letter

    async def close(self) -> None:
        """Disconnect. What was taken and not settled stays; what nobody waits for may be lost."""
        for task in list(self._unheard):
            task.cancel()
        await asyncio.gather(*self._unheard, return_exceptions=True)
        with suppress(OSError):
            async with asyncio.timeout(CONFIRM_S):
                await self.hang_up()

    # -- what an adapter says. Each of these raises `OSError` when the broker does not do its part.

    @abstractmethod
    async def send(self, posted: Posted) -> None:
        """Publish one message; return when the broker has it."""

    @abstractmethod
    async def next_letter(self) -> Letter | None:
        """The oldest message that waits; None if none does."""

    @abstractmethod
    async def settle(self, letter: Letter, how: Settlement) -> None:
        """Settle one message that was read. Raises `SettleFailed`."""

    @abstractmethod
    async def count(self) -> int:
        """How many messages wait."""

    @abstractmethod
    async def connect(self) -> None:
        """Connect. Raises `ConnectionError` if nobody answers."""

    @abstractmethod
    async def hang_up(self) -> None:
        """Disconnect, if connected."""


@asynccontextmanager
async def open_route(engine: str, lane: Lane) -> AsyncIterator[Route]:
    """Connect to `lane` to publish there, or to read; closed afterwards. Raises `ConnectionError`."""
    module = import_module(f"autograder.messaging.{engine}_route")
    route: Route = module.AdapterRoute(lane)
    await route.connect()
    try:
        yield route
    finally:
        await route.close()
