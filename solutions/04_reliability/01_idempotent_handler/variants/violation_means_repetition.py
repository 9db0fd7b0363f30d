"""The mark is inserted without further ado; the error says that it was there."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

from autograder.messaging import Message, Permanent, SettleFailed, Source
from autograder.storage import Database, Transaction, UniqueViolation

Book = Callable[[Message, Transaction], Awaitable[None]]
"""The work: writes the row of a payment through a transaction. Raises as any handler does."""


async def handle_payment(message: Message, handle: Book, db: Database) -> None:
    """Book the payment of one message, unless it is booked already, and settle the message."""
    mine = fingerprint(message)
    try:
        async with db.transaction() as tx:
            await tx.execute(
                "INSERT INTO processed (message_id, fingerprint) VALUES (:id, :mine)",
                id=message.id,
                mine=mine,
            )
            await handle(message, tx)
    except UniqueViolation:
        known = await db.fetch_one(
            "SELECT fingerprint FROM processed WHERE message_id = :id", id=message.id
        )
        if known is None or known["fingerprint"] == mine:
            await message.ack()
        else:
            await message.nack(requeue=False)
    except Permanent:
        await message.nack(requeue=False)
    except Exception:  # noqa: BLE001 - try it again
        await message.nack(requeue=True)
    else:
        await message.ack()


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
