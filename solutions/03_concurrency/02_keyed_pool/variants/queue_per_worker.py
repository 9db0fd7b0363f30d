"""A queue for each worker: a key goes to the worker that its hash says, today and after a restart.

The textbook's design. CRC-32 is the same in every process, which `hash` is not. The queues have no
bound of their own; `workers + 2` messages are in hand at most, and whoever shares a lane with a
slow key waits with it. After the stop, what was taken is still worked off.
"""

from __future__ import annotations

import asyncio
import zlib

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle messages in order within a key until `stop` is set or `source` ends."""
    lanes: list[asyncio.Queue[Message]] = [asyncio.Queue() for _ in range(workers)]
    room = asyncio.Semaphore(workers + 2)

    async def receive() -> None:
        messages = aiter(source)
        while not stop.is_set():
            await room.acquire()
            try:
                message = await anext(messages)
            except StopAsyncIteration:
                return
            number = zlib.crc32(message.key.encode(errors="surrogatepass")) % workers
            lanes[number].put_nowait(message)

    async def work(lane: asyncio.Queue[Message]) -> None:
        given_up: set[str] = set()  # keys of which a message went back: what follows goes, too
        while True:
            message = await lane.get()
            if message.key in given_up or not await process(message, handle, stop):
                given_up.add(message.key)
                await settle(message, requeue=True)
            room.release()
            lane.task_done()

    receiver = asyncio.create_task(receive(), name="receiver")
    stopping = asyncio.create_task(stop.wait(), name="stopping")
    pool = [asyncio.create_task(work(lane)) for lane in lanes]
    try:
        await asyncio.wait({receiver, stopping}, return_when=asyncio.FIRST_COMPLETED)
        receiver.cancel()  # a cancelled take loses nothing
        await asyncio.wait({receiver})
        await asyncio.gather(*(lane.join() for lane in lanes))
        if not receiver.cancelled():
            receiver.result()
    finally:
        tasks = [receiver, stopping, *pool]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def process(message: Message, handle: Handler, stop: asyncio.Event) -> bool:
    """Handle and settle; False if it has to go back, because the stop came between two tries."""
    pause_s = 0.05
    while True:
        try:
            await handle(message)
        except Permanent:
            await settle(message, requeue=False)
            return True
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
        except Exception:  # noqa: BLE001, S110 - tried again below
            pass
        else:
            await settle(message)
            return True
        try:
            async with asyncio.timeout(pause_s):
                await stop.wait()
        except TimeoutError:
            pause_s = min(2 * pause_s, 1.0)
        else:
            return False


async def settle(message: Message, *, requeue: bool | None = None) -> None:
    """Ack, or nack if told where to."""
    try:
        if requeue is None:
            await message.ack()
        else:
            await message.nack(requeue=requeue)
    except SettleFailed:
        return
