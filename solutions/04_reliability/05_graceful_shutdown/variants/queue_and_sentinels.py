"""A receiver, a queue with room for one message, and workers that a `None` sends home.

Signals come by way of `signal.signal`: its handler may run between any two bytecodes, so it only
leaves word with the loop. Messages that wait in the queue when the signal comes are given back by
hand, and the taking ends because the task that takes is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from types import FrameType

from autograder.messaging import Connect, Connection, Handler, Message, Permanent, SettleFailed


async def main(connect: Connect, handle: Handler, *, workers: int, deadline_s: float) -> int:
    """Consume until a signal comes; the status says whether everything begun was finished."""
    loop = asyncio.get_running_loop()
    told: asyncio.Queue[int] = asyncio.Queue()

    def leave_word(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(told.put_nowait, number)

    signal.signal(signal.SIGTERM, leave_word)
    signal.signal(signal.SIGINT, leave_word)

    source = await connect()
    queue: asyncio.Queue[Message | None] = asyncio.Queue(maxsize=1)
    receiver = asyncio.create_task(receive(source, queue))
    crew = [asyncio.create_task(work(queue, handle)) for _ in range(workers)]
    try:
        await told.get()
        receiver.cancel()
        await asyncio.wait({receiver})
        home = asyncio.ensure_future(go_home(queue, crew))
        impatience = asyncio.create_task(told.get())
        await asyncio.wait(
            {home, impatience}, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED
        )
        impatience.cancel()
        if home.done():
            return 0
        for task in (home, *crew):
            task.cancel()
        await asyncio.gather(home, *crew, return_exceptions=True)
        return 3
    finally:
        await source.close()


async def receive(source: Connection, queue: asyncio.Queue[Message | None]) -> None:
    """Take and hand over. A message it is about to hand over when it is cancelled is given back."""
    async for message in source:
        try:
            await queue.put(message)
        except asyncio.CancelledError:
            with contextlib.suppress(SettleFailed):
                await message.nack(requeue=True)
            raise


async def go_home(queue: asyncio.Queue[Message | None], crew: list[asyncio.Task[None]]) -> None:
    """What nobody has begun goes back; then everybody goes home."""
    while not queue.empty():
        message = queue.get_nowait()
        if message is not None:
            with contextlib.suppress(SettleFailed):
                await message.nack(requeue=True)
    for _ in crew:
        await queue.put(None)
    await asyncio.wait(crew)


async def work(queue: asyncio.Queue[Message | None], handle: Handler) -> None:
    """Handle and settle until there is nothing more."""
    while (message := await queue.get()) is not None:
        with contextlib.suppress(SettleFailed):
            await process(message, handle)


async def process(message: Message, handle: Handler) -> None:
    """One delivery from handler to settlement."""
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
