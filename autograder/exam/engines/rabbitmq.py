"""RabbitMQ, as the examiner sees it: one quorum queue per lane, and the few queues beside it.

AMQP tells how many messages of a queue are ready and how many consumers it has, now and exactly.
What is with consumers and not settled it does not tell. Where nobody consumes there is nothing to
tell; else the management API is asked (see `rabbitmq_management`), and without one the engine says
that it cannot know. Where a number is not known, it is -1: nothing is estimated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any

from pika.exceptions import AMQPError

from autograder.exam.engines import Outgoing, lane_name, our_fault
from autograder.exam.engines.rabbitmq_management import Management
from autograder.messaging import rabbitmq_lane as queues
from autograder.messaging.adapter import Lane
from autograder.messaging.envelope import ID_HEADER, KEY_HEADER, from_header
from autograder.messaging.rabbitmq_link import Connection, Line, Publisher
from autograder.messaging.rabbitmq_route import properties_of
from autograder.model import BrokerState

if TYPE_CHECKING:
    from pika import BasicProperties

CONFIRM_WINDOW = 2_000
"""Messages published and not yet confirmed, at most."""

_HEARTBEAT_S = 60
_ON_ITS_WAY_S = 0.02  # far longer than the broker takes to move a message between two queues


async def connect(url: str) -> RabbitEngine:
    """Connect to the server at `url`."""
    engine = RabbitEngine(url)
    async with engine.ours():
        await engine.open()
    return engine


class RabbitEngine:
    """One connection to one RabbitMQ server, and the way to its management API."""

    name = "rabbitmq"

    def __init__(self, url: str) -> None:
        self.version = ""
        self._url = url
        self._shown = url.rpartition("@")[2].removeprefix("amqp://").removeprefix("amqps://")
        self._connection = Connection(url, heartbeat_s=_HEARTBEAT_S)
        self._management = Management(url)
        self._publisher: Publisher
        self._line: Line
        self._turn = asyncio.Lock()  # one question at a time: a refusal closes the channel
        self._confirmed: dict[str, int] = {}  # by lane: messages that are the broker's
        self._delays: dict[str, set[str]] = {}  # by lane: its delay queues

    async def open(self) -> None:
        """Connect, and open a channel to ask and one to publish on."""
        await self._connection.open()
        self.version = str(self._connection.server.get("version", ""))
        self._line = await self._connection.line()
        self._publisher = Publisher(await self._connection.line())
        await self._publisher.open()

    async def open_lane(self, label: str, *, lease_s: float = 5.0) -> Lane:
        """The lane's queue, its dead letters and its list of delays."""
        return await self._open(lane_name(label), lease_s)

    async def open_letters(self, lane: Lane) -> Lane:
        """An exchange that hands everything to a queue of its name."""
        letters = await self._open(queues.letters(lane.channel), lane.lease_s)
        async with self.ours():
            name = letters.channel
            await self._ask("exchange_declare", name, exchange_type="fanout", auto_delete=True)
            await self._ask("queue_bind", name, name)
        return letters

    async def _open(self, name: str, lease_s: float) -> Lane:
        async with self.ours():
            for queue in queues.dead_letters(name), queues.delays(name):
                await self._declare(queue, queues.side_arguments())
            await self._declare(name, queues.queue_arguments(name))
        self._confirmed[name] = 0
        self._delays[name] = set()
        return Lane(self._url, name, f"{name}-worker", lease_s)

    async def read(self, lane: Lane) -> list[Outgoing]:
        """One `basic.get` after the other; a delayed message is waited for.

        A submission may have written thousands: what the server has a time limit for is each answer.
        """
        found: list[Outgoing] = []
        more = True
        while more:  # what a dead reader had in hand is ready again an instant after its end
            await asyncio.sleep(_ON_ITS_WAY_S)
            async with self.ours():
                delayed, (ready, _) = await self._delayed(lane), await self._depth(lane.channel)
            for _ in range(ready):  # nobody else reads here
                async with self.ours():
                    found.append(_outgoing(*await self._get(lane.channel)))
            more = bool(delayed or ready)
        return found

    async def publish(self, lane: Lane, messages: Sequence[Outgoing]) -> list[str]:
        """Publish in order; the queue has every message when this returns."""
        for start in range(0, len(messages), CONFIRM_WINDOW):
            async with self.ours():
                window = messages[start : start + CONFIRM_WINDOW]
                answers = [self._send(lane.channel, message) for message in window]
                await asyncio.gather(*answers)
            self._confirmed[lane.channel] += len(window)
        return [message.id for message in messages]

    def _send(self, queue: str, message: Outgoing) -> asyncio.Future[None]:
        properties = properties_of(message.id, message.key, dict(message.headers))
        return self._publisher.publish(queue, message.body, properties)

    async def state(self, lane: Lane) -> BrokerState:
        """What is ready, what waits out a delay, and what is with consumers, as far as it is known.

        A delayed message counts as waiting.
        """
        async with self.ours():
            delayed, ready, consumers = await self._at_rest(lane)
            unsettled = 0
            if consumers:
                counts = await self._management.fresh_counts(lane.channel)
                if counts is None:
                    return BrokerState(waiting=ready + delayed or -1, consumers=consumers)
                if await self._delayed(lane) != delayed:
                    return BrokerState()  # it moves while we count: whoever asks may ask again
                ready, unsettled = counts
        waiting = ready + delayed
        settled = self._confirmed[lane.channel] - waiting - unsettled
        return BrokerState(
            waiting=waiting, unsettled=unsettled, settled=max(settled, 0), consumers=consumers
        )

    async def at_rest(self, lane: Lane) -> BrokerState:
        """The same: what a consumer had is ready as soon as the broker has seen it go."""
        return await self.state(lane)

    async def _at_rest(self, lane: Lane) -> tuple[int, int, int]:
        """Messages delayed, messages ready, and consumers.

        On its way from a delay queue to the lane's a message is in neither, for an instant. So where
        there are delays and nobody consumes, two looks in a row have to agree.
        """
        seen = await self._delayed(lane), *await self._depth(lane.channel)
        while self._delays[lane.channel] and not seen[2]:
            await asyncio.sleep(_ON_ITS_WAY_S)
            again = await self._delayed(lane), *await self._depth(lane.channel)
            if again == seen:
                break
            seen = again
        return seen

    async def expire(self, lane: Lane) -> None:
        """Wait until the broker has seen the end of the dead process's connection.

        That is when everything it left unsettled is ready again; no lease has to run out.
        """
        async with self.ours():
            while (await self._depth(lane.channel))[1]:  # noqa: ASYNC110 - it has to be asked
                await asyncio.sleep(0.005)

    async def disown(self, lane: Lane) -> None:
        """Nothing: a channel that is gone has lost its deliveries, and the broker knows at once."""

    async def drop_lane(self, lane: Lane) -> None:
        """Delete its queues; a queue that is not there counts as deleted."""
        async with self.ours():
            with suppress(ConnectionResetError):  # no such list: it was dropped before
                await self._delayed(lane)
            noted = self._delays.pop(lane.channel, set())
            beside = queues.dead_letters(lane.channel), queues.delays(lane.channel)
            # the lane's own first: what is given back to it from now on has nowhere to go
            if queues.is_letters(lane.channel):
                await self._ask("exchange_delete", lane.channel)
            for queue in (lane.channel, *sorted(noted), *beside):
                await self._ask("queue_delete", queue)
            self._confirmed.pop(lane.channel, None)

    async def close(self) -> None:
        """Disconnect."""
        await self._connection.close(2.0)

    # -- questions

    async def _declare(self, queue: str, arguments: dict[str, Any]) -> None:
        await self._ask("queue_declare", queue, durable=True, arguments=arguments)

    async def _depth(self, queue: str) -> tuple[int, int]:
        """Messages ready and consumers, now. A consumer counts while anything of it is unsettled."""
        answer = (await self._ask("queue_declare", queue, passive=True)).method
        return int(answer.message_count), int(answer.consumer_count)

    async def _delayed(self, lane: Lane) -> int:
        """How many messages wait out a delay. Takes note of delay queues that are new."""
        known = self._delays.setdefault(lane.channel, set())
        while (noted := await self._next_note(lane)) is not None:
            known.add(noted)
        total = 0
        for queue in list(known):
            try:
                total += (await self._depth(queue))[0]
            except ConnectionResetError:  # unused for long, it has expired
                known.discard(queue)
        return total

    async def _next_note(self, lane: Lane) -> str | None:
        """The next name on the lane's list of delay queues."""
        queue = queues.delays(lane.channel)
        if not (await self._depth(queue))[0]:
            return None
        _, body = await self._get(queue)
        return body.decode()

    async def _get(self, queue: str) -> tuple[BasicProperties, bytes]:
        """The next message of a queue that has one, taken out of it."""
        got: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        async with self._turn:
            line = await self._open_line()
            line.say(
                line.channel.basic_get,
                queue,
                lambda *answer: got.set_result(answer[-2:]),
                auto_ack=True,
            )
            properties, body = await line.awaited(got)
            return properties, body

    async def _ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        async with self._turn:
            line = await self._open_line()
            return await line.ask(getattr(line.channel, method), *arguments, **options)

    async def _open_line(self) -> Line:
        if self._line.ended:
            self._line = await self._connection.line()
        return self._line

    def ours(self) -> AbstractAsyncContextManager[None]:
        """Charge what the server does wrong to us."""
        return our_fault(f"The RabbitMQ server at {self._shown}", AMQPError)


def _outgoing(properties: BasicProperties, body: bytes) -> Outgoing:
    """A message as it was published."""
    sent = queues.producers(properties.headers)
    headers = {name: from_header(it) for name, it in sent.items() if isinstance(it, str)}
    identity, key = headers.pop(ID_HEADER, ""), headers.pop(KEY_HEADER, "")
    return Outgoing(from_header(properties.message_id or "") or identity, key, body, headers)
