"""The mark is inserted without further ado; the error says that it was there. A lease goes last of all."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source
from autograder.storage import Database, Lease, StoreGone, Transaction, UniqueViolation

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


async def charge_card(message: Message, handle: Handler, lease: Lease, *, ttl_s: float) -> None:
    """Charge one card under its lease; settle while it is still held."""
    key, token = lease_key(message), str(uuid.uuid4())
    try:
        taken = await lease.set_if_absent(key, token, ttl_s=ttl_s)
    except StoreGone:
        taken = False  # or it was: then it ends by itself
    if not taken:
        await message.nack(requeue=True, delay_s=0.1)
        return
    try:
        await settled(message, handle)
    finally:
        with suppress(StoreGone):
            await lease.delete_if_equals(key, token)


async def settled(message: Message, handle: Handler) -> None:
    """Charge and settle."""
    try:
        await handle(message)
    except Permanent:
        await message.nack(requeue=False)
    except Exception:  # noqa: BLE001 - try it again
        await message.nack(requeue=True)
    else:
        await message.ack()


def lease_key(message: Message) -> str:
    """The name of the lease."""
    return f"charge:{message.id}"


async def run(
    source: Source, handle: Book, db: Database, *, workers: int, stop: asyncio.Event
) -> None:
    """Book the payments of `source`, `workers` at a time."""

    async def one(message: Message) -> None:
        await handle_payment(message, handle, db)

    await consume(source, one, workers=workers, stop=stop)


async def charge(
    source: Source,
    handle: Handler,
    lease: Lease,
    *,
    workers: int,
    ttl_s: float,
    stop: asyncio.Event,
) -> None:
    """Charge the cards of `source`, `workers` at a time."""

    async def one(message: Message) -> None:
        await charge_card(message, handle, lease, ttl_s=ttl_s)

    await consume(source, one, workers=workers, stop=stop)


async def consume(source: Source, one: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Give every message of `source` to `one`, `workers` at a time, until `stop` is set."""

    async def work() -> None:
        async for message in source:
            with suppress(SettleFailed):  # its connection is gone: the broker brings it back
                await one(message)

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
