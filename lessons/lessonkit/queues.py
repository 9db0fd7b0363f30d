"""A queue with dead letters on the lesson's broker, for consumers that come and go."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import nats
import psutil

from autograder.exam.engines import Engine, Outgoing, open_engine
from autograder.messaging import Handler
from autograder.messaging.adapter import Lane, open_source
from autograder.messaging.route import Letter, open_route
from autograder.model import History, Kind
from autograder.subject.letters import RecordedDeadLetters, RecordedPublish
from autograder.subject.recorded import Book, RecordedSource
from lessonkit.broker import ENGINE, server
from lessonkit.recording import Notebook, recorded
from lessonkit.shift import Shift

LOOK_S = 0.02
PREFETCH = 1
"""The client asks for the next message when it has none: what is given back comes next."""

Function = Callable[..., Awaitable[None]]


async def open_queue() -> Queue:
    """An empty queue. What it holds is gone with the lesson's server."""
    return Queue(await open_engine(ENGINE, server().url))


class Queue:
    """One queue and its dead letters."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lane: Lane | None = None
        self._letters: Lane | None = None

    async def close(self) -> None:
        """Drop what it holds, and disconnect."""
        await self._drop()
        await self._engine.close()

    async def _drop(self) -> None:
        for lane in (self._letters, self._lane):
            if lane is not None:
                await self._engine.drop_lane(lane)

    async def fill(self, bodies: Sequence[bytes], *, handed_out: int) -> None:
        """Begin anew: an empty queue, no dead letters, and then these orders.

        `handed_out` is how many unsettled messages the broker has out at one time
        (`max_ack_pending`).
        """
        await self._drop()
        self._lane = await self._engine.open_lane("lesson", lease_s=60.0)
        self._letters = await self._engine.open_letters(self._lane)
        await _bound(self._lane, handed_out)
        numbered = enumerate(bodies, start=1)
        orders = [Outgoing(f"order-{number:02d}", body=body) for number, body in numbered]
        await self._engine.publish(self._lane, orders)

    async def work(
        self,
        consumer: Function,
        handle: Handler,
        *,
        seconds: float,
        max_attempts: int = 3,
        replay: Function | None = None,
        limit: int = 0,
    ) -> Shift:
        """Let `consumer` work for so many seconds, or until nothing is left to do.

        It gets the source, the handler, and of `dead_letters` and `max_attempts` what its
        signature asks for. If it raises, it is started again on a new connection, as a supervisor
        does. `replay` runs beside it, once.
        """
        notes, meter = Notebook(), Meter()
        there = await self._waiting(self._opened[0])
        deadline = time.monotonic() + seconds
        operator = asyncio.ensure_future(self._replayed(replay, limit, notes))
        raised: Counter[str] = Counter()
        over = False
        while not over:
            async with self._called(consumer, handle, notes, max_attempts) as running:
                while not (over or running.done()):
                    await asyncio.wait({running}, timeout=LOOK_S)
                    done = operator.done() and _left(notes, there) <= 0
                    over = done or time.monotonic() > deadline
                share = meter.share()
                if running.done() and (error := running.exception()):
                    raised[type(error).__name__] += 1
        if operator.done():
            operator.result()  # what it raised is the page's own mistake
        await _end(operator)
        return await self._shift(notes, raised, share)

    async def replay(self, function: Function, *, limit: int) -> Shift:
        """Run an operator's `function`, and nothing else.

        It gets of `dead_letters`, `publish` and `limit` what its signature asks for.
        """
        notes, meter = Notebook(), Meter()
        await self._replayed(function, limit, notes)
        return await self._shift(notes, Counter(), meter.share())

    async def letters(self) -> list[Letter]:
        """All dead letters, the oldest first. They stay where they are."""
        async with open_route(ENGINE, self._opened[1]) as route:
            found = [await anext(route) for _ in range(await route.count())]
            for letter in found:
                await letter.nack(requeue=True)  # in order: so they will be read again
        return found

    async def _shift(self, notes: Notebook, raised: Counter[str], share: float) -> Shift:
        lane, letters = self._opened
        return Shift(
            History(notes.recorder.events, workers=1, engine=ENGINE),
            waiting=await self._waiting(lane),
            letters=await self._waiting(letters),
            raised=raised,
            processor=share,
        )

    async def _waiting(self, lane: Lane) -> int:
        """Messages there, while nobody has any in hand."""
        state = await self._engine.state(lane)
        return state.waiting + state.unsettled

    @property
    def _opened(self) -> tuple[Lane, Lane]:
        if self._lane is None or self._letters is None:
            raise ValueError("the queue is not filled: `await queue.fill(orders)`")
        return self._lane, self._letters

    @asynccontextmanager
    async def _called(
        self, consumer: Function, handle: Handler, notes: Any, max_attempts: int
    ) -> AsyncIterator[asyncio.Future[None]]:
        """The consumer at work, on connections of its own; ended with the context."""
        lane, letters = self._opened
        book = Book()
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(open_source(ENGINE, lane, prefetch=PREFETCH))
            route = await stack.enter_async_context(open_route(ENGINE, letters))
            offered = {
                "source": RecordedSource(source, notes, book),
                "handle": recorded(handle, book, Counter()),
                "dead_letters": RecordedDeadLetters(route, notes, book),
                "max_attempts": max_attempts,
            }
            running = asyncio.ensure_future(consumer(**_asked(consumer, offered)))
            try:
                yield running
            finally:
                await _end(running)

    async def _replayed(self, function: Function | None, limit: int, notes: Any) -> None:
        if function is None:
            return
        lane, letters = self._opened
        book = Book()
        async with open_route(ENGINE, lane) as back, open_route(ENGINE, letters) as route:
            kinds = Kind.REPUBLISH, Kind.REPUBLISHED
            offered = {
                "dead_letters": RecordedDeadLetters(route, notes, book),
                "publish": RecordedPublish(back, notes, book, kinds),
                "limit": limit,
            }
            await function(**_asked(function, offered))


class Meter:
    """The processor time of this process and of the broker, from now on."""

    def __init__(self) -> None:
        pid = server().pid  # 0 for a broker that we did not start: what it uses is not ours to see
        self._processes = [psutil.Process(), *([psutil.Process(pid)] if pid else [])]
        self._began, self._used = time.monotonic(), self._now()

    def share(self) -> float:
        """Seconds of processor time for each second that has passed."""
        return (self._now() - self._used) / (time.monotonic() - self._began)

    def _now(self) -> float:
        spent = [each.cpu_times() for each in self._processes]
        return sum(each.user + each.system for each in spent)


async def _bound(lane: Lane, handed_out: int) -> None:
    """Have the broker hand out no more than this before something is settled."""
    client = await nats.connect(lane.url)
    try:
        streams = client.jetstream()
        config = (await streams.consumer_info(lane.channel, lane.consumer)).config
        config.max_ack_pending = handed_out
        await streams.add_consumer(lane.channel, config)
    finally:
        await client.close()


async def _end(task: asyncio.Future[None]) -> None:
    """Cancel until it is over: a client's `wait_for` may swallow a cancel on Python 3.11."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=LOOK_S)


def _asked(function: Function, offered: dict[str, Any]) -> dict[str, Any]:
    asked = inspect.signature(function).parameters
    return {name: value for name, value in offered.items() if name in asked}


def _left(notes: Notebook, there: int) -> int:
    """Messages that are not settled for good, of those that were there and those put back."""
    seen = notes.counts
    return there + seen[Kind.REPUBLISHED] - (seen[Kind.SETTLED] - seen[Kind.REQUEUE])
