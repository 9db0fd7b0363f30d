"""Workers that each pull from the connection; a signal ends the pulling, a deadline the waiting."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from autograder.messaging import Connect, Connection, Handler, Message, Permanent, SettleFailed

DRAINED, TORN_OFF = 0, 1


async def main(connect: Connect, handle: Handler, *, workers: int, deadline_s: float) -> int:
    """Handle messages until a signal comes, then drain; the result is the exit status."""
    asked, hurried = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (hurried if asked.is_set() else asked).set()

    # Before anything else: from here on no signal ends the process by itself.
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)

    connection = await connect()
    try:
        pool = [asyncio.create_task(work(connection, handle)) for _ in range(workers)]
        await asked.wait()
        in_time = await drain(connection, pool, hurried, deadline_s)
        await tear_off(pool)
    finally:
        await connection.close()  # gives back whatever was received and not settled
    return DRAINED if in_time else TORN_OFF


async def drain(
    connection: Connection,
    pool: list[asyncio.Task[None]],
    hurried: asyncio.Event,
    deadline_s: float,
) -> bool:
    """Receive no more, let running handlers finish; False if deadline or second signal came first."""

    async def go_home() -> None:
        await connection.stop_receiving()  # ends all takes: each worker goes home after its message
        await asyncio.gather(*pool)

    # One deadline around everything: a broker that does not answer may not cost more than a handler.
    ways_out = [asyncio.create_task(go_home()), asyncio.create_task(hurried.wait())]
    await asyncio.wait(ways_out, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
    in_time = ways_out[0].done()
    for task in ways_out:
        task.cancel()
    await asyncio.wait(ways_out)
    return in_time


async def tear_off(pool: list[asyncio.Task[None]]) -> None:
    """Cancel what still runs. Nothing of it is settled, so the broker brings it back."""
    for task in pool:
        task.cancel()
    await asyncio.wait(pool, timeout=0.5)


async def work(connection: Connection, handle: Handler) -> None:
    """One worker: take, handle, settle, until there is nothing to take any more."""
    async for message in connection:
        await process(message, handle)


async def process(message: Message, handle: Handler) -> None:
    """Handle one delivery and settle it as it went; only cancelling the worker gets out of here."""
    settlement: Callable[[], Awaitable[None]] = message.ack
    try:
        await handle(message)
    except Permanent:
        settlement = partial(message.nack, requeue=False)
    except (Exception, asyncio.CancelledError):  # noqa: BLE001 - any failure is this message's alone
        settlement = partial(message.nack, requeue=True)
    task = asyncio.current_task()
    if task is not None and task.cancelling():  # torn off: neither done nor failed
        raise asyncio.CancelledError
    with suppress(SettleFailed):  # it is the broker's again and will come back by itself
        await settlement()
