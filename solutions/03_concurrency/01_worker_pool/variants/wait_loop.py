"""One loop around `asyncio.wait`: it alone takes, starts, settles and stops.

Everything that can happen next is a future in one set: a take, the stop, the end of a handler.
No queue, no semaphore, no callbacks; the state is three local variables.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle messages `workers` at a time until `stop` is set or `source` ends."""
    messages = aiter(source)
    stopping = asyncio.create_task(stop.wait())
    taking: asyncio.Task[Message | None] | None = None
    busy: set[asyncio.Task[None]] = set()
    open_ = True
    try:
        while open_ or busy:
            open_ = open_ and not stop.is_set()
            if open_ and taking is None and len(busy) < workers:
                taking = asyncio.create_task(take(messages))
            if not open_ and taking is not None:
                taking.cancel()
                await asyncio.wait({taking})
            if taking is not None and taking.done():
                message = None if taking.cancelled() else taking.result()
                taking = None
                if message is None:
                    open_ = False
                else:  # taken in the turn of stop, or before: it is ours to finish
                    busy.add(asyncio.create_task(process(message, handle)))
                continue
            events = {*busy, *([taking] if taking else []), *([stopping] if open_ else [])}
            if events:
                await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
            busy = {task for task in busy if not task.done()}
    finally:
        ours = [stopping, *busy, *([taking] if taking else [])]
        for task in ours:
            task.cancel()
        await asyncio.gather(*ours, return_exceptions=True)


async def take(messages: AsyncIterator[Message]) -> Message | None:
    """Take the next message; None at the end of the source."""
    return await anext(messages, None)


async def process(message: Message, handle: Handler) -> None:
    """One delivery from handler to settlement."""
    task = asyncio.current_task()
    failure: BaseException | None = None
    try:
        await handle(message)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - judged below
        failure = error
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
    try:
        if failure is None:
            await message.ack()
        else:
            await message.nack(requeue=not isinstance(failure, Permanent))
    except SettleFailed:
        return
