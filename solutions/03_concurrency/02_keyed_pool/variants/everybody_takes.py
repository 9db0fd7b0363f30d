"""No receiver: tasks take by themselves, and put aside what belongs to a key that is busy.

Whoever is busy with a key does what was put aside for it, too. Somebody who takes a message of a
busy key drops it there and takes the next one, as long as there is room. There are two more tasks
than workers, so that somebody still takes while all workers are at work.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle messages in order within a key until `stop` is set or `source` ends."""
    aside: dict[str, deque[Message]] = {}  # busy keys, and what waits for them
    put_aside = asyncio.Semaphore(workers)
    slots = asyncio.Semaphore(workers)

    async def in_a_slot(message: Message) -> None:
        async with slots:
            await handle(message)

    async def close_on_stop() -> None:
        await stop.wait()
        await source.stop_receiving()

    async def pull() -> None:
        while not stop.is_set():
            try:
                message = await anext(messages)
            except StopAsyncIteration:
                return
            if message.key in aside:
                aside[message.key].append(message)
                await put_aside.acquire()
            else:
                aside[message.key] = deque()
                await serve(message)

    async def serve(message: Message) -> None:
        """All that there is of one key."""
        waiting = aside[message.key]
        goes_back = not await process(message, in_a_slot, stop)
        while waiting:
            following = waiting.popleft()
            put_aside.release()
            goes_back = goes_back or stop.is_set()
            if goes_back:
                await give_back(following)
            else:
                goes_back = not await process(following, in_a_slot, stop)
        del aside[message.key]

    messages = aiter(source)
    async with asyncio.TaskGroup() as group:
        closer = group.create_task(close_on_stop())
        await asyncio.wait([group.create_task(pull()) for _ in range(workers + 2)])
        if not stop.is_set():
            closer.cancel()


async def process(message: Message, handle: Handler, stop: asyncio.Event) -> bool:
    """Try until it is settled for good; False if it was given back, because the stop came."""
    pause_s = 0.05
    while True:
        with contextlib.suppress(SettleFailed):
            try:
                await handle(message)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
            except Permanent:
                await message.nack(requeue=False)
                return True
            except Exception:  # noqa: BLE001, S110 - tried again below
                pass
            else:
                await message.ack()
                return True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await stop.wait()
            if not stop.is_set():
                pause_s = min(2 * pause_s, 1.0)
                continue
            await message.nack(requeue=True)
            return False
        return True  # its connection is gone, and it is the broker's again


async def give_back(message: Message) -> None:
    """It comes back after what was given back before it."""
    with contextlib.suppress(SettleFailed):
        await message.nack(requeue=True)
