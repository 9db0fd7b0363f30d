"""Book payments once, however often their messages come, and charge cards one at a time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source  # noqa: F401 - you will need them
from autograder.storage import Database, Lease, StoreGone, Transaction  # noqa: F401 - the same

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


async def charge_card(message: Message, handle: Handler, lease: Lease, *, ttl_s: float) -> None:
    """Charge the card of one message while holding its lease, and settle the message.

    `await handle(message)` asks the bank, and is over well within `ttl_s` seconds. It is called only
    while you hold the lease `lease_key(message)`, which others take as well. Whoever meets a held
    lease gives the message back.
    """
    # TODO: take the lease, charge, release what is yours, settle.
    raise NotImplementedError


def lease_key(message: Message) -> str:
    """The name of the lease. The service for refunds takes the same one."""
    return f"charge:{message.id}"


async def run(
    source: Source, handle: Book, db: Database, *, workers: int, stop: asyncio.Event
) -> None:
    """Book the payments of `source`, `workers` at a time. This is given; you may leave it as it is."""

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
    """Charge the cards of `source`, `workers` at a time. Given, too."""

    async def one(message: Message) -> None:
        await charge_card(message, handle, lease, ttl_s=ttl_s)

    await consume(source, one, workers=workers, stop=stop)


async def consume(source: Source, one: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Give every message of `source` to `one`, `workers` at a time, until `stop` is set. Given."""

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
