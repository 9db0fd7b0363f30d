"""A quick look spares most repetitions a transaction, and a lease a try; the key decides about the others."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source
from autograder.storage import Database, Lease, StoreGone, Transaction

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


async def charge_card(message: Message, handle: Handler, lease: Lease, *, ttl_s: float) -> None:
    """Charge one card under its lease, unless a look says that somebody holds it."""
    key, token = lease_key(message), secrets.token_urlsafe()
    try:
        held = await lease.get(key) is not None
        if held or not await lease.set_if_absent(key, token, ttl_s=ttl_s):
            await message.nack(requeue=True, delay_s=0.2)
            return
    except StoreGone:
        await message.nack(requeue=True, delay_s=0.2)
        return
    answer = "ack"
    try:
        await handle(message)
    except Permanent:
        answer = "give up"
    except Exception:  # noqa: BLE001 - try it again
        answer = "give back"
    finally:
        with suppress(StoreGone):
            await lease.delete_if_equals(key, token)
    if answer == "ack":
        await message.ack()
    else:
        await message.nack(requeue=answer == "give back")


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
