"""Each worker races its take against the signal; the process leaves by `sys.exit`, or `os._exit`.

`stop_receiving()` is never called: whoever waits for a message cancels that, and handles what came
with the signal. The second signal ends everything on the spot, as many a command-line tool does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

from autograder.messaging import Connect, Connection, Handler, Message, Permanent, SettleFailed


async def main(connect: Connect, handle: Handler, *, workers: int, deadline_s: float) -> int:
    """Consume until a signal comes; never returns."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[float] = loop.create_future()

    def on_signal() -> None:
        if told.done():
            os._exit(130)
        told.set_result(loop.time() + deadline_s)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)

    async with contextlib.AsyncExitStack() as stack:
        source = await connect()
        stack.push_async_callback(source.close)
        crew = {asyncio.create_task(work(source, handle, told)) for _ in range(workers)}
        until = await told
        _, late = await asyncio.wait(crew, timeout=max(0.0, until - loop.time()))
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
    sys.exit(len(late))


async def work(source: Connection, handle: Handler, told: asyncio.Future[float]) -> None:
    """Take and handle until told to end."""
    while (message := await take(source, told)) is not None:
        with contextlib.suppress(SettleFailed):
            await process(message, handle)


async def take(source: Connection, told: asyncio.Future[float]) -> Message | None:
    """The next message, or None if the signal comes first."""
    if told.done():
        return None
    taking = asyncio.ensure_future(anext(aiter(source)))
    waiting: set[asyncio.Future[Message] | asyncio.Future[float]] = {taking, told}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if not taking.done():
        taking.cancel()
        await asyncio.wait({taking})
    return None if taking.cancelled() else taking.result()


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
