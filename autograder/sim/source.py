"""A consumer of the simulated broker: the port as the student's process sees it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autograder.messaging import SettleFailed
from autograder.messaging.adapter import Standing
from autograder.messaging.buffer import Buffer
from autograder.messaging.delivery import Delivery
from autograder.sim.clock import Clock
from autograder.sim.timing import Timing

RECONNECT_S = 0.02
"""The pause before a client tries again after its connection broke."""


@dataclass(slots=True, eq=False)
class Stored:
    """A message as the broker keeps it."""

    id: str
    key: str
    body: bytes
    headers: Mapping[str, str] = field(repr=False)
    deliveries: int = 0


@dataclass(slots=True, eq=False)
class Settlement:
    """One that is on its way to the broker: what it will do there, and who waits for the answer."""

    message: SimMessage
    apply: Callable[[], None]
    answer: asyncio.Future[None]


class Link:
    """One connection. What it delivered can be settled on it only, and in the order of asking."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.broken = False
        self.arrives_at = 0.0  # nothing overtakes within a connection, in either direction
        self.settles_at = 0.0
        self.on_its_way: list[Settlement] = []

    def after_those_before(self, then: Callable[[], None], when: float) -> None:
        """Deliver at this time, but not before what was sent earlier; at once if both are now."""
        self.arrives_at = max(self.arrives_at, when)
        if self.arrives_at <= self._clock.now:
            then()
        else:
            self._clock.call_at(self.arrives_at, then)

    def break_off(self) -> None:
        """The connection is gone: settlements on their way fail, and are the broker's no more."""
        self.broken = True
        for each in self.on_its_way:
            if not each.answer.done():
                each.answer.set_exception(gone())
        self.on_its_way.clear()


def gone() -> SettleFailed:
    """What settling on a broken connection raises."""
    return SettleFailed("the connection that delivered the message is gone")


class SimMessage(Delivery):
    """One delivery on one link."""

    __slots__ = ("link", "source", "stored", "taken")

    def __init__(self, stored: Stored, attempt: int, link: Link, source: SimSource) -> None:
        super().__init__(stored.id, stored.key, stored.body, stored.headers, attempt)
        self.stored = stored
        self.link = link
        self.source = source
        self.taken = False

    async def _ack(self) -> None:
        await self.source.ack(self)

    async def _requeue(self, delay_s: float) -> None:
        await self.source.requeue(self, delay_s)

    async def _give_up(self) -> None:
        await self.source.ack(self)  # the broker is done with it, either way


class SimSource(ABC):
    """What all manners have in common: a buffer, takes from it, and a link that can break."""

    def __init__(self, clock: Clock, timing: Timing, prefetch: int) -> None:
        if prefetch < 1:
            raise ValueError(f"prefetch is at least 1: {prefetch}")
        self.clock = clock
        self.timing = timing
        self.prefetch = prefetch
        self.link = Link(clock)
        self.buffer: Buffer[SimMessage] = Buffer()
        self.held: dict[SimMessage, None] = {}  # unsettled on this link, in the order of delivery
        self.in_flight = 0  # of those, how many the broker has sent and we have not got
        self.connections = 1
        self.closed = False
        self.stopping = False

    def __aiter__(self) -> SimSource:
        return self

    async def __anext__(self) -> SimMessage:
        message = await self.buffer.take()
        message.taken = True
        self.fetch()
        return message

    def standing(self) -> Standing:
        """Counts as of now."""
        taken = sum(message.taken for message in self.held)
        connected = not (self.closed or self.link.broken)
        return Standing(len(self.buffer), taken, connected, self.connections)

    # -- what a manner says

    @abstractmethod
    async def ack(self, message: SimMessage) -> None:
        """Settle for good. Raises `SettleFailed` if the message's link is gone."""

    @abstractmethod
    async def requeue(self, message: SimMessage, delay_s: float) -> None:
        """Have it come back. Raises the same."""

    @abstractmethod
    async def stop_receiving(self) -> None:
        """End all takes and give unread messages back."""

    @abstractmethod
    async def close(self) -> None:
        """Give everything unsettled back and disconnect."""

    @abstractmethod
    def fetch(self) -> None:
        """Have the broker send what there is room for."""

    @abstractmethod
    def cut(self) -> None:
        """The connection breaks, and a new one is made after a while."""

    @abstractmethod
    def crash(self) -> None:
        """The process is dead: nothing of this source runs any more."""

    # -- for the manners

    @property
    def room(self) -> int:
        """How many messages may be on their way to the buffer, beside those that are."""
        return self.prefetch - len(self.buffer) - self.in_flight

    def send(self, message: SimMessage) -> None:
        """Put a message on its way from the broker to the buffer."""
        self.held[message] = None
        self.in_flight += 1
        link = self.link

        def arrive() -> None:
            if not link.broken:
                self.in_flight -= 1
                if message in self.held:  # else it was handed back on the way
                    self.buffer.put(message)

        link.after_those_before(arrive, self.clock.now + self.timing.deliver())

    def unread(self) -> list[SimMessage]:
        """Take everything out that nobody took, in the order of delivery."""
        self.buffer.drain()
        unread = [message for message in self.held if not message.taken]
        for message in unread:
            del self.held[message]
        return unread

    def lose(self) -> list[SimMessage]:
        """Break the link; what it had delivered, in the order of delivery."""
        self.link.break_off()
        lost = list(self.held)
        self.held.clear()
        self.buffer.drain()
        self.in_flight = 0
        return lost

    async def settle(self, message: SimMessage, apply: Callable[[], None]) -> None:
        """Ask the broker and wait for its answer. It does what it is asked when the answer leaves.

        Whoever is cancelled while waiting has asked all the same.
        """
        link = message.link
        if link.broken:
            raise gone()
        answer = asyncio.get_running_loop().create_future()
        settlement = Settlement(message, apply, answer)
        link.on_its_way.append(settlement)

        def arrive() -> None:
            if link.broken:
                return
            link.on_its_way.remove(settlement)
            self.held.pop(message, None)
            apply()
            if not answer.done():
                answer.set_result(None)

        link.settles_at = max(link.settles_at, self.clock.now + self.timing.settle())
        self.clock.call_at(link.settles_at, arrive)
        await answer

    async def pause(self, seconds: float) -> None:
        """Let virtual time go by; others have a turn even if it is none."""
        passed = asyncio.get_running_loop().create_future()

        def over() -> None:
            if not passed.done():
                passed.set_result(None)

        self.clock.call_later(seconds, over)
        await passed
