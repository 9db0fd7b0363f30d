"""No queue at all: N tasks each take from the source, handle, settle, and take again.

The source is a queue already. In hand is what is being handled, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle messages `workers` at a time until `stop` is set or `source` ends."""

    async def close_on_stop() -> None:
        await stop.wait()
        await source.stop_receiving()

    async def pull() -> None:
        while not stop.is_set():
            try:
                message = await anext(messages)
            except StopAsyncIteration:
                return
            await process(message, handle)

    messages = aiter(source)
    async with asyncio.TaskGroup() as group:
        closer = group.create_task(close_on_stop())
        await asyncio.wait([group.create_task(pull()) for _ in range(workers)])
        if not stop.is_set():
            closer.cancel()


async def process(message: Message, handle: Handler) -> None:
    """One delivery from handler to settlement."""
    with contextlib.suppress(SettleFailed):
        try:
            await handle(message)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            await message.nack(requeue=True)
        except Exception as error:  # noqa: BLE001 - one failure is one message's
            await message.nack(requeue=not isinstance(error, Permanent))
        else:
            await message.ack()
