"""The mark that says "done" and what was done, in one transaction; what none can hold, under a lease."""

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


async def charge_card(message: Message, handle: Handler, lease: Lease, *, ttl_s: float) -> None:
    """Charge the card of one message while holding its lease, and settle the message."""
    try:
        await charge_under_lease(message, handle, lease, ttl_s=ttl_s)
    except Permanent:
        await message.nack(requeue=False)
    except Exception:  # noqa: BLE001 - somebody else holds it, or whatever went wrong: try again later
        await message.nack(requeue=True, delay_s=0.05)
    else:
        await message.ack()


async def charge_under_lease(
    message: Message, handle: Handler, lease: Lease, *, ttl_s: float
) -> None:
    """Call the handler between taking and releasing the lease. Raises `LeaseHeld`.

    The token says whose lease it is: by the time of the release it may have run out, and be held by
    somebody else. If the release is not heard of, the lease ends by itself: no reason to charge again.
    """
    key, token = lease_key(message), secrets.token_hex(16)
    if not await lease.set_if_absent(key, token, ttl_s=ttl_s):
        raise LeaseHeld(key)
    try:
        await handle(message)
    finally:
        with suppress(StoreGone):
            await lease.delete_if_equals(key, token)


class LeaseHeld(Exception):  # noqa: N818 - a state
    """Somebody else is charging this card."""


def lease_key(message: Message) -> str:
    """The name of the lease. The service for refunds takes the same one."""
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
