"""The mark that says "done" and what was done, in one transaction."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

from autograder.messaging import Message, Permanent, SettleFailed, Source
from autograder.storage import Database, Transaction

Book = Callable[[Message, Transaction], Awaitable[None]]
"""The work: writes the row of a payment through a transaction. Raises as any handler does."""


async def handle_payment(message: Message, handle: Book, db: Database) -> None:
    """Book the payment of one message, unless it is booked already, and settle the message.

    The mark and the payment are committed together or not at all, so there is no moment at which a
    crash leaves one without the other. An attempt that fails takes its mark along.
    """
    try:
        async with db.transaction() as tx:
            if await is_new(message, tx):
                await handle(message, tx)
    except Permanent:
        await message.nack(requeue=False)
    except Exception:  # noqa: BLE001 - whatever went wrong, nothing is committed: try again later
        await message.nack(requeue=True, delay_s=0.05)
    else:
        await message.ack()


async def is_new(message: Message, tx: Transaction) -> bool:
    """Put the mark of a message there; whether nobody had. Raises `Permanent` for another payload.

    The unique key decides, not a look at the table before: of two at the same time the second one
    waits here until the first has committed, or has failed.
    """
    mine = fingerprint(message)
    marked = await tx.execute(
        "INSERT INTO processed (message_id, fingerprint) VALUES (:id, :mine) ON CONFLICT DO NOTHING",
        id=message.id,
        mine=mine,
    )
    if marked:
        return True
    known = await tx.fetch_one(
        "SELECT fingerprint FROM processed WHERE message_id = :id", id=message.id
    )
    if known is not None and known["fingerprint"] != mine:
        raise Permanent(f"{message.id} was booked with another payload")
    return False


def fingerprint(message: Message) -> str:
    """What tells two payloads apart."""
    return hashlib.sha256(message.body).hexdigest()


async def run(
    source: Source, handle: Book, db: Database, *, workers: int, stop: asyncio.Event
) -> None:
    """Book the payments of `source`, `workers` at a time, until `stop` is set or it ends."""

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
