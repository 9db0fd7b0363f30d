"""The ports to databases as the student sees them, with every commit reported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

from autograder.model import Kind
from autograder.storage import Database, Row, Transaction
from autograder.subject.recorded import Book
from autograder.subject.reporter import Reporter


class RecordedDatabase:
    """A database whose commits are events: the examiner may have the process stand still at one.

    On a real server a question that is under way counts as the server's time: `waits`.
    """

    def __init__(self, inner: Database, reporter: Reporter, book: Book, *, waits: bool) -> None:
        self._inner = inner
        self._reporter = reporter
        self._book = book
        self._waits = waits

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """See `autograder.storage.Database.transaction`."""
        async with self._inner.transaction() as tx:
            yield RecordedTransaction(tx, self)
        self._reporter.event(Kind.COMMITTED)

    async def execute(self, sql: str, /, **values: Any) -> int:
        """See `autograder.storage.Statements`."""
        with self.asking():
            changed = await self._inner.execute(sql, **values)
        self._alone(sql)
        return changed

    async def fetch_one(self, sql: str, /, **values: Any) -> Row | None:
        """See `autograder.storage.Statements`."""
        with self.asking():
            row = await self._inner.fetch_one(sql, **values)
        self._alone(sql)
        return row

    async def fetch_all(self, sql: str, /, **values: Any) -> list[Row]:
        """See `autograder.storage.Statements`."""
        with self.asking():
            rows = await self._inner.fetch_all(sql, **values)
        self._alone(sql)
        return rows

    def _alone(self, sql: str) -> None:
        """A statement that changes something is a transaction of its own, committed by now."""
        if not sql.lstrip().lower().startswith("select"):
            self._reporter.event(Kind.COMMITTED)

    def asking(self) -> AbstractContextManager[None]:
        """As long as a question is under way, nobody else stands still."""
        return self._book.adapter_at_work() if self._waits else nullcontext()


class RecordedTransaction:
    """A transaction of a `RecordedDatabase`."""

    def __init__(self, inner: Transaction, database: RecordedDatabase) -> None:
        self._inner = inner
        self._database = database

    async def execute(self, sql: str, /, **values: Any) -> int:
        """See `autograder.storage.Statements`."""
        with self._database.asking():
            return await self._inner.execute(sql, **values)

    async def fetch_one(self, sql: str, /, **values: Any) -> Row | None:
        """See `autograder.storage.Statements`."""
        with self._database.asking():
            return await self._inner.fetch_one(sql, **values)

    async def fetch_all(self, sql: str, /, **values: Any) -> list[Row]:
        """See `autograder.storage.Statements`."""
        with self._database.asking():
            return await self._inner.fetch_all(sql, **values)
