"""A task per message behind a semaphore; the second signal finds its default again, and kills.

The first signal takes our handlers away. Whoever presses Ctrl-C twice means it, and the broker
brings back what a dead process had in hand.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

from autograder.messaging import Connect, Connection, Handler, Message, Permanent, SettleFailed

SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def main(connect: Connect, handle: Handler, *, workers: int, deadline_s: float) -> int:
    """Consume until a signal comes, then wait for what runs, `deadline_s` at most."""
    loop = asyncio.get_running_loop()
    told = loop.create_future()

    def on_signal(number: int) -> None:
        if told.done():  # both came before the loop had a turn
            signal.raise_signal(number)
        for each in SIGNALS:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)  # for SIGINT, too: no KeyboardInterrupt
        told.set_result(None)

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal, number)

    source = await connect()
    running: set[asyncio.Task[None]] = set()
    taking = asyncio.create_task(dispatch(source, handle, workers, running))
    await told
    until = loop.time() + deadline_s
    taking.cancel()
    await asyncio.wait({taking})
    if running:
        await asyncio.wait(running, timeout=max(0.0, until - loop.time()))
    late = [task for task in running if not task.done()]
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    await source.close()
    return len(late)


async def dispatch(
    source: Connection, handle: Handler, workers: int, running: set[asyncio.Task[None]]
) -> None:
    """First a slot, then a message: there is never one in hand that nobody works on."""
    slots = asyncio.Semaphore(workers)
    messages = aiter(source)
    while True:
        await slots.acquire()
        message = await anext(messages)
        task = asyncio.create_task(process(message, handle))
        running.add(task)
        task.add_done_callback(running.discard)
        task.add_done_callback(lambda _: slots.release())


async def process(message: Message, handle: Handler) -> None:
    """One delivery from handler to settlement, in a task of its own."""
    with suppress(SettleFailed):
        try:
            await handle(message)
        except Permanent:
            await message.nack(requeue=False)
        except Exception:  # noqa: BLE001 - one failure is one message's
            await message.nack(requeue=True)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                await message.nack(requeue=True)
            raise
        else:
            await message.ack()
