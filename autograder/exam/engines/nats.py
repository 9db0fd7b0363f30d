"""NATS JetStream, as the examiner sees it: one stream and one durable pull consumer per lane."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, TypeVar

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy, StorageType
from nats.js.errors import NotFoundError

from autograder.exam.engines import Outgoing
from autograder.messaging.adapter import Lane
from autograder.messaging.envelope import ID_HEADER, KEY_HEADER, as_header
from autograder.model import BrokerState, GraderError

if TYPE_CHECKING:
    from nats.aio.msg import Msg

CONFIRM_WINDOW = 2_000
"""Messages published and not yet confirmed, at most: keeps the answers' memory bounded."""

PATIENCE_S = 10.0
"""How long one request to the broker may take before it counts as broken."""

_T = TypeVar("_T")


async def connect(url: str) -> NatsEngine:
    """Connect to the server at `url`."""
    client = Client()
    engine = NatsEngine(url, client)
    try:
        await client.connect(
            [url],
            allow_reconnect=False,
            max_reconnect_attempts=1,  # 0 would mean for ever
            error_cb=_say_nothing,
            closed_cb=engine.on_closed,
        )
        await engine.listen()
    except (TimeoutError, NatsError, OSError) as error:
        raise _fault(url, error) from error
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
        self._gone = False

    async def listen(self) -> None:
        """Receive the broker's confirmations."""
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(f"{self._inbox}.*", cb=self._on_answer)

    async def open_lane(self, label: str, *, lease_s: float = 5.0) -> Lane:
        """A stream in memory and an explicitly acknowledged durable on it.

        `max_ack_pending` is unlimited: a student's program that takes everything shall be able to.
        """
        name = f"{label}-{secrets.token_hex(8)}"
        consumer = ConsumerConfig(
            durable_name=f"{name}-worker",
            ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.ALL,
            ack_wait=lease_s,
            max_ack_pending=-1,
            max_deliver=-1,
        )
        await self._ask(
            self._streams.add_stream(name=name, subjects=[name], storage=StorageType.MEMORY)
        )
        await self._ask(self._streams.add_consumer(name, consumer))
        return Lane(self._url, name, f"{name}-worker", lease_s)

    async def publish(self, lane: Lane, messages: Sequence[Outgoing]) -> list[str]:
        """Publish in order; every message is confirmed by the stream when this returns."""
        for start in range(0, len(messages), CONFIRM_WINDOW):
            window = messages[start : start + CONFIRM_WINDOW]
            answers = [await self._send(lane, message) for message in window]
            for answer in answers:
                said = json.loads((await self._ask(answer)).data or b"{}")
                if "seq" not in said:
                    reason = said.get("error", {}).get("description", "nobody listens")
                    raise _fault(self._url, f"a message was refused: {reason}")
        return [message.id for message in messages]

    async def state(self, lane: Lane) -> BrokerState:
        """From the consumer's own figures."""
        info = await self._info(lane)
        delivered = info.delivered.stream_seq if info.delivered else 0
        unsettled = info.num_ack_pending or 0
        return BrokerState(
            waiting=info.num_pending or 0,
            unsettled=unsettled,
            settled=delivered - unsettled,
            redelivered=info.num_redelivered or 0,
        )

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
            window = sequences[start : start + CONFIRM_WINDOW]
            for answer in [await self._request(subject % each, b"-NAK") for each in window]:
                await self._ask(answer)

    async def drop_lane(self, lane: Lane) -> None:
        """Delete the stream; its consumer goes with it."""
        try:
            await self._streams.delete_stream(lane.channel)
        except NotFoundError:
            return
        except (TimeoutError, NatsError, OSError) as error:
            raise _fault(self._url, error) from error

    async def close(self) -> None:
        """Disconnect."""
        await self._client.close()

    async def on_closed(self) -> None:
        """The connection ended: nobody will answer any more."""
        self._gone = True
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the connection to the broker was lost"))
                answer.exception()  # seen: whoever waits for another one of the window stops first
        self._answers.clear()

    async def _info(self, lane: Lane) -> ConsumerInfo:
        return await self._ask(self._streams.consumer_info(lane.channel, lane.consumer))

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
        self._published += 1
        number = str(self._published)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._ask(
            self._client.publish(subject, payload, f"{self._inbox}.{number}", headers=headers)
        )
        return answer

    async def _on_answer(self, message: Msg) -> None:
        answer = self._answers.pop(message.subject.rpartition(".")[2], None)
        if answer is not None and not answer.done():
            answer.set_result(message)

    async def _ask(self, question: Awaitable[_T]) -> _T:
        """Wait for the broker with patience. Raises `GraderError` if it fails."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await question
        except (TimeoutError, NatsError, OSError) as error:
            raise _fault(self._url, error) from error


def _fault(url: str, error: object) -> GraderError:
    reason = str(error) or type(error).__name__
    return GraderError(
        f"The NATS server at {url} does not do its part: {reason}",
        next_command="ackademy brokers status",
    )


async def _say_nothing(error: Exception) -> None:
    """Errors reach the caller as `GraderError`; the client would log a traceback for each."""
