"""One receiver, a hand-over queue with room for one message, and `workers` tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle the messages of `source`, `workers` at a time, until `stop` is set or it ends.

    At most `workers + 2` messages are in hand: one per worker, one in the queue and one that the
    receiver is about to put there.
    """
    if stop.is_set():
        return

    # The bound is the backpressure: while every worker is busy `put` waits, and a receiver that
    # waits takes nothing.
    queue: asyncio.Queue[Message | None] = asyncio.Queue(maxsize=1)

    async def close_on_stop() -> None:
        # A receiver with nothing to receive would look at no flag; closing the source wakes it.
        await stop.wait()
        await source.stop_receiving()

    async def work() -> None:
        while (message := await queue.get()) is not None:
            if stop.is_set():
                await settle(partial(message.nack, requeue=True))  # taken in time, begun by nobody
            else:
                await process(message, handle)

    # The group joins its tasks however this ends. Cancelling `run` cancels them all: nothing is
    # settled on that way, so the broker brings everything back.
    async with asyncio.TaskGroup() as tasks:
        closer = tasks.create_task(close_on_stop(), name="closer")
        for number in range(1, workers + 1):
            tasks.create_task(work(), name=f"worker-{number}")
        async for message in source:
            await queue.put(message)
        for _ in range(workers):
            await queue.put(None)  # behind the last message: each worker goes home after its own
        if not stop.is_set():
            closer.cancel()  # the source ended by itself; once begun, closing is let finish


async def process(message: Message, handle: Handler) -> None:
    """Handle one delivery and settle it as it went; only cancelling the worker gets out of here."""
    settlement: Callable[[], Awaitable[None]] = message.ack
    try:
        await handle(message)
    except Permanent:
        settlement = partial(message.nack, requeue=False)
    except (Exception, asyncio.CancelledError):  # noqa: BLE001 - any failure is this message's alone
        settlement = partial(message.nack, requeue=True)
    # A handler may raise `CancelledError` by itself, or swallow ours: only the task knows which.
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
    await settle(settlement)


async def settle(settlement: Callable[[], Awaitable[None]]) -> None:
    """Tell the broker, unless the connection that delivered the message is gone."""
    with suppress(SettleFailed):  # it is the broker's again and will come back by itself
        await settlement()
