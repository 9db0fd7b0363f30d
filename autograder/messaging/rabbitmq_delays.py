"""Delays on RabbitMQ: a confirmed copy waits in a queue of its own until its time is up."""

from __future__ import annotations

import asyncio
import copy
from contextlib import suppress
from typing import TYPE_CHECKING

from autograder.messaging import rabbitmq_lane as queues
from autograder.messaging.rabbitmq_link import Connection, Publisher

if TYPE_CHECKING:
    from pika.spec import BasicProperties


class Delays:
    """The delay queues of one lane, reached over one connection.

    They are used on a channel of their own: what the broker refuses there costs no delivery.
    """

    def __init__(self, lane_queue: str, connection: Connection) -> None:
        self._lane_queue = lane_queue
        self._connection = connection
        self._publisher: Publisher | None = None
        self._opening = asyncio.Lock()
        self._noted: set[int] = set()  # waits whose queue is on the lane's list

    async def keep(
        self, properties: BasicProperties, body: bytes, attempts: int, delay_s: float
    ) -> None:
        """Have a copy come back after the delay, with the attempts so far.

        Returns when the broker has confirmed the copy; raises `ConnectionError` if it has not.
        """
        waiting = copy.copy(properties)
        waiting.headers = queues.producers(properties.headers) | {queues.ATTEMPTS_HEADER: attempts}
        publisher = await self._ready_publisher()
        queue = await self._declared(publisher, queues.wait_ms(delay_s))
        await publisher.publish(queue, body, waiting)

    async def _ready_publisher(self) -> Publisher:
        async with self._opening:
            if self._publisher is None or self._publisher.line.ended:
                self._publisher = Publisher(await self._connection.line())
                await self._publisher.open()
            return self._publisher

    async def _declared(self, publisher: Publisher, wait_ms: int) -> str:
        """The queue for this wait: declared anew each time, which also keeps it from expiring."""
        queue = queues.delay_queue(self._lane_queue, wait_ms)
        if wait_ms not in self._noted:
            with suppress(ConnectionError):  # a lane that somebody else made has no such list
                await publisher.publish(queues.delays(self._lane_queue), queue.encode())
            self._noted.add(wait_ms)
        await publisher.line.ask(
            publisher.line.channel.queue_declare,
            queue,
            durable=True,
            arguments=queues.delay_arguments(self._lane_queue, wait_ms),
        )
        return queue
