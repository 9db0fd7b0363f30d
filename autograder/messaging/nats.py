"""The port on NATS JetStream: a pull consumer.

How JetStream differs from a queue, and what this adapter makes of it:

- *A message is leased, not owned by a connection.* What is not acknowledged within the consumer's
  `ack_wait` is delivered again, to anybody. The adapter reports progress (`+WPI`) for everything
  it holds, so a lease only runs out when this process stands still or dies.
- *The server does not notice that a connection broke.* Leases simply run out. To return messages
  at once, the adapter hands back (`-NAK`) what the broken connection had delivered as soon as it has
  a new one, and what is unread or in hand when it closes.
- *Acknowledging is publishing*, and nobody says whether it arrived unless asked. Here every
  settlement waits for the server's answer (see `nats_link`), so "settled" means settled.
- *Messages come only when asked for.* One pull request at a time asks for what there is room
  for, or a part of it. It ends when it is filled, or with a status message after
  `PULL_EXPIRES_S`; only then is it certain that no more will come for it, and unread messages
  can be handed back without their being delivered right here again.
- *A requeued message comes back out of order*, after what was delivered meanwhile.
- *Attempts are deliveries*, as the server counts them: a message that was handed back unread
  counts, too.

Protocol: https://docs.nats.io/reference/reference-protocols/nats_api_reference and
https://docs.nats.io/nats-concepts/jetstream/consumers.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING

from autograder.messaging import SettleFailed
from autograder.messaging.adapter import Lane, Standing, reconnect_pauses_s
from autograder.messaging.buffer import Buffer
from autograder.messaging.delivery import Delivery
from autograder.messaging.envelope import ID_HEADER, KEY_HEADER, from_header
from autograder.messaging.nats_link import Link

if TYPE_CHECKING:
    from nats.aio.msg import Msg

PULL_EXPIRES_S = 0.2
"""How long a pull request waits at the server: the longest that `stop_receiving` has to wait."""

PULL_BATCH = 100
"""Messages that one request asks for, at most: unpacking a large burst would hold the loop up."""

ACK, NAK, TERM = b"+ACK", b"-NAK", b"+TERM"
_OURS = frozenset((ID_HEADER, KEY_HEADER))


async def connect(lane: Lane, *, prefetch: int) -> NatsSource:
    """Connect and begin to receive. Raises `ConnectionError` if there is no server at `lane.url`."""
    source = NatsSource(lane, prefetch)
    await source.open()
    return source


class NatsMessage(Delivery):
    """One delivery. `attempt` is JetStream's own count of deliveries."""

    __slots__ = ("_source", "link", "reply")

    def __init__(self, delivered: Msg, link: Link, source: NatsSource) -> None:
        sent = delivered.headers or {}
        about = delivered.metadata
        super().__init__(
            from_header(sent.get(ID_HEADER, "")) or f"{about.stream}-{about.sequence.stream}",
            from_header(sent.get(KEY_HEADER, "")),
            delivered.data,
            {name: from_header(value) for name, value in sent.items() if name not in _OURS},
            about.num_delivered,
        )
        self.reply = delivered.reply
        self.link = link
        self._source = source

    async def _ack(self) -> None:
        await self._source.settle(self, ACK)

    async def _requeue(self, delay_s: float) -> None:
        nanoseconds = int(delay_s * 1e9)
        wait = json.dumps({"delay": nanoseconds}).encode() if nanoseconds else b""
        await self._source.settle(self, NAK + b" " + wait if wait else NAK)

    async def _give_up(self) -> None:
        await self._source.settle(self, TERM)


class NatsSource:
    """Messages of one durable pull consumer; reconnects by itself."""

    def __init__(self, lane: Lane, prefetch: int) -> None:
        if prefetch < 1:
            raise ValueError(f"prefetch is at least 1: {prefetch}")
        self._lane = lane
        self._prefetch = prefetch
        self._link = Link(lane, self._receive, self._lose)
        self._buffer: Buffer[NatsMessage] = Buffer()
        self._held: dict[str, NatsMessage] = {}  # by reply subject: buffered and in hand, unsettled
        self._owed = 0  # messages that the pull request under way may still bring
        self._lost: list[str] = []  # deliveries of broken connections, to be handed back
        self._connections = 1
        self._stopping = False
        self._returned = asyncio.Event()  # after a stop: unread messages are the broker's again
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def __aiter__(self) -> NatsSource:
        return self

    async def __anext__(self) -> NatsMessage:
        message = await self._buffer.take()
        if self._may_pull():
            self._wake.set()
        return message

    async def open(self) -> None:
        """Connect; from here on the source keeps itself connected."""
        await self._link.open()
        self._tasks = [
            asyncio.create_task(self._work(), name="ackademy: receive"),
            asyncio.create_task(self._extend_leases(), name="ackademy: extend leases"),
        ]

    def standing(self) -> Standing:
        """Counts as of now."""
        buffered = len(self._buffer)
        return Standing(
            buffered, len(self._held) - buffered, not self._link.ended, self._connections
        )

    async def settle(self, message: NatsMessage, verb: bytes) -> None:
        """Tell the broker what became of a message in hand."""
        held = self._held.pop(message.reply, None) is not None
        try:
            await message.link.settle(verb, message.reply)
        except SettleFailed:
            if held:  # the connection broke just now; if the server did hear us, a late NAK is void
                self._lost.append(message.reply)
            raise

    async def stop_receiving(self) -> None:
        """End all takes at once; return when the unread messages are the broker's again.

        On a connection that does not answer this is given up after one lease, which is when the
        broker would deliver them again anyway.
        """
        self._stopping = True
        self._buffer.end()
        self._wake.set()
        with suppress(asyncio.TimeoutError):
            async with asyncio.timeout(self._lane.lease_s):  # wait_for swallows a cancel on 3.11
                await self._returned.wait()

    async def close(self) -> None:
        """Hand back everything unsettled and disconnect. Takes one lease at the very most."""
        with suppress(asyncio.TimeoutError):
            async with asyncio.timeout(self._lane.lease_s):
                if self._works():
                    await self.stop_receiving()
                    await self._hand_back(self._link, list(self._held))
        self._buffer.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._link.close()

    # -- behind the student's back

    def _works(self) -> bool:
        """Whether there is anybody to say goodbye: a loop that is torn down cancels all its tasks."""
        work = self._tasks[0] if self._tasks else None
        ended = work is None or work.done() or work.cancelling()
        return not (ended or self._link.ended)

    def _may_pull(self) -> bool:
        """Half of the buffer is free: the other half covers the round trip."""
        return not self._owed and not self._stopping and len(self._buffer) <= self._prefetch // 2

    def _receive(self, delivered: Msg, link: Link) -> None:
        if link.ended:
            self._lost += [delivered.reply] if delivered.reply else []
        elif delivered.reply:
            message = NatsMessage(delivered, link, self)
            self._held[message.reply] = message
            self._buffer.put(message)
            self._owed -= 1
            if not self._owed:
                self._wake.set()
        elif (delivered.headers or {}).get("Status") == "408":  # the request's time ran out
            self._request_ended(link)
        else:  # 409, 503: the consumer or the server is in no state to answer; ask again, calmly
            asyncio.get_running_loop().call_later(PULL_EXPIRES_S, self._request_ended, link)

    def _request_ended(self, link: Link) -> None:
        if link is self._link:
            self._owed = 0
            self._wake.set()

    def _lose(self) -> None:
        """The connection is gone: so is what it delivered, for us."""
        self._lost += self._held
        self._held.clear()
        self._buffer.drain()
        self._request_ended(self._link)

    async def _work(self) -> None:
        """Serve one connection after the other, for ever."""
        while True:
            await self._serve(self._link)
            await self._link.close()
            self._link = await self._reconnected()

    async def _serve(self, link: Link) -> None:
        """Pull while there is room; hand back what is unread after a stop. Ends with the link."""
        lost, self._lost = self._lost, []
        await self._hand_back(link, lost)
        while not link.ended:
            self._wake.clear()
            if self._may_pull():
                self._owed = min(PULL_BATCH, self._prefetch - len(self._buffer))
                await link.pull(self._owed, PULL_EXPIRES_S)
            elif self._stopping and not self._owed and not self._returned.is_set():
                await self._return_unread(link)
            await self._wake.wait()

    async def _return_unread(self, link: Link) -> None:
        unread = [message.reply for message in self._buffer.drain()]
        for reply in unread:
            self._held.pop(reply, None)
        await self._hand_back(link, unread)
        self._returned.set()

    async def _hand_back(self, link: Link, replies: list[str]) -> None:
        """Return these deliveries in this order; what fails is left to the next connection."""
        if replies:
            try:
                await link.settle(NAK, *replies)
            except SettleFailed:
                self._lost += replies

    async def _reconnected(self) -> Link:
        for pause_s in reconnect_pauses_s():
            await asyncio.sleep(pause_s)
            link = Link(self._lane, self._receive, self._lose)
            with suppress(ConnectionError):
                await link.open()
                self._connections += 1
                break
        return link

    async def _extend_leases(self) -> None:
        """Report progress four times a lease, so that one late report is no lost lease."""
        while True:
            await asyncio.sleep(self._lane.lease_s / 4)
            link = self._link
            for number, reply in enumerate(list(self._held)):
                if reply in self._held:  # progress after a delayed nak would prolong the delay
                    await link.progress(reply)
                if number % 500 == 499:
                    await asyncio.sleep(0)
