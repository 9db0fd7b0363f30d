"""Repetitions in one process queue up before they reach the database, or the lease, which is waited for."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source
from autograder.storage import Database, Lease, StoreGone, Transaction

Book = Callable[[Message, Transaction], Awaitable[None]]
"""The work: writes the row of a payment through a transaction. Raises as any handler does."""


class Queues:
    """Of two deliveries of one message in this process the second one waits here."""

    def __init__(self) -> None:
        self._locks: dict[str, list[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """The block has the message to itself."""
        while name in self._locks:
            turn = asyncio.get_running_loop().create_future()
            self._locks[name].append(turn)
            await turn
        self._locks[name] = []
        try:
            yield
        finally:
            for turn in self._locks.pop(name):
                if not turn.done():
                    turn.set_result(None)


class Bookkeeper:
    """Books each payment once."""

    def __init__(self, handle: Book, db: Database) -> None:
        self._handle = handle
        self._db = db
        self._queues = Queues()

    async def settle(self, message: Message) -> None:
        """Book and settle one message."""
        async with self._queues.turn(message.id):
            verdict = await self._book(message)
        if verdict == "booked":
            await message.ack()
        else:
            await message.nack(requeue=verdict == "failed")

    async def _book(self, message: Message) -> str:
        mine = fingerprint(message)
        try:
            async with self._db.transaction() as tx:
                row = await tx.fetch_one(
                    "INSERT INTO processed (message_id, fingerprint) VALUES (:id, :mine) "
                    "ON CONFLICT (message_id) DO UPDATE SET fingerprint = processed.fingerprint "
                    "RETURNING fingerprint",
                    id=message.id,
                    mine=mine,
                )
                if row is None or row["fingerprint"] != mine:
                    return "wrong"
                # a statement of its own: the one above looks as things were before it had to wait
                booked = await tx.fetch_one(
                    "SELECT count(*) AS n FROM payments WHERE payment_id = :id", id=message.id
                )
                if booked is None or not booked["n"]:
                    await self._handle(message, tx)
        except Permanent:
            return "wrong"
        except Exception:  # noqa: BLE001 - try it again
            return "failed"
        return "booked"


class Charger:
    """Charges cards; a lease that somebody else holds is waited for."""

    def __init__(self, handle: Handler, lease: Lease, ttl_s: float) -> None:
        self._handle = handle
        self._lease = lease
        self._ttl_s = ttl_s
        self._queues = Queues()

    async def settle(self, message: Message) -> None:
        """Charge one card and settle its message."""
        try:
            async with self._queues.turn(message.id), self._lease_of(message):
                await self._handle(message)
        except Permanent:
            await message.nack(requeue=False)
        except Exception:  # noqa: BLE001 - try it again
            await message.nack(requeue=True)
        else:
            await message.ack()

    @asynccontextmanager
    async def _lease_of(self, message: Message) -> AsyncIterator[None]:
        key, token = f"charge:{message.id}", secrets.token_bytes().hex()
        while not await self._lease.set_if_absent(key, token, ttl_s=self._ttl_s):  # noqa: ASYNC110 - Valkey tells nobody
            await asyncio.sleep(0.05)
        try:
            yield
        finally:
            with suppress(StoreGone):
                await self._lease.delete_if_equals(key, token)


def fingerprint(message: Message) -> str:
    """What tells two payloads apart."""
    return hashlib.sha256(message.body).hexdigest()


async def run(
    source: Source, handle: Book, db: Database, *, workers: int, stop: asyncio.Event
) -> None:
    """Book the payments of `source`, `workers` at a time, until `stop` is set or it ends."""
    await consume(source, Bookkeeper(handle, db).settle, workers=workers, stop=stop)


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
    await consume(source, Charger(handle, lease, ttl_s).settle, workers=workers, stop=stop)


async def consume(source: Source, one: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """One loop takes the messages and hands them to `workers` others."""
    queue: asyncio.Queue[Message | None] = asyncio.Queue(maxsize=1)

    async def work() -> None:
        while (message := await queue.get()) is not None:
            with suppress(SettleFailed):
                await one(message)

    async def close_on_stop() -> None:
        await stop.wait()
        await source.stop_receiving()

    async with asyncio.TaskGroup() as tasks:
        closer = tasks.create_task(close_on_stop())
        for _ in range(workers):
            tasks.create_task(work())
        async for message in source:
            await queue.put(message)
        for _ in range(workers):
            await queue.put(None)
        closer.cancel()
