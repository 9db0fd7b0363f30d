"""The port on RabbitMQ: a quorum queue.

What AMQP 0-9-1 and quorum queues are like, and what this adapter makes of it:

- *A delivery belongs to the channel that brought it.* When the channel or its connection is gone,
  the broker hands what was unsettled to anybody, at once. Nothing runs out while this process
  lives: the connection's heartbeat is the only lease.
- *The broker pushes*, up to a window of unsettled messages per subscription. What you took and did
  not settle counts, too; so a new subscription takes the place of one whose window is full, and
  only the buffer is bounded by `prefetch`.
- *Nobody confirms an acknowledgement.* A channel does what it is told in order, though, so that an
  answer to a later question proves that it has passed on all acknowledgements before. From there
  on they reach the queue before the news that this connection has died; but for a burst of more
  than 32, unless the node is told otherwise, as ours are (see `Consumer.passed_on`).
- *A requeued message comes back near the head of the queue.* A queue without a delivery limit puts
  it at the end up to RabbitMQ 4.2 and at the head from then on, and since 4.0 there is a limit of
  20 if one asks for none. So the lane's queue asks for one that nobody reaches.
- *Attempts are deliveries* as the broker counts them. It writes `x-delivery-count` on a message
  that comes back; since 4.3 that counts failures only and `x-acquired-count` has the deliveries.
  A message that was handed back unread counts as well.
- *A delay is a queue of its own*: messages wait there until their time is up, and the broker then
  moves them back (a time-to-live and a dead-letter exchange). A copy is published there and
  confirmed before the original is acknowledged; if the process dies in between, there are two. The
  copy carries the attempts so far. Delays are rounded up, by a tenth at most.
- *What is given up* goes to the lane's dead-letter queue, by the broker.

Protocol: https://www.rabbitmq.com/docs/quorum-queues, https://www.rabbitmq.com/docs/consumer-prefetch
and https://www.rabbitmq.com/docs/ttl.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from autograder.messaging import rabbitmq_lane as queues
from autograder.messaging.adapter import Lane, Standing, reconnect_pauses_s
from autograder.messaging.buffer import Buffer
from autograder.messaging.delivery import Delivery
from autograder.messaging.envelope import ID_HEADER, KEY_HEADER, from_header
from autograder.messaging.rabbitmq_consumer import Consumer

if TYPE_CHECKING:
    from pika.spec import BasicProperties

_OURS = frozenset((ID_HEADER, KEY_HEADER))


async def connect(lane: Lane, *, prefetch: int) -> RabbitSource:
    """Connect and begin to receive. Raises `ConnectionError` if there is no server at `lane.url`."""
    source = RabbitSource(lane, prefetch)
    await source.open()
    return source


class RabbitMessage(Delivery):
    """One delivery. `attempt` is the broker's own count of deliveries."""

    __slots__ = ("_consumer", "_properties", "tag")

    def __init__(
        self, tag: int, properties: BasicProperties, body: bytes, consumer: Consumer
    ) -> None:
        sent: dict[str, Any] = properties.headers or {}
        super().__init__(
            from_header(properties.message_id or sent.get(ID_HEADER, "")),
            from_header(sent.get(KEY_HEADER, "")),
            body,
            {
                name: from_header(value)
                for name, value in queues.producers(sent).items()
                if name not in _OURS and isinstance(value, str)
            },
            1 + queues.deliveries_before(sent),
        )
        self.tag = tag
        self._properties = properties
        self._consumer = consumer

    async def _ack(self) -> None:
        await self._consumer.ack(self.tag)

    async def _requeue(self, delay_s: float) -> None:
        if delay_s:
            copied = self._properties, self.body, self.attempt
            await self._consumer.postpone(self.tag, *copied, delay_s)
        else:
            await self._consumer.requeue(self.tag)

    async def _give_up(self) -> None:
        await self._consumer.give_up(self.tag)


class RabbitSource:
    """Messages of one quorum queue; reconnects by itself."""

    def __init__(self, lane: Lane, prefetch: int) -> None:
        if prefetch < 1:
            raise ValueError(f"prefetch is at least 1: {prefetch}")
        self._lane = lane
        self._prefetch = prefetch
        self._buffer: Buffer[RabbitMessage] = Buffer()
        self._consumer = self._new_consumer()
        self._connections = 1
        self._lost = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    def __aiter__(self) -> RabbitSource:
        return self

    async def __anext__(self) -> RabbitMessage:
        message = await self._buffer.take()
        self._consumer.make_room()
        return message

    async def open(self) -> None:
        """Connect; from here on the source keeps itself connected."""
        await self._consumer.open()
        self._keeping = asyncio.create_task(self._keep_connected(), name="ackademy: reconnect")

    def standing(self) -> Standing:
        """Counts as of now."""
        buffered = len(self._buffer)
        in_hand = self._consumer.unsettled - buffered
        connected = self._consumer.opened and not self._consumer.ended
        return Standing(buffered, in_hand, connected, self._connections)

    async def stop_receiving(self) -> None:
        """End all takes at once; return when the unread messages are the broker's again.

        On a connection that does not answer this is given up after one lease. The messages stay
        with it until it ends.
        """
        self._buffer.end()
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._return_unread(), name="ackademy: stop")
        # the task goes on if whoever waits for it is cancelled
        await asyncio.wait({self._stopping}, timeout=self._lane.lease_s)

    async def close(self) -> None:
        """Hand back everything unsettled and disconnect. Takes two leases at the very most."""
        await self.stop_receiving()
        tasks = [task for task in (self._keeping, self._stopping) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._keeping = None
        await self._consumer.passed_on()
        await self._consumer.close(self._lane.lease_s)

    # -- behind the student's back

    def _new_consumer(self) -> Consumer:
        return Consumer(self._lane, self._prefetch, self._buffer, self._receive, self._lose)

    def _receive(
        self, tag: int, properties: BasicProperties, body: bytes, consumer: Consumer
    ) -> None:
        self._buffer.put(RabbitMessage(tag, properties, body, consumer))

    def _lose(self, consumer: Consumer) -> None:
        """The connection is gone: what it delivered is the broker's again."""
        if consumer is self._consumer:
            self._buffer.drain()
            self._lost.set()

    async def _return_unread(self) -> None:
        with suppress(ConnectionError):  # it ended: the broker has them back already
            await self._consumer.stop_receiving()

    async def _keep_connected(self) -> None:
        while True:
            await self._lost.wait()
            await self._consumer.close(1)
            await self._reconnect()

    async def _reconnect(self) -> None:
        for pause_s in reconnect_pauses_s():
            await asyncio.sleep(pause_s)
            self._lost.clear()
            self._consumer = self._new_consumer()  # its messages may come while it opens
            with suppress(ConnectionError):
                await self._consumer.open(receiving=self._stopping is None)
                self._connections += 1
                if self._stopping is not None:  # perhaps since a moment ago
                    await self._return_unread()
                return
