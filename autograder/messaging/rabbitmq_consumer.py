"""One consuming connection of the RabbitMQ adapter, and settlements that are confirmed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pika.exceptions import ChannelWrongStateError, ConnectionWrongStateError

from autograder.messaging import SettleFailed
from autograder.messaging.adapter import Lane
from autograder.messaging.buffer import Buffer
from autograder.messaging.rabbitmq_delays import Delays
from autograder.messaging.rabbitmq_link import Connection, Line, answered

if TYPE_CHECKING:
    from pika.channel import Channel
    from pika.spec import Basic, BasicProperties

LARGEST_WINDOW = 2_000  # what a quorum queue accepts, https://www.rabbitmq.com/docs/quorum-queues
PASSED_ON_WITHIN_S = 0.5
GONE = "the connection that delivered the message is gone"


class Consumer:
    """One connection, from its handshake to its end. It never reconnects: a new one is made.

    That makes "the connection that delivered it" an object which a message can hold on to.
    """

    def __init__(
        self,
        lane: Lane,
        prefetch: int,
        unread: Buffer[Any],
        receive: Callable[[int, BasicProperties, bytes, Consumer], None],
        on_end: Callable[[Consumer], None],
    ) -> None:
        self._lane = lane
        self._prefetch = min(prefetch, LARGEST_WINDOW)
        self._unread = unread  # delivered and not taken: what has a `tag`
        self._receive = receive
        self._on_end = on_end
        # the broker gives up a peer that is silent for two heartbeats, pika one that is for one and
        # some seconds more
        self._connection = Connection(lane.url, heartbeat_s=max(2, math.ceil(lane.lease_s)))
        self._line = Line()
        self._busy = self._due = False  # a question is under way; one is about to be put
        self._receiving = False
        self._left: asyncio.Future[None] | None = None  # once receiving shall end: that it has
        self._subscriptions = 0  # one follows the other on the same channel
        self._window = self._in_window = 0  # unsettled of this subscription, at most and now
        self._last_tag = self._last_tag_before = 0  # delivered; and before this subscription
        self._asked: list[asyncio.Future[None]] = []  # settled before the question under way
        self._unasked: list[asyncio.Future[None]] = []  # settled since
        self._delays = Delays(lane.channel, self._connection)
        self.unsettled = 0  # delivered and not settled
        self.opened = self.ended = False

    async def open(self, *, receiving: bool = True) -> None:
        """Connect and let messages come. Raises `ConnectionError` if that fails."""
        try:
            await self._connection.open()
            self._line = await self._connection.line(self._end)
            self.opened = True
            # a queue that is deleted says so to its consumers and leaves the channel open
            self._line.channel.add_on_cancel_callback(lambda _: self._connection.hang_up())
            if receiving:
                subscribed = asyncio.get_running_loop().create_future()
                self._subscribe(self._prefetch, subscribed)
                await self._line.awaited(subscribed)
        except BaseException:
            await self.close(0)
            raise

    async def stop_receiving(self) -> None:
        """Have no more messages come, and give back those that nobody took, in their order."""
        if self._receiving and not self.ended:
            self._left = asyncio.get_running_loop().create_future()
            self._next()
            await self._line.awaited(self._left)
            await self._confirmed()

    async def passed_on(self) -> None:
        """Wait until all that was settled has reached the queue, as far as that can be seen.

        A channel that has more than 32 settlements under way to a quorum queue keeps the next ones
        back (a node's setting, `quorum_commands_soft_limit`), answers questions all the same, and
        forgets them when it is closed. A subscription that has ended counts as a consumer until
        the last of its settlements has arrived. With other consumers on the queue there is nothing
        to be seen, and the time is up soon.
        """
        if not self.opened or self._receiving or self.unsettled:
            return
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(PASSED_ON_WITHIN_S):
                while not self.ended:
                    question = self._line.channel.queue_declare
                    answer = await self._line.ask(question, self._lane.channel, passive=True)
                    if not answer.method.consumer_count:
                        return
                    await asyncio.sleep(0.001)

    def make_room(self) -> None:
        """Have more messages come when enough were taken, even if none of them is settled."""
        if not self._busy and self._is_full():
            self._next()

    async def ack(self, tag: int) -> None:
        """The work is done."""
        await self._settle(self._line.channel.basic_ack, tag)

    async def requeue(self, tag: int) -> None:
        """Back into the queue."""
        await self._settle(self._line.channel.basic_nack, tag, requeue=True)

    async def give_up(self, tag: int) -> None:
        """Never again: the broker moves it to the dead letters."""
        await self._settle(self._line.channel.basic_nack, tag, requeue=False)

    async def postpone(
        self, tag: int, properties: BasicProperties, body: bytes, attempts: int, delay_s: float
    ) -> None:
        """A confirmed copy into a delay queue, then an acknowledgement of the original."""
        try:
            await self._delays.keep(properties, body, attempts, delay_s)
        except ConnectionError as error:
            raise SettleFailed(str(error)) from error
        await self.ack(tag)

    async def close(self, timeout_s: float) -> None:
        """Disconnect; what was told before is said first, and what is unsettled goes back."""
        await self._connection.close(timeout_s)
        self._end()

    # -- settlements

    async def _settle(self, method: Callable[..., None], tag: int, **how: bool) -> None:
        """Tell the broker and wait until it has passed that on. Raises `SettleFailed`."""
        self._tell(method, tag, **how)
        await self._confirmed()

    def _tell(self, method: Callable[..., None], tag: int, **how: bool) -> None:
        if self.ended:
            raise SettleFailed(GONE)
        self._next_soon()  # before this is written: it goes out with the question
        try:
            method(tag, **how)
        except (ChannelWrongStateError, ConnectionWrongStateError) as error:
            raise SettleFailed(GONE) from error
        self.unsettled -= 1
        if tag > self._last_tag_before:
            self._in_window -= 1

    async def _confirmed(self) -> None:
        """Wait until the broker has passed on what it was told before."""
        if self.ended:
            raise SettleFailed(GONE)
        confirmed = asyncio.get_running_loop().create_future()
        self._unasked.append(confirmed)
        self._next_soon()
        await confirmed

    # -- questions

    def _next_soon(self) -> None:
        """After all that is settled in this turn of the loop."""
        if not self._busy and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Put the next question, if none is under way.

        pika holds a question back until the one before is answered, but no settlement: it could be
        overtaken by one that it must not miss. So it is not even put before its time.
        """
        self._due = False
        if self._busy or self.ended:
            return
        try:
            if self._left is not None and self._receiving:
                self._unsubscribe(self._left)
            elif self._is_full():
                self._resubscribe()
            elif self._unasked:
                self._ask()
        except ConnectionError:
            self._end()

    def _answer(self) -> None:
        self._busy = False
        self._next()

    def _ask(self) -> None:
        """Settlements share an answer: those of one turn, and all that come while one is awaited.

        The question is `basic.qos`. It changes nothing here and the channel itself answers it.
        """
        self._busy = True
        self._asked, self._unasked = self._unasked, []
        channel = self._line.channel
        self._line.say(channel.basic_qos, prefetch_count=self._window, callback=self._on_confirmed)

    def _on_confirmed(self, _answer: Any) -> None:
        for confirmed in self._asked:
            answered(confirmed)
        self._asked = []
        self._answer()

    def _is_full(self) -> bool:
        """Whether none of what was taken is settled: half of the buffer is free, and none comes.

        The broker stops at a window of unsettled messages, and nobody can widen it.
        """
        if not self._receiving or self._in_window < self._window:
            return False
        return len(self._unread) <= self._prefetch // 2

    def _resubscribe(self) -> None:
        """A new subscription, with a window for what there is room for, in place of a full one.

        Of a full one no message can be on its way, and none follows when those it brought are
        settled.
        """
        self._line.say(self._line.channel.basic_cancel, self._consumer_tag, callback=_nothing)
        self._subscribe(self._prefetch - len(self._unread))

    def _subscribe(self, window: int, done: asyncio.Future[None] | None = None) -> None:
        def subscribed(_answer: Any) -> None:
            answered(done)
            self._answer()

        self._busy = self._receiving = True
        self._subscriptions += 1
        self._window, self._in_window, self._last_tag_before = window, 0, self._last_tag
        channel = self._line.channel
        self._line.say(channel.basic_qos, prefetch_count=window)
        self._line.say(
            channel.basic_consume,
            self._lane.channel,
            self._on_delivery,
            consumer_tag=self._consumer_tag,
            callback=subscribed,
        )

    def _unsubscribe(self, done: asyncio.Future[None]) -> None:
        """No more deliveries first, so that what is given back does not come right back here.

        What is on its way is given back by pika when it arrives, which is later: in order.
        """

        def unsubscribed(_answer: Any) -> None:
            answered(done)
            self._answer()

        self._busy, self._receiving = True, False
        channel = self._line.channel
        self._line.say(channel.basic_cancel, self._consumer_tag, callback=unsubscribed)
        for message in self._unread.drain():
            self._tell(channel.basic_nack, message.tag, requeue=True)

    @property
    def _consumer_tag(self) -> str:
        return f"{self._lane.consumer}-{self._subscriptions}"

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


def _nothing(_answer: Any) -> None:
    """An answer that nobody waits for."""
