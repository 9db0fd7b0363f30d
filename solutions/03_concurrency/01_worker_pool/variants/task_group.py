"""Structured concurrency: one task group, a child per message, a limit on the children.

As it would be written with anyio's task group and `CapacityLimiter`. A group ends all its
children when one of them raises, so each child catches everything inside.
"""

from __future__ import annotations

import asyncio

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle messages `workers` at a time until `stop` is set or `source` ends."""
    limiter = asyncio.BoundedSemaphore(workers)

    async def child(message: Message) -> None:
        try:
            await process(message, handle)
        finally:
            limiter.release()

    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(close_on_stop(source, stop))
        if stop.is_set():
            return
        async for message in source:
            # The message in hand while waiting here is the only one that has no handler.
            await limiter.acquire()
            if stop.is_set():
                # And no further take: it might bring this very message back, again and again, if
                # neither taking nor settling ever suspends and lets the watcher close the source.
                await settle(message, requeue=True)
                break
            group.create_task(child(message))
        if not stop.is_set():
            watcher.cancel()


async def close_on_stop(source: Source, stop: asyncio.Event) -> None:
    """End the receive loop from outside it: it may be waiting where no flag is looked at."""
    await stop.wait()
    await source.stop_receiving()


async def process(message: Message, handle: Handler) -> None:
    """One delivery; nothing but the group's own cancel leaves this function."""
    task = asyncio.current_task()
    try:
        await handle(message)
    except Permanent:
        await settle(message, requeue=False)
    except asyncio.CancelledError:
        if task is not None and task.cancelling():
            raise
        await settle(message, requeue=True)
    except Exception:  # noqa: BLE001 - an exception here would end every other child
        await settle(message, requeue=True)
    else:
        await settle(message)


async def settle(message: Message, *, requeue: bool | None = None) -> None:
    """Ack, or nack if told where to."""
    try:
        if requeue is None:
            await message.ack()
        else:
            await message.nack(requeue=requeue)
    except SettleFailed:
        return
