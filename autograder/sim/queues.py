"""Two manners in which each message is settled by itself: a queue and a stream.

*Queue*, as RabbitMQ does it: messages are pushed to whoever has room; when a connection is gone the
broker knows at once, and what it had delivered goes back to the front; what is requeued goes to the
front or to the end, which differs between versions and so is drawn here.

*Stream*, as JetStream does it: messages come when asked for; a broken connection is noticed by the
consumer alone, which hands back what it had held when it has a new one; what comes back comes before
what is new; a stop waits for the request that is under way, up to `PULL_EXPIRES_S`.

In both, attempts are deliveries: a message that was handed back unread counts as well.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import takewhile

from autograder.model import BrokerState
from autograder.sim.broker import Channel
from autograder.sim.clock import Clock
from autograder.sim.source import RECONNECT_S, Link, SimMessage, SimSource, Stored
from autograder.sim.timing import Timing

PULL_EXPIRES_S = 0.2
"""How long a request for messages stays open, as in the adapter for JetStream."""

PULL_BATCH = 100
"""Messages that one request asks for, at most; the same."""


class QueueChannel(Channel):
    """Messages that wait, and the consumers they go to."""

    def __init__(self, clock: Clock, timing: Timing) -> None:
        super().__init__(clock, timing)
        self.waiting: deque[Stored] = deque()
        self.consumers: deque[QueueSource] = deque()
        self.left_behind: list[Stored] = []  # by dead processes, until the broker knows
        self._unsettled: dict[Stored, None] = {}  # delivered, or requeued and not yet due
        self._settled = 0
        self._requeues_at_front = timing.other.random() < 0.5

    def state(self) -> BrokerState:
        """Counts as of now."""
        return BrokerState(
            waiting=len(self.waiting),
            unsettled=len(self._unsettled),
            settled=self._settled,
            redelivered=sum(each.deliveries > 1 for each in self._unsettled),
            consumers=len(self.consumers),
        )

    def waiting_messages(self) -> list[Stored]:
        """In line."""
        return list(self.waiting)

    def sources(self) -> list[SimSource]:
        """Its consumers that live."""
        return list(self.consumers)

    async def connect(self, prefetch: int) -> SimSource:
        """One more consumer."""
        source = self.source(prefetch)
        await source.pause(self.timing.settle())
        self.attach(source)
        return source

    def source(self, prefetch: int) -> QueueSource:
        """A consumer of this manner, not attached yet."""
        return QueueSource(self, prefetch)

    def attach(self, source: QueueSource) -> None:
        """From now on messages go to this consumer, too."""
        self.consumers.append(source)
        self.dispatch()

    def detach(self, source: QueueSource) -> None:
        """No more messages go to this consumer."""
        if source in self.consumers:
            self.consumers.remove(source)

    def add(self, stored: Stored) -> None:
        """At the end of the line."""
        self.waiting.append(stored)
        self.dispatch()

    def requeue(self, stored: Stored, delay_s: float) -> None:
        """Back into the line, after its delay."""

        def due() -> None:
            self._unsettled.pop(stored, None)
            self.take_back(stored)
            self.dispatch()

        if delay_s:
            self.clock.call_later(delay_s, due)
        else:
            due()

    def take_back(self, stored: Stored) -> None:
        """Where in the line it goes."""
        if self._requeues_at_front:
            self.waiting.appendleft(stored)
        else:
            self.waiting.append(stored)

    def give_back(self, stored: Sequence[Stored]) -> None:
        """At the front of the line, in this order."""
        for each in stored:
            self._unsettled.pop(each, None)
        self.waiting.extendleft(reversed(stored))
        self.dispatch()

    def settle(self, stored: Stored) -> None:
        """Done with, for good."""
        self._unsettled.pop(stored, None)
        self._settled += 1

    def expire(self) -> None:
        """Deliver again what dead processes left unsettled."""
        left, self.left_behind = self.left_behind, []
        self.give_back(left)

    def dispatch(self) -> None:
        """Send what waits to the consumers in turn, as far as they have room."""
        full = 0
        while self.waiting and full < len(self.consumers):
            consumer = self.consumers[0]
            self.consumers.rotate(-1)
            if not consumer.wants():
                full += 1
                continue
            full = 0
            stored = self.waiting.popleft()
            stored.deliveries += 1
            self._unsettled[stored] = None
            consumer.send(SimMessage(stored, stored.deliveries, consumer.link, consumer))


class QueueSource(SimSource):
    """A consumer that messages are pushed to."""

    def __init__(self, channel: QueueChannel, prefetch: int) -> None:
        super().__init__(channel.clock, channel.timing, prefetch)
        self.channel = channel

    def wants(self) -> bool:
        """Whether another message may be sent."""
        return self.room > 0

    def fetch(self) -> None:
        """There is room for one more."""
        self.channel.dispatch()

    async def ack(self, message: SimMessage) -> None:
        """Settle for good."""
        await self.settle(message, lambda: self.channel.settle(message.stored))

    async def requeue(self, message: SimMessage, delay_s: float) -> None:
        """Have the broker bring it back."""
        await self.settle(message, lambda: self.channel.requeue(message.stored, delay_s))

    async def stop_receiving(self) -> None:
        """End all takes at once; return when the unread messages are the broker's again."""
        self.stopping = True
        self.buffer.end()
        takes_s = self.stop_takes_s()
        try:
            await self.pause(takes_s)
        except asyncio.CancelledError:  # whoever waits no longer has asked all the same
            self.clock.call_later(takes_s, self._return_unread)
            raise
        self._return_unread()

    def _return_unread(self) -> None:
        self.channel.detach(self)
        self.channel.give_back([message.stored for message in self.unread()])

    def stop_takes_s(self) -> float:
        """One question and its answer."""
        return self.timing.settle()

    async def close(self) -> None:
        """Give everything unsettled back; what is on its way to the broker gets there first."""
        self.stopping = True
        self.buffer.end()
        await self.pause(max(0.0, self.link.settles_at - self.clock.now))
        self.channel.detach(self)
        self.closed = True
        self.channel.give_back([message.stored for message in self.lose()])

    def cut(self) -> None:
        """The broker knows at once; the consumer is back after a while."""
        self.channel.detach(self)
        lost = [message.stored for message in self.lose()]
        self.channel.give_back(lost)
        self.clock.call_later(RECONNECT_S + self.timing.settle(), self.reconnect)

    def reconnect(self) -> None:
        """A new connection, unless there is one: after two cuts in a row one is enough."""
        if self.closed or not self.link.broken:
            return
        self.link = Link(self.clock)
        self.connections += 1
        if not self.stopping:
            self.channel.attach(self)

    def crash(self) -> None:
        """Settlements on their way arrive or do not; the rest is the broker's once it knows."""
        self.channel.detach(self)
        self.closed = True
        for each in list(self.link.on_its_way):
            if self.timing.other.random() < 0.5:
                self.held.pop(each.message, None)
                each.apply()
        self.link.on_its_way.clear()
        self.channel.left_behind += [message.stored for message in self.lose()]


class StreamChannel(QueueChannel):
    """Messages that are asked for; what comes back goes before what is new."""

    def take_back(self, stored: Stored) -> None:
        """Behind what came back earlier, before what was never delivered."""
        place = sum(1 for _ in takewhile(lambda each: each.deliveries, self.waiting))
        self.waiting.insert(place, stored)

    def give_back(self, stored: Sequence[Stored]) -> None:
        """The same, one after the other."""
        for each in stored:
            self.requeue(each, 0.0)

    def source(self, prefetch: int) -> QueueSource:
        """A consumer that asks."""
        return StreamSource(self, prefetch)


class StreamSource(QueueSource):
    """A consumer that asks for as many messages as it has room for, one request at a time."""

    def __init__(self, channel: QueueChannel, prefetch: int) -> None:
        super().__init__(channel, prefetch)
        self._owed = min(PULL_BATCH, prefetch)

    def wants(self) -> bool:
        """Whether a request is open."""
        return self._owed > 0

    def send(self, message: SimMessage) -> None:
        """One of those that were asked for."""
        self._owed -= 1
        super().send(message)

    def fetch(self) -> None:
        """Ask anew once the last request was met and half of the buffer is free."""
        if not self._owed and not self.stopping and len(self.buffer) <= self.prefetch // 2:
            self._owed = max(0, min(PULL_BATCH, self.room))
            self.channel.dispatch()

    def stop_takes_s(self) -> float:
        """Until the open request has run out, and the unread messages are handed back."""
        rest_s = self.timing.other.uniform(0, PULL_EXPIRES_S) if self._owed else 0.0
        return rest_s + self.timing.settle()

    def cut(self) -> None:
        """Only the consumer notices; it hands back what it had when it is connected again."""
        self.channel.detach(self)
        lost = [message.stored for message in self.lose()]

        def back() -> None:
            self.reconnect()
            self.channel.give_back(lost)

        self.clock.call_later(RECONNECT_S + self.timing.settle(), back)

    def reconnect(self) -> None:
        """A new connection, and a new request on it."""
        if self.link.broken:
            self._owed = min(PULL_BATCH, self.prefetch)
        super().reconnect()
