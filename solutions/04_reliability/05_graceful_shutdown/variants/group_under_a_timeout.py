"""Structured: a task group of pullers inside a time limit that is moved up when a signal comes.

Before the signal there is no limit; the first one sets it `deadline_s` ahead, the second to now.
Whatever the limit cancels leaves the group by itself, and messages torn off are given back by hand.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

from autograder.messaging import Connect, Connection, Handler, Message, Permanent, SettleFailed


async def main(connect: Connect, handle: Handler, *, workers: int, deadline_s: float) -> int:
    """Consume until a signal comes; 0 if the group came home, 75 (EX_TEMPFAIL) if it was torn off."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    limit = asyncio.timeout(None)
    entered = False

    def on_signal() -> None:
        if entered and not limit.expired():
            limit.reschedule(loop.time() + (0 if told.is_set() else deadline_s))
        told.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)

    source = await connect()
    try:
        async with limit:
            entered = True
            if told.is_set():
                return 0
            async with asyncio.TaskGroup() as group:
                group.create_task(stop_when(told, source))
                for _ in range(workers):
                    group.create_task(pull(source, handle))
    except TimeoutError:
        return 75
    finally:
        await source.close()
    return 0


async def stop_when(told: asyncio.Event, source: Connection) -> None:
    """End all takes once the signal has come."""
    await told.wait()
    await source.stop_receiving()


async def pull(source: Connection, handle: Handler) -> None:
    """Take, handle, settle."""
    async for message in source:
        with suppress(SettleFailed):
            await process(message, handle)


async def process(message: Message, handle: Handler) -> None:
    """One delivery from handler to settlement."""
    task = asyncio.current_task()
    try:
        await handle(message)
    except asyncio.CancelledError:
        await message.nack(requeue=True)  # torn off or not: it has to be done again
        if task is not None and task.cancelling():
            raise
    except Permanent:
        await message.nack(requeue=False)
    except Exception:  # noqa: BLE001 - one failure is one message's
        await message.nack(requeue=True)
    else:
        await message.ack()
