"""A quick look spares most repetitions a transaction; the key decides about the others."""

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
    """Book the payment of one message, unless it is booked already, and settle the message."""
    try:
        known = await look(message, db)
        if known is None:
            async with db.transaction() as tx:
                written = await tx.fetch_one(
                    "INSERT INTO processed (message_id, fingerprint) VALUES (:id, :mine) "
                    "ON CONFLICT DO NOTHING RETURNING message_id",
                    id=message.id,
                    mine=fingerprint(message),
                )
                if written is not None:
                    await handle(message, tx)
            known = await look(message, db)
    except Permanent:
        await message.nack(requeue=False)
        return
    except Exception:  # noqa: BLE001 - try it again
        await message.nack(requeue=True, delay_s=0.1)
        return
    if known == fingerprint(message):
        await message.ack()
    else:
        await message.nack(requeue=False)


async def look(message: Message, db: Database) -> str | None:
    """What was booked under this id."""
    row = await db.fetch_one(
        "SELECT fingerprint FROM processed WHERE message_id = :id", id=message.id
    )
    return row["fingerprint"] if row is not None else None


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
