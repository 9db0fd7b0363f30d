"""A bounded queue and N tasks, as in the textbooks: `task_done`, `join`, then cancel the idle.

The receiver is a task of its own, and stop ends it by cancelling its take: the source is never
closed. What is in the queue by then is still worked off, not given back.
"""

from __future__ import annotations

import asyncio

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle messages `workers` at a time until `stop` is set or `source` ends."""
    queue: asyncio.Queue[Message] = asyncio.Queue(maxsize=workers)

    async def receive() -> None:
        messages = aiter(source)
        while not stop.is_set():
            # Room first, message second: once a message is in hand nothing is awaited any more,
            # so cancelling this task never catches it holding one.
            async with room:
                await room.wait_for(lambda: not queue.full())
            try:
                message = await anext(messages)
            except StopAsyncIteration:
                return
            queue.put_nowait(message)

    async def work() -> None:
        while True:
            message = await queue.get()
            async with room:
                room.notify()
            await process(message, handle)
            queue.task_done()

    room = asyncio.Condition()
    receiver = asyncio.create_task(receive(), name="receiver")
    stopping = asyncio.create_task(stop.wait(), name="stopping")
    pool = [asyncio.create_task(work(), name=f"worker-{n}") for n in range(workers)]
    try:
        await asyncio.wait({receiver, stopping}, return_when=asyncio.FIRST_COMPLETED)
        receiver.cancel()
        await asyncio.wait({receiver})
        await queue.join()  # every worker lives: only then does a join come back
        if not receiver.cancelled():
            receiver.result()
    finally:
        tasks = [receiver, stopping, *pool]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def process(message: Message, handle: Handler) -> None:
    """One delivery from handler to settlement; only cancelling the worker gets out of here."""
    try:
        try:
            await handle(message)
        except asyncio.CancelledError:
            if cancelled_from_outside():
                raise
            await message.nack(requeue=True)
        except Permanent:
            await message.nack(requeue=False)
        except Exception:  # noqa: BLE001 - whatever else goes wrong may go right next time
            await message.nack(requeue=True)
        else:
            await message.ack()
    except SettleFailed:
        pass


def cancelled_from_outside() -> bool:
    """Whether somebody cancelled this task, as opposed to the handler raising by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
