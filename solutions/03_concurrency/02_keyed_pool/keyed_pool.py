"""A queue for each key that has messages in hand, and a ready list of keys that nobody works on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0  # between two tries of one message


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle the messages of `source`, in order within a key, until `stop` is set or it ends.

    At most `2 * workers + 2` messages are in hand: those that have room, and the one the receiver
    has just taken.
    """
    if stop.is_set():
        return

    keys = Keys()
    # One bound for all keys together: a bound for each would let a full one hold up the receiver,
    # and with it every other key.
    room = asyncio.Semaphore(2 * workers + 1)

    async def close_on_stop() -> None:
        # A receiver with nothing to receive would look at no flag; closing the source wakes it.
        await stop.wait()
        await source.stop_receiving()

    async def work() -> None:
        while (message := await keys.next()) is not None:
            if stop.is_set():
                await settle(partial(message.nack, requeue=True))  # and so all that follow it
            else:
                await process(message, handle, stop)
            keys.done_with(message)
            room.release()

    # The group joins its tasks however this ends. Cancelling `run` cancels them all: nothing is
    # settled on that way, so the broker brings everything back.
    async with asyncio.TaskGroup() as tasks:
        closer = tasks.create_task(close_on_stop(), name="closer")
        for number in range(1, workers + 1):
            tasks.create_task(work(), name=f"worker-{number}")
        async for message in source:
            await room.acquire()
            keys.add(message)
        await keys.nothing_left()
        keys.end(workers)
        if not stop.is_set():
            closer.cancel()  # the source ended by itself; once begun, closing is let finish


class Keys:
    """The keys of all messages in hand, and which of them nobody works on.

    A key is in the ready list or with one worker, never in both places: that is all the order
    there is.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Message]] = {}
        self._ready: asyncio.Queue[str | None] = asyncio.Queue()

    def add(self, message: Message) -> None:
        """Behind the others of its key; a key that was not in hand is ready."""
        if message.key in self._waiting:
            self._waiting[message.key].append(message)
        else:
            self._waiting[message.key] = deque([message])
            self._ready.put_nowait(message.key)

    async def next(self) -> Message | None:
        """The first message of a ready key; None if the worker may go home."""
        key = await self._ready.get()
        return None if key is None else self._waiting[key][0]

    def done_with(self, message: Message) -> None:
        """The first message of its key is settled: the next one's turn comes behind other keys."""
        waiting = self._waiting[message.key]
        waiting.popleft()
        if waiting:
            self._ready.put_nowait(message.key)
        else:
            del self._waiting[message.key]  # there may be more keys than memory
        self._ready.task_done()

    async def nothing_left(self) -> None:
        """Return when no key is ready, and none with a worker."""
        await self._ready.join()

    def end(self, workers: int) -> None:
        """Send so many workers home."""
        for _ in range(workers):
            self._ready.put_nowait(None)


async def process(message: Message, handle: Handler, stop: asyncio.Event) -> None:
    """Handle one message, again and again if need be, and settle it; its key waits meanwhile."""
    pause_s = FIRST_PAUSE_S
    while (settlement := await attempt(message, handle)) is None:
        # Given back, it would come after messages of its key that are here already. It is given
        # back only with all of those, and that is at the stop.
        if await stops_within(stop, pause_s):
            settlement = partial(message.nack, requeue=True)
            break
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    await settle(settlement)


async def attempt(message: Message, handle: Handler) -> Callable[[], Awaitable[None]] | None:
    """One try: how to settle the message after it, or None if it is to be tried again."""
    settlement: Callable[[], Awaitable[None]] | None = message.ack
    try:
        await handle(message)
    except Permanent:
        settlement = partial(message.nack, requeue=False)
    except (Exception, asyncio.CancelledError):  # noqa: BLE001 - any failure is this message's alone
        settlement = None
    # A handler may raise `CancelledError` by itself, or swallow ours: only the task knows which.
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
    return settlement


async def stops_within(stop: asyncio.Event, seconds: float) -> bool:
    """Wait so long, or until the stop: whether it came."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
    return stop.is_set()


async def settle(settlement: Callable[[], Awaitable[None]]) -> None:
    """Tell the broker, unless the connection that delivered the message is gone."""
    with suppress(SettleFailed):  # it is the broker's again and will come back by itself
        await settlement()
