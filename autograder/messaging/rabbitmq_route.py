"""A route on RabbitMQ: a queue, and for dead letters an exchange before it.

A publication is confirmed by the broker on a channel that asks for it, once every queue it was
routed to has it. One that no queue takes is confirmed as well, unless it is `mandatory`: then it
comes back first (https://www.rabbitmq.com/docs/confirms). Reading is `basic.get`: one message, or
the answer that there is none.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import pika
from pika.exceptions import AMQPError
from pika.spec import Basic

from autograder.messaging import SettleFailed
from autograder.messaging import rabbitmq_lane as queues
from autograder.messaging.adapter import Lane
from autograder.messaging.envelope import ID_HEADER, KEY_HEADER, as_header, from_header
from autograder.messaging.rabbitmq_link import Connection, Line, Publisher, answered
from autograder.messaging.route import CONFIRM_S, Letter, Posted, Route, Settlement

if TYPE_CHECKING:
    from pika.channel import Channel
    from pika.spec import BasicProperties

_OURS = frozenset((ID_HEADER, KEY_HEADER))
_LONGEST_SHORT_STRING = 255  # of AMQP: what a property may be, in bytes
_KEPT = 2  # delivery mode: on disk


class _Got(NamedTuple):
    """One delivery as the broker knows it: a tag counts within its channel only."""

    tag: int
    line: Line


def properties_of(identity: str, key: str, headers: dict[str, Any]) -> pika.BasicProperties:
    """How a message's id, key and headers travel."""
    headers = {name: as_header(it) for name, it in headers.items()}
    if key:
        headers[KEY_HEADER] = as_header(key)
    identity = as_header(identity)
    if len(identity) > _LONGEST_SHORT_STRING:
        headers[ID_HEADER], identity = identity, ""
    return pika.BasicProperties(
        message_id=identity or None, headers=headers or None, delivery_mode=_KEPT
    )


class AdapterRoute(Route):
    """A connection with a channel to publish on and one to read from."""

    def __init__(self, lane: Lane) -> None:
        super().__init__(lane)
        self._connection: Connection | None = None
        self._publisher: Publisher | None = None
        self._reader: Line | None = None
        self._got: asyncio.Future[Any] | None = None
        self._opening = asyncio.Lock()

    async def connect(self) -> None:
        """Connect."""
        await self._ready()

    async def _ready(self) -> tuple[Publisher, Line]:
        async with self._opening:
            publisher, reader = self._publisher, self._reader
            if publisher is None or reader is None or publisher.line.ended or reader.ended:
                await self.hang_up()
                publisher, reader = await self._opened()
                self._publisher, self._reader = publisher, reader
            return publisher, reader

    async def _opened(self) -> tuple[Publisher, Line]:
        self._connection = Connection(
            self.lane.url, heartbeat_s=max(2, math.ceil(self.lane.lease_s))
        )
        await self._connection.open()
        publisher = Publisher(await self._connection.line())
        await publisher.open()
        reader = await self._connection.line()
        reader.channel.add_callback(lambda *_: answered(self._got), [Basic.GetEmpty], False)  # noqa: FBT003 - pika's name for it is one_shot
        return publisher, reader

    async def hang_up(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        self._publisher = self._reader = None
        if connection is not None:
            await connection.close(CONFIRM_S / 2)

    async def send(self, posted: Posted) -> None:
        """Publish to the queue, by its exchange if it has one, and wait for the confirmation."""
        publisher, _ = await self._ready()
        properties = properties_of(posted.id, posted.key, dict(posted.headers))
        queue = self.lane.channel
        exchange = queue if queues.is_letters(queue) else ""
        await publisher.publish(queue, posted.body, properties, exchange=exchange)

    async def next_letter(self) -> Letter | None:
        """`basic.get`."""
        _, reader = await self._ready()
        self._got = got = asyncio.get_running_loop().create_future()

        def came(_: Channel, how: Basic.GetOk, properties: BasicProperties, body: bytes) -> None:
            answered(got, (how, properties, body))

        reader.say(reader.channel.basic_get, self.lane.channel, came)
        answer = await reader.awaited(got)
        if answer is None:
            return None
        how, properties, body = answer
        return Letter(
            _posted(properties, body),
            1 + queues.deliveries_before(properties.headers or {}),
            _Got(how.delivery_tag, reader),
            self,
        )

    async def settle(self, letter: Letter, how: Settlement) -> None:
        """A channel does what it is told in order: an answer to a later question confirms it."""
        got = letter.token
        assert isinstance(got, _Got)  # noqa: S101 - from `next_letter`
        tag, line = got
        try:
            if how == "ack":
                line.say(line.channel.basic_ack, tag)
            else:
                line.say(line.channel.basic_nack, tag, requeue=how == "requeue")
            await line.ask(line.channel.basic_qos, prefetch_count=0)
        except (OSError, AMQPError) as error:
            raise SettleFailed(f"the connection that delivered it is gone: {error}") from error

    async def count(self) -> int:
        """Messages that are ready."""
        _, reader = await self._ready()
        answer = await reader.ask(reader.channel.queue_declare, self.lane.channel, passive=True)
        return int(answer.method.message_count)


def _posted(properties: BasicProperties, body: bytes) -> Posted:
    sent: dict[str, Any] = properties.headers or {}
    headers = {
        name: from_header(value)
        for name, value in queues.producers(sent).items()
        if name not in _OURS and isinstance(value, str)
    }
    identity = from_header(properties.message_id or sent.get(ID_HEADER, ""))
    return Posted(identity, from_header(sent.get(KEY_HEADER, "")), body, headers)
