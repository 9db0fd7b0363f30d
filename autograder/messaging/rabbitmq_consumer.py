"""One consuming connection of the RabbitMQ adapter, and settlements that are confirmed."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Callable, Sized
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pika.exceptions import ChannelWrongStateError, ConnectionWrongStateError

from autograder.messaging import SettleFailed
from autograder.messaging import rabbitmq_lane as queues
from autograder.messaging.adapter import Lane
from autograder.messaging.rabbitmq_link import Connection, Line, Publisher, answered

if TYPE_CHECKING:
    from pika.channel import Channel
    from pika.spec import Basic, BasicProperties

LARGEST_WINDOW = 2_000  # what a quorum queue accepts, https://www.rabbitmq.com/docs/quorum-queues
GONE = "the connection that delivered the message is gone"


class Consumer:
    """One connection, from its handshake to its end. It never reconnects: a new one is made.

    That makes "the connection that delivered it" an object which a message can hold on to.
    """

    def __init__(
        self,
        lane: Lane,
        prefetch: int,
        unread: Sized,
        receive: Callable[[int, BasicProperties, bytes, Consumer], None],
        on_end: Callable[[Consumer], None],
    ) -> None:
        self._lane = lane
        self._prefetch = min(prefetch, LARGEST_WINDOW)
        self._unread = unread
        self._receive = receive
        self._on_end = on_end
        # the broker gives up a peer that is silent for two heartbeats, pika one that is for one and
        # some seconds more
        self._connection = Connection(lane.url, heartbeat_s=max(2, math.ceil(lane.lease_s)))
        self._line = Line()
        self._receiving = False
        self._window = self._prefetch  # what the subscription may have unsettled
        self._subscriptions = 0  # one follows the other on the same channel
        self._subscribing = False
        self._last_tag = self._last_tag_before = 0  # delivered; and before this subscription
        self._in_window = 0  # unsettled of this subscription
        self._publisher: Publisher | None = None
        self._opening_publisher = asyncio.Lock()
        self._noted: set[int] = set()  # waits whose queue is on the lane's list
        self._asking = False
        self._asked: list[asyncio.Future[None]] = []  # settled before the question under way
        self._unasked: list[asyncio.Future[None]] = []  # settled since
        self.unsettled = 0  # delivered and not settled
        self.ended = False

    async def open(self, *, receiving: bool = True) -> None:
        """Connect and let messages come. Raises `ConnectionError` if that fails."""
        try:
            await self._connection.open()
            self._line = await self._connection.line(self._end)
            # a queue that is deleted says so to its consumers and leaves the channel open
            self._line.channel.add_on_cancel_callback(lambda _: self._connection.hang_up())
            if receiving:
                self._receiving = True
                subscribed = asyncio.get_running_loop().create_future()
                self._subscribe(self._prefetch, partial(answered, subscribed))
                await self._line.awaited(subscribed)
        except BaseException:
            await self.close(0)
            raise

    def make_room(self) -> None:
        """Have more messages come when enough were taken, even if none of them is settled.

        The broker stops at a window of unsettled messages, and nobody can widen it. So a new
        subscription, with a window for what there is room for, takes the place of one whose
        window is full. Of that one no message can be on its way, and none follows when those it
        brought are settled.
        """
        full = self._in_window >= self._window and not self._subscribing
        # a question under way would hold up the cancel, but not a settlement, which makes room
        if full and self._receiving and not self._asking and not self.ended:
            room = self._prefetch - len(self._unread)
            if room >= (self._prefetch + 1) // 2:
                with suppress(ConnectionError):  # it is ending: there will be another one
                    self._cancel(lambda _: None)
                    self._subscribe(room)

    def _subscribe(self, window: int, then: Callable[[Any], None] | None = None) -> None:
        def subscribed(answer: Any) -> None:
            self._subscribing = False
            if then is not None:
                then(answer)

        self._subscribing = True
        self._subscriptions += 1
        self._window, self._in_window, self._last_tag_before = window, 0, self._last_tag
        self._line.say(self._line.channel.basic_qos, prefetch_count=window)
        self._line.say(
            self._line.channel.basic_consume,
            self._lane.channel,
            self._on_delivery,
            consumer_tag=self._consumer_tag,
            callback=subscribed,
        )

    def _cancel(self, then: Callable[[Any], None]) -> None:
        self._line.say(self._line.channel.basic_cancel, self._consumer_tag, callback=then)

    @property
    def _consumer_tag(self) -> str:
        return f"{self._lane.consumer}-{self._subscriptions}"

    async def cancel(self) -> None:
        """Let no more messages come: none does after this has returned."""
        if self._receiving and not self.ended:
            self._receiving = False
            with suppress(ConnectionError):
                cancelled = asyncio.get_running_loop().create_future()
                self._cancel(partial(answered, cancelled))
                await self._line.awaited(cancelled)

    async def ack(self, tag: int) -> None:
        """The work is done."""
        await self._settle(self._line.channel.basic_ack, tag)

    async def requeue(self, *tags: int) -> None:
        """Back into the queue, in this order."""
        for tag in tags[:-1]:
            self._tell(self._line.channel.basic_nack, tag, requeue=True)
        if tags:
            await self._settle(self._line.channel.basic_nack, tags[-1], requeue=True)

    async def give_up(self, tag: int) -> None:
        """Never again: the broker moves it to the dead letters."""
        await self._settle(self._line.channel.basic_nack, tag, requeue=False)

    async def postpone(
        self, tag: int, properties: BasicProperties, body: bytes, attempts: int, delay_s: float
    ) -> None:
        """A confirmed copy into a delay queue, then an acknowledgement of the original."""
        waiting = copy.copy(properties)
        waiting.headers = queues.producers(properties.headers) | {queues.ATTEMPTS_HEADER: attempts}
        try:
            publisher = await self._ready_publisher()
            queue = await self._delay_queue(publisher, queues.wait_ms(delay_s))
            await publisher.publish(queue, body, waiting)
        except ConnectionError as error:
            raise SettleFailed(str(error)) from error
        await self.ack(tag)

    async def close(self, timeout_s: float) -> None:
        """Disconnect; what was told before is said first, and what is unsettled goes back."""
        await self._connection.close(timeout_s)
        self._end()

    # -- settlements

    async def _settle(self, method: Callable[..., None], tag: int, **how: bool) -> None:
        """Tell the broker and wait until it has passed that on. Raises `SettleFailed`.

        Settlements share an answer: one question is under way at a time, and what is settled
        meanwhile waits for the next one. The question is `basic.qos`, which changes nothing and is
        answered by the channel itself.
        """
        loop = asyncio.get_running_loop()
        if not self._asking:  # after all that is settled in this turn, and before it is written
            self._asking = True
            loop.call_soon(self._ask)
        self._tell(method, tag, **how)
        confirmed = loop.create_future()
        self._unasked.append(confirmed)
        await confirmed

    def _tell(self, method: Callable[..., None], tag: int, **how: bool) -> None:
        if self.ended:
            raise SettleFailed(GONE)
        try:
            method(tag, **how)
        except (ChannelWrongStateError, ConnectionWrongStateError) as error:
            raise SettleFailed(GONE) from error
        self.unsettled -= 1
        if tag > self._last_tag_before:
            self._in_window -= 1

    def _ask(self) -> None:
        if self.ended or not self._unasked:
            self._asking = False
            return
        self._asked, self._unasked = self._unasked, []
        try:
            self._line.channel.basic_qos(prefetch_count=self._window, callback=self._on_answer)
        except (ChannelWrongStateError, ConnectionWrongStateError):
            self._end()

    def _on_answer(self, _answer: Any) -> None:
        for confirmed in self._asked:
            if not confirmed.done():  # else: the task that waited was cancelled
                confirmed.set_result(None)
        self._asked = []
        self._asking = False
        self.make_room()
        if self._unasked:
            self._asking = True
            self._ask()

    # -- delays

    async def _ready_publisher(self) -> Publisher:
        """On a channel of its own: what the broker refuses there costs no delivery."""
        async with self._opening_publisher:
            if self._publisher is None or self._publisher.line.ended:
                self._publisher = Publisher(await self._connection.line())
                await self._publisher.open()
            return self._publisher

    async def _delay_queue(self, publisher: Publisher, wait_ms: int) -> str:
        """The queue for this wait: declared anew each time, which also keeps it from expiring."""
        queue = queues.delay_queue(self._lane.channel, wait_ms)
        if wait_ms not in self._noted:
            with suppress(ConnectionError):  # a lane that somebody else made has no such list
                await publisher.publish(queues.delays(self._lane.channel), queue.encode())
            self._noted.add(wait_ms)
        await publisher.line.ask(
            publisher.line.channel.queue_declare,
            queue,
            durable=True,
            arguments=queues.delay_arguments(self._lane.channel, wait_ms),
        )
        return queue

    # -- what pika calls

    def _on_delivery(
        self, _channel: Channel, delivered: Basic.Deliver, properties: BasicProperties, body: bytes
    ) -> None:
        self.unsettled += 1
        self._in_window += 1
        self._last_tag = delivered.delivery_tag
        self._receive(delivered.delivery_tag, properties, body, self)

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        self.unsettled = 0
        for confirmed in (*self._asked, *self._unasked):
            if not confirmed.done():
                confirmed.set_exception(
                    SettleFailed("the connection was lost before the broker confirmed")
                )
        self._on_end(self)
