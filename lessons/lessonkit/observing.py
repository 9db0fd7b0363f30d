"""Run a consumer from a lesson's cell against a real broker and keep what happened."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import time
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from autograder.exam.engines import Engine, Outgoing, open_engine
from autograder.messaging import Handler, Source
from autograder.messaging.adapter import AdapterSource, Lane, open_source
from autograder.model import BrokerState, History, Kind
from autograder.subject.recorded import Book, RecordedSource, StopEvent
from lessonkit.broker import ENGINE, server
from lessonkit.observation import Observation
from lessonkit.orders import Order
from lessonkit.recording import Notebook, recorded

PREFETCH = 256
SAMPLE_S = 0.02
STILL_S = 0.4  # nothing taken for so long: no more will be
GOODBYE_S = 2.0  # how long a stopped consumer may take; then it is cancelled
Consumer = Callable[..., Awaitable[None]]


async def observe(
    consumer: Consumer,
    handle: Handler,
    *,
    orders: int | Sequence[bytes | Order],
    seconds: float,
    workers: int | None = None,
    memory: bool = False,
) -> Observation:
    """Publish orders, let `consumer` work on them for so many seconds or until all are settled.

    `orders` is a number of invoices, or the orders themselves: bodies, or `Order`s with keys.
    The consumer gets the source, the handler, and of `workers` and `stop` what its signature asks
    for. At the end `stop` is set; who does not return within two seconds, or has no stop, is
    cancelled. With `memory` nothing is recorded but what Python allocates meanwhile.
    """
    if isinstance(orders, int):
        orders = [_invoice(number) for number in range(orders)]
    engine = await open_engine(ENGINE, server().url)
    try:
        async with (
            _lane(engine, orders) as lane,
            open_source(ENGINE, lane, prefetch=PREFETCH) as source,
        ):
            watch = _Watch(source, len(orders), recording=not memory)
            with _measured(memory) as allocated, _unheard_counted(watch):
                await watch.over(consumer, handle, workers, seconds)
            watch.memory_bytes = allocated[0]
            return watch.observation(await engine.state(lane), workers or 1)
    finally:
        await engine.close()


def _invoice(number: int) -> bytes:
    """About a kilobyte, as an order with a few lines has."""
    line = {"sku": "LV-4711", "title": "Teapot, blue, 1.2 l", "pieces": 1, "price": "24.90"}
    return json.dumps({"order": number, "customer": number % 900, "lines": [line] * 12}).encode()


def _outgoing(number: int, order: bytes | Order) -> Outgoing:
    if isinstance(order, bytes):
        return Outgoing(id=f"order-{number:04d}", body=order)
    return Outgoing(id=order.name, key=order.account, body=order.body)


@asynccontextmanager
async def _lane(engine: Engine, orders: Sequence[bytes | Order]) -> AsyncIterator[Lane]:
    lane = await engine.open_lane("lesson", lease_s=60.0)
    try:
        messages = [_outgoing(number, order) for number, order in enumerate(orders, 1)]
        await engine.publish(lane, messages)
        yield lane
    finally:
        await engine.drop_lane(lane)


class _Watch:
    """One consumer at work, watched from beside it."""

    def __init__(self, source: AdapterSource, published: int, *, recording: bool) -> None:
        self._source = source
        self._published = published
        self._recording = recording
        self._notes: Any = Notebook()
        self._book = Book()
        self._began = time.monotonic()
        self.samples: list[tuple[float, int, int]] = []
        self.errors: Counter[str] = Counter()
        self.unheard = 0
        self.memory_bytes = 0
        self.returned = False
        self._events: tuple[Any, ...] = ()
        self._ended = 0.0

    async def over(
        self, consumer: Consumer, handle: Handler, workers: int | None, seconds: float
    ) -> None:
        """Run the consumer to its end, or to ours."""
        stop = StopEvent(self._notes)
        before = asyncio.all_tasks()
        running = asyncio.ensure_future(
            consumer(*self._given(handle), **_wanted(consumer, workers, stop))
        )
        deadline = time.monotonic() + seconds
        while not running.done() and time.monotonic() < deadline and not self._over():
            self._sample()
            await asyncio.wait({running}, timeout=SAMPLE_S)
        stop.ask()
        if "stop" in inspect.signature(consumer).parameters:
            await asyncio.wait({running}, timeout=GOODBYE_S)
        self._sample()
        self.returned = running.done() and not running.cancelled() and not running.exception()
        self._events = self._notes.recorder.events  # our own tidying up is no part of the history
        self._ended = time.monotonic()
        left = {task for task in asyncio.all_tasks() - before if _is_of_a_lesson(task)}
        for task in {running, *left}:
            task.cancel()
        await asyncio.gather(running, *left, return_exceptions=True)

    def _given(self, handle: Handler) -> tuple[Source, Handler]:
        if not self._recording:
            return self._source, handle
        source = RecordedSource(self._source, self._notes, self._book)
        return source, recorded(handle, self._book, self.errors)

    def _sample(self) -> None:
        in_hand = self._source.standing().in_hand
        self.samples.append((time.monotonic() - self._began, in_hand, self._book.busy))

    def _over(self) -> bool:
        """All is settled, or nothing is left that could be; where memory is watched: all is still."""
        if not self._recording:
            return self._still() and self.samples[-1][1] > 0
        count = self._notes.recorder.count
        idle = count("started") >= self._published and not self._book.busy
        return bool(count("settled") >= self._published) or (idle and self._still())

    def _still(self) -> bool:
        """Whether the number in hand has not changed for a while."""
        late = [hand for at, hand, _ in self.samples if at > self.samples[-1][0] - STILL_S]
        return len(late) * SAMPLE_S > STILL_S / 2 and len(set(late)) == 1

    def observation(self, state: BrokerState, workers: int) -> Observation:
        """All of it, when it is over."""
        history = History(self._events, workers=workers, engine=ENGINE, broker=state)
        taken = history.of(Kind.TAKEN)
        first = taken[0].at if taken else 0.0
        return Observation(
            history=history,
            published=self._published,
            seconds=self._ended - self._began - first,
            samples=[(at - first, hand, busy) for at, hand, busy in self.samples],
            memory_bytes=self.memory_bytes,
            unheard=self.unheard,
            returned=self.returned,
            errors=self.errors,
        )


def _wanted(consumer: Consumer, workers: int | None, stop: asyncio.Event) -> dict[str, Any]:
    offered = {"workers": workers, "stop": stop}
    asked = inspect.signature(consumer).parameters
    return {name: value for name, value in offered.items() if name in asked}


def _is_of_a_lesson(task: asyncio.Task[Any]) -> bool:
    """Whether a cell's own code made this task: clients and adapters end theirs themselves."""
    code = getattr(task.get_coro(), "cr_code", None)
    name = code.co_filename if code else ""
    return "site-packages" not in name and "autograder" not in name


@contextmanager
def _measured(wanted: bool) -> Iterator[list[int]]:  # noqa: FBT001 - a switch, named by its caller
    """The peak of what Python allocates meanwhile, in bytes; [0] if not wanted."""
    peak = [0]
    if not wanted:
        yield peak
        return
    tracemalloc.start()
    try:
        yield peak
        peak[0] = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@contextmanager
def _unheard_counted(watch: _Watch) -> Iterator[None]:
    """Count exceptions that asyncio would only log, in place of printing thousands of them."""
    loop = asyncio.get_running_loop()
    previous = loop.get_exception_handler()

    def count(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        watch.unheard += "never retrieved" in str(context.get("message"))

    loop.set_exception_handler(count)
    try:
        yield
        gc.collect()  # a task tells of its exception when it goes
    finally:
        loop.set_exception_handler(previous)
