"""NATS JetStream, as the examiner sees it: one stream and one durable pull consumer per lane."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy, StorageType
from nats.js.errors import NotFoundError

from autograder.exam.engines import PATIENCE_S, Outgoing, lane_name, our_fault
from autograder.messaging.adapter import Lane
from autograder.messaging.envelope import ID_HEADER, KEY_HEADER, as_header, from_header
from autograder.model import BrokerState

if TYPE_CHECKING:
    from nats.aio.msg import Msg

CONFIRM_WINDOW = 2_000
"""Messages published and not yet confirmed, at most: keeps the answers' memory bounded."""


LETTER_LEASE_S = 30.0
"""How long a letter may be in hand: a replay needs milliseconds for it."""

_A_MOMENT = (
    b'{"batch":1,"expires":1000000000}'  # nanoseconds in which a consumer hears of a message
)

LOST = "the connection was lost"
FOR_EVER_S = 1e6


async def connect(url: str) -> NatsEngine:
    """Connect to the server at `url`."""
    client = Client()
    engine = NatsEngine(url, client)
    async with engine.ours():
        await client.connect(
            [url],
            max_reconnect_attempts=1,  # 0 would mean for ever
            reconnect_time_wait=0.05,  # type: ignore[arg-type]  # seconds, only slept for
            # a connection that is lost stays lost; told not to reconnect, the client may not tell
            disconnected_cb=engine.on_lost,
            reconnect_to_server_handler=lambda _servers, _info: (None, FOR_EVER_S),
            error_cb=_say_nothing,
        )
        await engine.listen()
    engine.version = str(client.connected_server_version).strip("<>").rpartition(" v")[2]
    return engine


class NatsEngine:
    """One connection to one NATS server."""

    name = "nats"

    def __init__(self, url: str, client: Client) -> None:
        self.version = ""
        self._url = url
        self._client = client
        self._streams = client.jetstream(timeout=PATIENCE_S)
        self._inbox = ""
        self._answers: dict[str, asyncio.Future[Msg]] = {}
        self._published = 0
        self._lost = False

    async def listen(self) -> None:
        """Receive the broker's confirmations."""
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(f"{self._inbox}.*", cb=self._on_answer)

    async def open_lane(self, label: str, *, lease_s: float = 5.0) -> Lane:
        """A stream in memory and an explicitly acknowledged durable on it.

        `max_ack_pending` is unlimited: a student's program that takes everything shall be able to.
        """
        return await self._open(lane_name(label), lease_s)

    async def open_letters(self, lane: Lane) -> Lane:
        """A stream beside the lane's. A letter's lease is long: nobody reports progress for it."""
        return await self._open(f"{lane.channel}-letters", LETTER_LEASE_S)

    async def _open(self, name: str, lease_s: float) -> Lane:
        consumer = ConsumerConfig(
            durable_name=f"{name}-worker",
            ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.ALL,
            ack_wait=lease_s,
            max_ack_pending=-1,
            max_deliver=-1,
        )
        async with self.ours():
            self._not_lost()
            await self._streams.add_stream(name=name, subjects=[name], storage=StorageType.MEMORY)
            await self._streams.add_consumer(name, consumer)
        return Lane(self._url, name, f"{name}-worker", lease_s)

    async def publish(self, lane: Lane, messages: Sequence[Outgoing]) -> list[str]:
        """Publish in order; every message is confirmed by the stream when this returns."""
        for start in range(0, len(messages), CONFIRM_WINDOW):
            async with self.ours():
                window = messages[start : start + CONFIRM_WINDOW]
                for answer in [await self._send(lane, message) for message in window]:
                    said = (await self._answered(answer)).data
                    if b'"seq"' not in said:
                        error = json.loads(said or b"{}").get("error", {})
                        reason = error.get("description", "nobody keeps them")
                        raise NatsError(f"it refuses messages, {reason}")
        return [message.id for message in messages]

    async def state(self, lane: Lane) -> BrokerState:
        """From the figures of the consumer and its stream.

        The consumer learns of a message a moment after the stream has confirmed it: what was not
        delivered is what the stream has beyond the last that was.
        """
        info = await self._info(lane)
        delivered = info.delivered.stream_seq if info.delivered else 0
        unsettled = info.num_ack_pending or 0
        return BrokerState(
            waiting=await self._last(lane) - delivered,
            unsettled=unsettled,
            settled=delivered - unsettled,
            redelivered=info.num_redelivered or 0,
        )

    async def at_rest(self, lane: Lane) -> BrokerState:
        """By asking for messages, as a consumer does, and handing them back.

        The server's own figures do not tell what was handed back from what is still out: both are
        pending acknowledgements. A request with `no_wait` ends with a status when there is no more.
        """
        state = await self.state(lane)
        there = state.waiting + max(state.unsettled, 0)
        waiting = await self._deliverable(lane, there) if there else 0
        return replace(state, waiting=waiting, unsettled=max(0, there - waiting))

    async def _deliverable(self, lane: Lane, most: int) -> int:
        """How many messages a consumer would get now, up to `most`."""
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{lane.channel}.{lane.consumer}"
        request = json.dumps({"batch": most, "no_wait": True}).encode()
        async with self.ours():
            self._not_lost()
            answers = await self._client.subscribe(self._client.new_inbox())
            await self._client.publish(subject, request, reply=answers.subject)
            replies: list[str] = []
            while len(replies) < most:
                delivered = await answers.next_msg(timeout=PATIENCE_S)
                if "Status" in (delivered.headers or {}):
                    break
                replies.append(delivered.reply)
            await answers.unsubscribe()
            for answer in [await self._request(reply, b"-NAK") for reply in replies]:
                await self._answered(answer)
        return len(replies)

    async def read(self, lane: Lane) -> list[Outgoing]:
        """Ask as the consumer does, and acknowledge."""
        found: list[Outgoing] = []
        while True:
            async with self.ours():  # its time limit is for an answer: there may be thousands
                message = await self._next(lane, b'{"batch":1,"no_wait":true}')
                if not message.reply and (await self.state(lane)).waiting:
                    message = await self._next(lane, _A_MOMENT)
                if not message.reply:  # a status: there is none
                    return found
                found.append(_outgoing(message))
                await self._answered(await self._request(message.reply, b"+ACK"))

    async def _next(self, lane: Lane, request: bytes) -> Msg:
        self._not_lost()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{lane.channel}.{lane.consumer}"
        # an inbox of its own: a message comes under the subject it was published to
        return await self._client.request(subject, request, PATIENCE_S, old_style=True)

    async def expire(self, lane: Lane) -> None:
        """Negatively acknowledge, in the dead process's place, whatever it left unsettled.

        An acknowledgement is a message to `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream
        sequence>.<consumer sequence>.<time>.<pending>`; the server looks at the sequences only, and
        ignores one whose message is not pending. A delay that the process asked for ends with it.
        """
        info = await self._info(lane)
        if not info.num_ack_pending or not info.delivered or not info.ack_floor:
            return
        last = info.delivered
        subject = f"$JS.ACK.{lane.channel}.{lane.consumer}.1.%d.{last.consumer_seq}.0.0"
        sequences = range(info.ack_floor.stream_seq + 1, last.stream_seq + 1)
        for start in range(0, len(sequences), CONFIRM_WINDOW):
            async with self.ours():
                window = sequences[start : start + CONFIRM_WINDOW]
                for answer in [await self._request(subject % each, b"-NAK") for each in window]:
                    await self._answered(answer)

    async def disown(self, lane: Lane) -> None:
        """Nothing: JetStream does not notice a broken connection, the adapter does."""

    async def drop_lane(self, lane: Lane) -> None:
        """Delete the stream; its consumer goes with it."""
        async with self.ours():
            self._not_lost()
            with suppress(NotFoundError):
                await self._streams.delete_stream(lane.channel)

    async def close(self) -> None:
        """Disconnect."""
        with suppress(NatsError, OSError):  # it was lost before: it is gone either way
            await self._client.close()

    async def on_lost(self) -> None:
        """Nobody will answer any more."""
        self._lost = True
        for answer in self._answers.values():
            answer.cancel()
        self._answers.clear()

    async def _info(self, lane: Lane) -> ConsumerInfo:
        async with self.ours():
            self._not_lost()
            info: ConsumerInfo = await self._streams.consumer_info(lane.channel, lane.consumer)
        return info

    async def _last(self, lane: Lane) -> int:
        async with self.ours():
            self._not_lost()
            state = (await self._streams.stream_info(lane.channel)).state
        return state.last_seq

    def _not_lost(self) -> None:
        """Say so at once: the client would keep requests for a connection that never comes."""
        if self._lost:
            raise ConnectionResetError(LOST)

    async def _send(self, lane: Lane, message: Outgoing) -> asyncio.Future[Msg]:
        headers = {name: as_header(value) for name, value in message.headers.items()}
        headers[ID_HEADER] = as_header(message.id)
        if message.key:
            headers[KEY_HEADER] = as_header(message.key)
        return await self._request(lane.channel, message.body, headers)

    async def _request(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> asyncio.Future[Msg]:
        """Publish with a reply subject; the future ends with the broker's answer."""
        self._not_lost()
        self._published += 1
        number = str(self._published)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._client.publish(subject, payload, f"{self._inbox}.{number}", headers=headers)
        return answer

    async def _answered(self, answer: asyncio.Future[Msg]) -> Msg:
        try:
            return await answer
        except asyncio.CancelledError:
            if self._lost:
                raise ConnectionResetError(LOST) from None
            raise

    async def _on_answer(self, message: Msg) -> None:
        answer = self._answers.pop(message.subject.rpartition(".")[2], None)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def ours(self) -> AbstractAsyncContextManager[None]:
        """Charge what the server does wrong to us."""
        return our_fault(f"The NATS server at {self._url}", NatsError)


def _outgoing(message: Msg) -> Outgoing:
    """A message as it was published."""
    headers = {name: from_header(value) for name, value in (message.headers or {}).items()}
    identity, key = headers.pop(ID_HEADER, ""), headers.pop(KEY_HEADER, "")
    return Outgoing(identity, key, message.data, headers)


async def _say_nothing(error: Exception) -> None:
    """Errors reach the caller as `GraderError`; the client would log a traceback for each."""
