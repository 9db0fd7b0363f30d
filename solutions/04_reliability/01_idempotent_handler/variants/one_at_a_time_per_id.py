"""Repetitions in one process queue up before they reach the database; a class keeps the books."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

from autograder.messaging import Message, Permanent, SettleFailed, Source
from autograder.storage import Database, Transaction

Book = Callable[[Message, Transaction], Awaitable[None]]
"""The work: writes the row of a payment through a transaction. Raises as any handler does."""


class Bookkeeper:
    """Books each payment once; of two deliveries in this process the second one waits here."""

    def __init__(self, handle: Book, db: Database) -> None:
        self._handle = handle
        self._db = db
        self._locks: dict[str, list[asyncio.Future[None]]] = {}

    async def settle(self, message: Message) -> None:
        """Book and settle one message."""
        await self._enter(message.id)
        try:
            verdict = await self._book(message)
        finally:
            self._leave(message.id)
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
                    "RETURNING fingerprint, (SELECT count(*) FROM payments WHERE payment_id = :id) AS n",
                    id=message.id,
                    mine=mine,
                )
                if row is None or row["fingerprint"] != mine:
                    return "wrong"
                if not row["n"]:
                    await self._handle(message, tx)
        except Permanent:
            return "wrong"
        except Exception:  # noqa: BLE001 - try it again
            return "failed"
        return "booked"

    async def _enter(self, name: str) -> None:
        while name in self._locks:
            turn = asyncio.get_running_loop().create_future()
            self._locks[name].append(turn)
            await turn
        self._locks[name] = []

    def _leave(self, name: str) -> None:
        for turn in self._locks.pop(name):
            if not turn.done():
                turn.set_result(None)


def fingerprint(message: Message) -> str:
    """What tells two payloads apart."""
    return hashlib.sha256(message.body).hexdigest()


async def run(
    source: Source, handle: Book, db: Database, *, workers: int, stop: asyncio.Event
) -> None:
    """Book the payments of `source`, `workers` at a time, until `stop` is set or it ends."""
    queue: asyncio.Queue[Message | None] = asyncio.Queue(maxsize=1)
    keeper = Bookkeeper(handle, db)

    async def work() -> None:
        while (message := await queue.get()) is not None:
            with suppress(SettleFailed):
                await keeper.settle(message)

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
