"""The port `Database` in memory, on SQLite: no server, no thread, nothing that waits for a disk.

What of PostgreSQL is imitated, and what is not, is said in `sqlite_store`. Beside that: types are
those of SQLite's strict tables, so a number in a TEXT column becomes a text here and is an error
there, and there are no booleans.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from autograder.storage import DatabaseError, Row, TransactionFailed
from autograder.storage.sqlite_store import Answer, Blocked, SqliteStore, Unit
from autograder.storage.statement import Statement, read

CONNECTIONS = 10

Pause = Callable[[], Awaitable[None]]


async def no_pause() -> None:
    """No time, but everybody else has a turn: no database answers before it was asked."""
    await asyncio.sleep(0)


class SqliteTransaction:
    """A transaction of one connection."""

    def __init__(self, database: SqliteDatabase, unit: Unit) -> None:
        self._database = database
        self._unit = unit

    async def execute(self, sql: str, /, **values: Any) -> int:
        """Run a statement; returns how many rows it inserted, changed or deleted."""
        answer = await self._database.run(self._unit, sql, values)
        return 0 if read(sql).verb == "select" else answer.changed

    async def fetch_one(self, sql: str, /, **values: Any) -> Row | None:
        """Run a statement; returns its first row, or None if there is none."""
        rows = await self.fetch_all(sql, **values)
        return rows[0] if rows else None

    async def fetch_all(self, sql: str, /, **values: Any) -> list[Row]:
        """Run a statement; returns all its rows."""
        return (await self._database.run(self._unit, sql, values)).rows


class SqliteDatabase:
    """One process's connections to a store. `pause` is the time a question, or its answer, travels."""

    def __init__(
        self, store: SqliteStore, pause: Pause = no_pause, *, connections: int = CONNECTIONS
    ) -> None:
        self._store = store
        self._pause = pause
        self._free = asyncio.Semaphore(connections)
        self._units: set[Unit] = set()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SqliteTransaction]:
        """A transaction: see the port."""
        async with self._free:
            unit = Unit()
            self._units.add(unit)
            try:
                await self._pause()  # BEGIN
                yield SqliteTransaction(self, unit)
                await self._pause()
                self._store.commit(unit)
                await self._pause()
            finally:
                # without a commit before, this undoes: at once, for a cancelled task may not wait
                self._store.end(unit)
                self._units.discard(unit)

    async def execute(self, sql: str, /, **values: Any) -> int:
        """Run a statement in a transaction of its own; returns how many rows it changed."""
        answer = await self._alone(sql, values)
        return 0 if read(sql).verb == "select" else answer.changed

    async def fetch_one(self, sql: str, /, **values: Any) -> Row | None:
        """Run a statement; returns its first row, or None if there is none."""
        rows = (await self._alone(sql, values)).rows
        return rows[0] if rows else None

    async def fetch_all(self, sql: str, /, **values: Any) -> list[Row]:
        """Run a statement; returns all its rows."""
        return (await self._alone(sql, values)).rows

    def crash(self) -> None:
        """The process is dead: what it had not committed never was."""
        for unit in list(self._units):
            self._store.end(unit)
        self._units.clear()

    # -- for its transactions

    async def run(self, unit: Unit, sql: str, values: Mapping[str, Any]) -> Answer:
        """One statement of a transaction, with its way there and back."""
        statement = read(sql)
        statement.values(values)
        if unit.over:
            raise DatabaseError("The transaction is over: its block has ended.")
        if unit.busy:
            raise DatabaseError("One statement at a time: another one of this transaction runs.")
        if unit.failed:
            raise TransactionFailed("A statement failed before: the rest is ignored until the end.")
        unit.busy = True
        try:
            await self._pause()
            answer = await self._when_free(unit, statement, values)
            await self._pause()
        except DatabaseError:
            self._store.fail(unit)
            raise
        finally:
            unit.busy = False
        return answer

    async def _alone(self, sql: str, values: Mapping[str, Any]) -> Answer:
        """A statement that is a transaction: committed when its answer leaves."""
        statement = read(sql)
        statement.values(values)
        async with self._free:
            unit = Unit()
            self._units.add(unit)
            try:
                await self._pause()
                answer = await self._when_free(unit, statement, values)
                self._store.commit(unit)
                await self._pause()
            finally:
                self._store.end(unit)
                self._units.discard(unit)
        return answer

    async def _when_free(
        self, unit: Unit, statement: Statement, values: Mapping[str, Any]
    ) -> Answer:
        """Run it, after those whose rows or keys it touches."""
        while True:
            try:
                return self._store.attempt(unit, statement, values)
            except Blocked as blocked:
                turn = asyncio.get_running_loop().create_future()
                blocked.by.waiters.append(turn)
                unit.waits_for = blocked.by
            try:
                await turn
            finally:
                unit.waits_for = None
