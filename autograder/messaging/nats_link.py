"""One connection of the NATS adapter: asking for messages, and settlements that are confirmed."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nats.aio.client import Client
from nats.errors import Error as NatsError

from autograder.messaging import SettleFailed
from autograder.messaging.adapter import Lane

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

PROGRESS = b"+WPI"

BATCH = 8
"""Settlements that share an answer, at most: a longer batch would keep its first ones waiting."""

_FOR_EVER_S = 1e6


class Link:
    """One connection, from its handshake to its end. It never reconnects: a new one is made.

    That makes "the connection that delivered it" an object which a message can hold on to.
    """

    def __init__(
        self, lane: Lane, receive: Callable[[Msg, Link], None], on_end: Callable[[], None]
    ) -> None:
        self._lane = lane
        self._receive = receive
        self._on_end = on_end
        self._client = Client()
        self._inbox = ""
        self._subscriptions: list[Subscription] = []
        self._unsaid: deque[_Settlement] = deque()
        self._unconfirmed: dict[str, list[_Settlement]] = {}
        self._something_to_say = asyncio.Event()
        self._saying: asyncio.Task[None] | None = None
        self.ended = False

    async def open(self) -> None:
        """Connect and listen. Raises `ConnectionError` if that fails."""
        try:
            await self._client.connect(
                [self._lane.url],
                # a refused connection is tried once more, then reported; 0 would mean for ever
                max_reconnect_attempts=1,
                reconnect_time_wait=0.02,  # type: ignore[arg-type]  # seconds, only slept for
                # an end is an end: the client reports every one of them, and then waits for close()
                disconnected_cb=self._end,
                reconnect_to_server_handler=lambda _servers, _info: (None, _FOR_EVER_S),
                error_cb=_say_nothing,
                ping_interval=10,
                skip_subject_validation=True,
            )
            self._inbox = self._client.new_inbox()
            for subject, callback in ("pull", self._on_delivery), ("answer.*", self._on_answer):
                subscription = await self._client.subscribe(f"{self._inbox}.{subject}", cb=callback)
                self._subscriptions.append(subscription)
        except asyncio.CancelledError:
            await self.close()
            raise
        except (NatsError, OSError) as error:
            await self.close()
            raise ConnectionError(f"no NATS server answers at {self._lane.url}: {error}") from error
        self._saying = asyncio.create_task(self._say_settlements(), name="ackademy: settle")

    async def pull(self, batch: int, expires_s: float) -> None:
        """Ask for up to `batch` messages; ends filled, or with a status message after `expires_s`."""
        request = json.dumps({"batch": batch, "expires": int(expires_s * 1e9)}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._lane.channel}.{self._lane.consumer}"
        await self._say(subject, request, f"{self._inbox}.pull")

    async def settle(self, verb: bytes, *replies: str) -> None:
        """Tell the server, in this order, and wait until it has it all. Raises `SettleFailed`."""
        if self.ended:
            raise SettleFailed("the connection that delivered the message is gone")
        *first, last = replies
        confirmed = asyncio.get_running_loop().create_future()
        self._unsaid.extend(_Settlement(reply, verb) for reply in first)
        self._unsaid.append(_Settlement(last, verb, confirmed))
        self._something_to_say.set()
        await confirmed

    async def progress(self, reply: str) -> None:
        """Extend the lease of one delivery. Nobody answers: the next report is never far."""
        await self._say(reply, PROGRESS, "")

    async def close(self) -> None:
        """Disconnect; what was written before is sent first."""
        # a connection that broke may fail to close: it is gone either way
        for subscription in self._subscriptions:
            with suppress(NatsError, OSError):
                await subscription.unsubscribe()
        with suppress(NatsError, OSError):
            await self._client.close()
        await self._end()
        if self._saying:
            self._saying.cancel()
            await asyncio.gather(self._saying, return_exceptions=True)

    async def _say_settlements(self) -> None:
        """Send settlements in batches; ask for an answer to the last of each batch.

        A consumer handles what comes from one connection in order. So does one answer confirm all
        before it, at a fraction of the cost of an answer to each. (A PING would not do: the server
        answers it before it handles acknowledgements.)
        """
        for number in itertools.count():
            if not self._unsaid:
                self._something_to_say.clear()
                await self._something_to_say.wait()
            batch = min(BATCH, len(self._unsaid))
            settlements = [self._unsaid.popleft() for _ in range(batch)]
            self._unconfirmed[str(number)] = settlements
            for settlement in settlements[:-1]:
                await self._say(settlement.reply, settlement.verb, "")
            last = settlements[-1]
            await self._say(last.reply, last.verb, f"{self._inbox}.answer.{number}")
            await asyncio.sleep(0)  # let this batch go out while the next one is written

    async def _say(self, subject: str, payload: bytes, reply: str) -> None:
        try:
            await self._client.publish(subject, payload, reply)
        except NatsError:
            await self._end()  # closed under our hands; whoever waits for an answer learns it there

    async def _on_delivery(self, message: Msg) -> None:
        self._receive(message, self)

    async def _on_answer(self, message: Msg) -> None:
        settlements = self._unconfirmed.pop(message.subject.rpartition(".")[2], [])
        gone = bool(message.headers)  # an answer is empty; "503 no responders" comes as a header
        _finish(settlements, "the consumer that delivered the message is gone" if gone else "")

    async def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        for settlements in (*self._unconfirmed.values(), self._unsaid):
            _finish(settlements, "the connection was lost before the broker confirmed")
        self._on_end()


@dataclass(slots=True)
class _Settlement:
    """What is to be said about one delivery, and whether the server has it."""

    reply: str
    verb: bytes
    confirmed: asyncio.Future[None] | None = None  # if nobody waits for this very one


def _finish(settlements: Iterable[_Settlement], failure: str) -> None:
    for settlement in settlements:
        confirmed = settlement.confirmed
        if confirmed is None or confirmed.done():
            continue  # done: the task that waited was cancelled
        if failure:
            confirmed.set_exception(SettleFailed(failure))
        else:
            confirmed.set_result(None)


async def _say_nothing(error: Exception) -> None:
    """Errors of a connection show in its end: the client would log a traceback for each."""
