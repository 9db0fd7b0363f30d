"""The port on a broker in this very process: for tests of consumers, and for the simulator.

It behaves as a queue does: messages are pushed to whoever has room, in the order of publishing; what
a consumer did not settle when its connection ends goes back to the front, in its old order; what is
requeued goes to the end, after its delay. Time is the event loop's: on a loop with virtual time a
delay of an hour takes no time at all. Nothing is lost or late unless you `cut` it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakValueDictionary

from autograder.messaging import SettleFailed
from autograder.messaging.adapter import Lane, Standing
from autograder.messaging.buffer import Buffer
from autograder.messaging.delivery import Delivery
from autograder.model import BrokerState

_brokers: WeakValueDictionary[str, Broker] = WeakValueDictionary()
_numbers = itertools.count(1)


async def connect(lane: Lane, *, prefetch: int) -> MemorySource:
    """Connect to the `Broker` of this process. Raises `ConnectionError` if there is none by that url."""
    return MemorySource(broker_at(lane.url).queue(lane), prefetch)


def broker_at(url: str) -> Broker:
    """The broker of this name. Raises `ConnectionError` if this process has none."""
    broker = _brokers.get(url)
    if broker is None:
        raise ConnectionError(f"no broker of this process is called {url}")
    return broker


class Published(Protocol):
    """What `Broker.publish` wants to know of a message."""

    @property
    def id(self) -> str: ...  # noqa: D102 - as in `Message`
    @property
    def key(self) -> str: ...  # noqa: D102 - the same
    @property
    def body(self) -> bytes: ...  # noqa: D102 - the same
    @property
    def headers(self) -> Mapping[str, str]: ...  # noqa: D102 - the same


class Broker:
    """Queues by name. Lives as long as somebody holds it; offers what an examiner's engine offers."""

    name = "memory"
    version = ""

    def __init__(self) -> None:
        self.url = f"memory:{next(_numbers)}"
        self._queues: dict[str, Queue] = {}
        _brokers[self.url] = self

    async def open_lane(self, label: str, *, lease_s: float = 5.0) -> Lane:
        """A queue of its own."""
        lane = Lane(self.url, f"{label}-{next(_numbers)}", "", lease_s)
        self._queues[lane.channel] = Queue()
        return lane

    async def open_letters(self, lane: Lane) -> Lane:
        """A queue beside the lane's."""
        return await self.open_lane(f"{lane.channel}-letters", lease_s=lane.lease_s)

    async def read(self, lane: Lane) -> list[Stored]:
        """Everything that waits, taken out."""
        queue, found = self.queue(lane), []
        while (stored := queue.take()) is not None:
            found.append(stored)
            queue.settle(stored)
        return found

    async def publish(self, lane: Lane, messages: Sequence[Published]) -> list[str]:
        """Put messages at the end of the queue."""
        queue = self.queue(lane)
        for each in messages:
            queue.add(Stored(each.id, each.key, each.body, dict(each.headers)))
        return [each.id for each in messages]

    async def state(self, lane: Lane) -> BrokerState:
        """Exact counts."""
        return self.queue(lane).state()

    async def expire(self, lane: Lane) -> None:
        """Nothing to do: a queue notices at once that a consumer is gone."""

    async def drop_lane(self, lane: Lane) -> None:
        """Forget the queue."""
        self._queues.pop(lane.channel, None)

    async def close(self) -> None:
        """Forget all queues."""
        self._queues.clear()

    def cut(self, lane: Lane) -> None:
        """Break all connections to the queue; its consumers are connected again at once."""
        self.queue(lane).cut()

    def queue(self, lane: Lane) -> Queue:
        """The queue behind a lane. Raises `ConnectionError` if there is none."""
        try:
            return self._queues[lane.channel]
        except KeyError:
            raise ConnectionError(f"there is no queue called {lane.channel}") from None


@dataclass(slots=True, eq=False)
class Stored:
    """A message as the broker keeps it."""

    id: str
    key: str
    body: bytes
    headers: Mapping[str, str] = field(repr=False)
    deliveries: int = 0


class Queue:
    """Messages that wait, and the consumers they go to."""

    def __init__(self) -> None:
        self._waiting: deque[Stored] = deque()
        self._consumers: deque[MemorySource] = deque()
        self._unsettled: set[Stored] = set()  # delivered, or requeued and not yet due
        self._settled = 0

    def state(self) -> BrokerState:
        """Counts as of now."""
        return BrokerState(
            waiting=len(self._waiting),
            unsettled=len(self._unsettled),
            settled=self._settled,
            redelivered=sum(each.deliveries > 1 for each in self._unsettled),
        )

    def add(self, stored: Stored) -> None:
        """At the end of the line."""
        self._unsettled.discard(stored)
        self._waiting.append(stored)
        self.dispatch()

    def give_back(self, stored: Sequence[Stored]) -> None:
        """At the front of the line, in this order."""
        self._unsettled.difference_update(stored)
        self._waiting.extendleft(reversed(stored))
        self.dispatch()

    def take(self) -> Stored | None:
        """Hand the one in front to somebody who asks for a single message; None if none waits."""
        if not self._waiting:
            return None
        stored = self._waiting.popleft()
        stored.deliveries += 1
        self._unsettled.add(stored)
        return stored

    def settle(self, stored: Stored) -> None:
        """Done with, for good."""
        self._unsettled.remove(stored)
        self._settled += 1

    def attach(self, consumer: MemorySource) -> None:
        """From now on messages go to this consumer, too."""
        self._consumers.append(consumer)
        self.dispatch()

    def detach(self, consumer: MemorySource) -> None:
        """No more messages go to this consumer."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)

    def cut(self) -> None:
        """Break and renew every consumer's connection."""
        for consumer in list(self._consumers):
            consumer.reconnect()

    def dispatch(self) -> None:
        """Push what waits to the consumers in turn, as far as they have room."""
        full = 0
        while self._waiting and full < len(self._consumers):
            consumer = self._consumers[0]
            self._consumers.rotate(-1)
            if not consumer.has_room:
                full += 1
                continue
            full = 0
            stored = self._waiting.popleft()
            stored.deliveries += 1
            self._unsettled.add(stored)
            consumer.receive(stored)


class MemoryMessage(Delivery):
    """One delivery; `held` is the list of its connection's deliveries, empty once that is gone."""

    __slots__ = ("_source", "held", "stored")

    def __init__(self, stored: Stored, held: dict[Stored, None], source: MemorySource) -> None:
        super().__init__(stored.id, stored.key, stored.body, stored.headers, stored.deliveries)
        self.stored = stored
        self.held = held
        self._source = source

    async def _ack(self) -> None:
        await asyncio.sleep(0)  # as on a network, others run meanwhile
        self._source.release(self).settle(self.stored)

    async def _requeue(self, delay_s: float) -> None:
        await asyncio.sleep(0)  # the same
        queue = self._source.release(self)
        asyncio.get_running_loop().call_later(delay_s, queue.add, self.stored)

    async def _give_up(self) -> None:
        await self._ack()


class MemorySource:
    """One consumer of one queue."""

    def __init__(self, queue: Queue, prefetch: int) -> None:
        if prefetch < 1:
            raise ValueError(f"prefetch is at least 1: {prefetch}")
        self._queue = queue
        self._prefetch = prefetch
        self._buffer: Buffer[MemoryMessage] = Buffer()
        self._held: dict[Stored, None] = {}  # unsettled, in the order of delivery
        self._closed = False
        queue.attach(self)

    def __aiter__(self) -> MemorySource:
        return self

    async def __anext__(self) -> MemoryMessage:
        message = await self._buffer.take()
        self._queue.dispatch()
        return message

    def standing(self) -> Standing:
        """Counts as of now."""
        buffered = len(self._buffer)
        return Standing(buffered, len(self._held) - buffered, not self._closed)

    async def stop_receiving(self) -> None:
        """End all takes and give unread messages back."""
        self._queue.detach(self)
        self._buffer.end()
        unread = [message.stored for message in self._buffer.drain()]
        for stored in unread:
            del self._held[stored]
        self._queue.give_back(unread)

    async def close(self) -> None:
        """Give everything unsettled back."""
        self._queue.detach(self)
        self._buffer.end()
        self._closed = True
        self._lose()

    # -- the broker's side

    @property
    def has_room(self) -> bool:
        """Whether another message may be pushed."""
        return len(self._buffer) < self._prefetch

    def receive(self, stored: Stored) -> None:
        """Take a message from the queue into the buffer."""
        self._held[stored] = None
        self._buffer.put(MemoryMessage(stored, self._held, self))

    def release(self, message: MemoryMessage) -> Queue:
        """Settle it on its own connection. Raises `SettleFailed` if that is gone."""
        if message.stored not in message.held:
            raise SettleFailed("the connection that delivered the message is gone")
        del message.held[message.stored]
        return self._queue

    def reconnect(self) -> None:
        """Lose the connection and get a new one: deliveries of the old one are the broker's again."""
        self._queue.detach(self)
        self._lose()
        self._queue.attach(self)

    def _lose(self) -> None:
        lost = list(self._held)
        self._held.clear()  # the very object that its messages look into
        self._held = {}
        self._buffer.drain()
        self._queue.give_back(lost)
