"""Book payments once, however often their messages come."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

from autograder.messaging import Message, Permanent, SettleFailed, Source  # noqa: F401 - you will need them
from autograder.storage import Database, Transaction

Book = Callable[[Message, Transaction], Awaitable[None]]
"""The work: writes the row of a payment through a transaction. Raises as any handler does."""


async def handle_payment(message: Message, handle: Book, db: Database) -> None:
    """Book the payment of one message, unless it is booked already, and settle the message.

    `await handle(message, tx)` books it, in your transaction. Whether it was booked before is
    for you to find out: the table `processed` is yours. A known id with another `fingerprint` is a
    mistake of the producer's: give the message up.
    """
    # TODO: one transaction for the mark and the payment; ack when it is committed, and no sooner.
    raise NotImplementedError


def fingerprint(message: Message) -> str:
    """What tells two payloads apart."""
    return hashlib.sha256(message.body).hexdigest()


async def run(
    source: Source, handle: Book, db: Database, *, workers: int, stop: asyncio.Event
) -> None:
    """Book the payments of `source`, `workers` at a time. This is given; you may leave it as it is."""

    async def work() -> None:
        async for message in source:
            with suppress(SettleFailed):  # its connection is gone: the broker brings it back
                await handle_payment(message, handle, db)

    async def close_on_stop() -> None:
        await stop.wait()
        await source.stop_receiving()

    closer = asyncio.create_task(close_on_stop())
    try:
        await asyncio.gather(*(work() for _ in range(workers)))
    finally:
        closer.cancel()
        with suppress(asyncio.CancelledError):
            await closer
