"""A semaphore and a task per message: the slot is acquired before the take.

A task gives its slot back in its done callback, so it does so exactly once however it ended.
The set keeps the tasks alive: the event loop itself holds them weakly.
"""

from __future__ import annotations

import asyncio

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle messages `workers` at a time until `stop` is set or `source` ends."""
    slots = asyncio.Semaphore(workers)
    tasks: set[asyncio.Task[None]] = set()

    def finished(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        slots.release()

    async def receive() -> None:
        messages = aiter(source)
        while not stop.is_set():
            await slots.acquire()
            try:
                message = await anext(messages)
            except StopAsyncIteration:
                return
            task = asyncio.create_task(process(message, handle))
            tasks.add(task)
            task.add_done_callback(finished)

    receiver = asyncio.create_task(receive(), name="receiver")
    stopping = asyncio.create_task(stop.wait(), name="stopping")
    try:
        await asyncio.wait({receiver, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            await source.stop_receiving()
            receiver.cancel()  # it may be waiting for a slot
        await asyncio.wait({receiver, *tasks})
    finally:
        ours = [receiver, stopping, *tasks]
        for task in ours:
            task.cancel()
        await asyncio.gather(*ours, return_exceptions=True)


async def process(message: Message, handle: Handler) -> None:
    """One delivery: the handler in a task of its own, so that its end is data and not control flow."""
    attempt = asyncio.ensure_future(handle(message))
    try:
        await asyncio.wait({attempt})
    except asyncio.CancelledError:  # this task's, for the attempt's own would be inside `attempt`
        attempt.cancel()
        await asyncio.wait({attempt})
        raise
    try:
        if attempt.cancelled():
            await message.nack(requeue=True)
        elif (error := attempt.exception()) is None:
            await message.ack()
        else:
            await message.nack(requeue=not isinstance(error, Permanent))
    except SettleFailed:
        return
