"""A task for each message behind a lock of its key: an asyncio.Lock wakes whoever asked first.

The order is that of asking, so each task asks for the lock before anything else is awaited. Locks
are counted and go with their last message. The task group owns everything.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source


@dataclass
class Turn:
    """The lock of one key, and how many messages want it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted: int = 0
    goes_back: bool = False  # a message of it was given back: so are all that follow


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle messages in order within a key until `stop` is set or `source` ends."""
    turns: dict[str, Turn] = {}
    slots = asyncio.BoundedSemaphore(workers)
    room = asyncio.BoundedSemaphore(2 * workers)  # and one more, which has just been taken

    async def child(message: Message, turn: Turn) -> None:
        try:
            async with turn.lock:
                turn.goes_back = turn.goes_back or not await work(message)
                if turn.goes_back:
                    await settle(message, requeue=True)
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del turns[message.key]
            room.release()

    async def work(message: Message) -> bool:
        """Whether the message was settled."""
        pause_s = 0.05
        turn = turns[message.key]
        while not (turn.goes_back or stop.is_set()):
            async with slots:
                settled = False if stop.is_set() else await attempt(message, handle)
            if settled:
                return True
            await stopped_or_after(stop, pause_s)
            pause_s = min(2 * pause_s, 1.0)
        return False

    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(close_on_stop(source, stop))
        if stop.is_set():
            return
        async for message in source:
            while room.locked() and not stop.is_set():
                await until_free(room)
            if stop.is_set():
                # And no further take: it might bring this very message back, again and again.
                await settle_last(message, turns)
                break
            await room.acquire()
            turn = turns.setdefault(message.key, Turn())
            turn.wanted += 1
            group.create_task(child(message, turn))
        if not stop.is_set():
            watcher.cancel()


async def settle_last(message: Message, turns: dict[str, Turn]) -> None:
    """Give the message back that nobody has begun, behind those of its key."""
    if (turn := turns.get(message.key)) is not None:
        turn.goes_back = True
        async with turn.lock:
            await settle(message, requeue=True)
    else:
        await settle(message, requeue=True)


async def until_free(room: asyncio.Semaphore) -> None:
    """Return when there was room for one more."""
    await room.acquire()
    room.release()


async def close_on_stop(source: Source, stop: asyncio.Event) -> None:
    """End the receive loop from outside it: it may be waiting where no flag is looked at."""
    await stop.wait()
    await source.stop_receiving()


async def stopped_or_after(stop: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until the stop."""
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({stopping}, timeout=seconds)
    finally:
        stopping.cancel()


async def attempt(message: Message, handle: Handler) -> bool:
    """One try; whether it settled the message."""
    task = asyncio.current_task()
    try:
        await handle(message)
    except Permanent:
        await settle(message, requeue=False)
    except asyncio.CancelledError:
        if task is not None and task.cancelling():
            raise
        return False
    except Exception:  # noqa: BLE001 - an exception here would end every other child
        return False
    else:
        await settle(message)
    return True


async def settle(message: Message, *, requeue: bool | None = None) -> None:
    """Ack, or nack if told where to."""
    try:
        if requeue is None:
            await message.ack()
        else:
            await message.nack(requeue=requeue)
    except SettleFailed:
        return
