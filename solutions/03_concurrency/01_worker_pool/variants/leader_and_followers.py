"""N equal tasks, one of which may take: the leader takes, hands the lead on, and turns to work.

The lock is the lead. A leader races its take against `stop`, so the source is closed by nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle messages `workers` at a time until `stop` is set or `source` ends."""
    lead = asyncio.Lock()
    messages = aiter(source)
    stopping = asyncio.create_task(stop.wait())

    async def member() -> None:
        while True:
            async with lead:
                message = None if stop.is_set() else await next_or_stop(messages, stopping)
            if message is None:
                return
            await work(message, handle)

    members = [asyncio.create_task(member(), name=f"member-{n}") for n in range(workers)]
    try:
        await asyncio.gather(*members)
    finally:
        for task in (stopping, *members):
            task.cancel()
        await asyncio.gather(stopping, *members, return_exceptions=True)


async def next_or_stop(
    messages: AsyncIterator[Message], stopping: asyncio.Task[bool]
) -> Message | None:
    """Take the next message; None once the source has ended or `stopping` is done."""

    async def take() -> Message | None:
        return await anext(messages, None)

    taking = asyncio.create_task(take())
    try:
        await asyncio.wait({taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not taking.done():
            taking.cancel()  # loses nothing: the port says so
            await asyncio.wait({taking})
    # A message that came in the turn of stop is finished like any other.
    return None if taking.cancelled() else taking.result()


async def work(message: Message, handle: Handler) -> None:
    """Handle and settle one message."""
    try:
        try:
            await handle(message)
        except Permanent:
            await message.nack(requeue=False)
        except Exception:  # noqa: BLE001 - the port's rule: anything else is transient
            await message.nack(requeue=True)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            await message.nack(requeue=True)
        else:
            await message.ack()
    except SettleFailed:
        return
