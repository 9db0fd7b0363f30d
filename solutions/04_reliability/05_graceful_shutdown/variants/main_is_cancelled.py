"""A signal cancels the main task itself, as Ctrl-C does under `asyncio.run`: one way out for both.

Each wait of main's is one that may be cancelled. What it waits for runs in tasks of its own, which
nobody cancels before the time is up.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

from autograder.messaging import Connect, Connection, Handler, Message, Permanent, SettleFailed


async def main(connect: Connect, handle: Handler, *, workers: int, deadline_s: float) -> int:
    """Consume until somebody cancels; once more means now."""
    me = asyncio.current_task()
    assert me is not None  # noqa: S101 - a coroutine of asyncio.run has one
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, me.cancel)

    connecting = asyncio.ensure_future(connect())
    try:
        await asyncio.shield(connecting)
    except asyncio.CancelledError:
        me.uncancel()
        await (await connecting).close()
        return 0
    source = connecting.result()
    pool = [asyncio.create_task(pull(source, handle)) for _ in range(workers)]
    try:
        with suppress(asyncio.CancelledError):
            await asyncio.wait(pool)
        signals = me.cancelling()
        for _ in range(signals):
            me.uncancel()
        if signals < 2:
            with suppress(asyncio.CancelledError):
                home = asyncio.create_task(go_home(source, pool))
                await asyncio.wait({home}, timeout=deadline_s)
    finally:
        unfinished = [task for task in pool if not task.done()]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        await source.close()
    return 1 if unfinished else 0


async def go_home(source: Connection, pool: list[asyncio.Task[None]]) -> None:
    """No more takes, and the last handlers to their end."""
    await source.stop_receiving()
    await asyncio.wait(pool)


async def pull(source: Connection, handle: Handler) -> None:
    """Take, handle, settle."""
    async for message in source:
        try:
            await process(message, handle)
        except SettleFailed:
            continue


async def process(message: Message, handle: Handler) -> None:
    """One delivery from handler to settlement."""
    try:
        await handle(message)
    except BaseException as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        await message.nack(requeue=not isinstance(error, Permanent))
    else:
        await message.ack()
