"""The work comes first and the mark last, in one transaction. A lease is renewed as long as the work lasts."""

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
    """Book the payment of one message and take that back if it was booked before; settle it."""
    mine = fingerprint(message)
    try:
        async with db.transaction() as tx:
            await handle(message, tx)
            marked = await tx.execute(
                "INSERT INTO processed (message_id, fingerprint) VALUES (:id, :mine) "
                "ON CONFLICT (message_id) DO NOTHING",
                id=message.id,
                mine=mine,
            )
            if not marked:
                raise LookupError(message.id)
    except LookupError:
        known = await db.fetch_one(
            "SELECT fingerprint FROM processed WHERE message_id = :id", id=message.id
        )
        if known is not None and known["fingerprint"] != mine:
            await message.nack(requeue=False)
        else:
            await message.ack()
    except Permanent:
        await message.nack(requeue=False)
    except Exception:  # noqa: BLE001 - try it again
        await message.nack(requeue=True, delay_s=0.02)
    else:
        await message.ack()


def fingerprint(message: Message) -> str:
    """What tells two payloads apart."""
    return hashlib.sha256(message.body).hexdigest()


async def charge_card(message: Message, handle: Handler, lease: Lease, *, ttl_s: float) -> None:
    """Charge one card under a lease that is renewed; whoever loses it stops working."""
    key, token = lease_key(message), secrets.token_hex()
    try:
        if not await lease.set_if_absent(key, token, ttl_s=ttl_s):
            raise BlockingIOError(key)
        work = asyncio.create_task(handle_alone(message, handle))
        keeper = asyncio.create_task(keep(lease, key, token, ttl_s))
        try:
            await asyncio.wait({work, keeper}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, keeper):
                task.cancel()
            await asyncio.wait({work, keeper})
            with suppress(StoreGone):
                await lease.delete_if_equals(key, token)
        if work.cancelled():
            raise BlockingIOError(key)
        work.result()
    except Permanent:
        await message.nack(requeue=False)
    except Exception:  # noqa: BLE001 - try it again
        await message.nack(requeue=True, delay_s=0.05)
    else:
        await message.ack()


async def handle_alone(message: Message, handle: Handler) -> None:
    """The work as a task of its own."""
    await handle(message)


async def keep(lease: Lease, key: str, token: str, ttl_s: float) -> None:
    """Renew the lease for ever; return when it is lost."""
    mine = True
    while mine:
        await asyncio.sleep(ttl_s / 3)
        with suppress(StoreGone):
            mine = await lease.expire_if_equals(key, token, ttl_s=ttl_s)


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
