"""The database as the student sees it: every commit is reported, and the examiner may have one lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, TypeVar

from autograder.model import Kind
from autograder.storage import Database, DatabaseGone, Row, Transaction
from autograder.subject.recorded import Book
from autograder.subject.reporter import Reporter

T = TypeVar("T")


class RecordedDatabase:
    """A database whose commits are events: the examiner may have the process stand still at one.

    On a real server a question that is under way counts as the server's time: `waits`. `to_lose` says what
    becomes of the next commits whose connection breaks in the middle: whether they were done by then.
    """

    def __init__(
        self,
        inner: Database,
        reporter: Reporter,
        book: Book,
        to_lose: list[bool],
        *,
        waits: bool,
    ) -> None:
        self._inner = inner
        self._reporter = reporter
        self._book = book
        self._waits = waits
        self._to_lose = to_lose

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """See `autograder.storage.Database.transaction`."""
        with self._book.raised.telling(self._reporter):
            async with self._inner.transaction() as tx:
                yield RecordedTransaction(tx, self)
                lost = self._next_is_lost()
            self._committed(lost)

    async def execute(self, sql: str, /, **values: Any) -> int:
        """See `autograder.storage.Statements`."""
        return await self._alone(self._inner.execute, sql, values)

    async def fetch_one(self, sql: str, /, **values: Any) -> Row | None:
        """See `autograder.storage.Statements`."""
        return await self._alone(self._inner.fetch_one, sql, values)

    async def fetch_all(self, sql: str, /, **values: Any) -> list[Row]:
        """See `autograder.storage.Statements`."""
        return await self._alone(self._inner.fetch_all, sql, values)

    async def _alone(self, ask: Callable[..., Awaitable[T]], sql: str, values: dict[str, Any]) -> T:
        """A statement that changes something is a transaction of its own."""
        changes = not sql.lstrip().lower().startswith("select")
        lost = changes and self._next_is_lost()
        with self.asking():
            answer = await ask(sql, **values)
        if changes:
            self._committed(lost)
        return answer

    def _next_is_lost(self) -> bool:
        """Whether nobody will hear of the commit that is due. Raises `DatabaseGone` before it is done.

        What a module commits before it has taken a message is its own affair, and never lost.
        """
        if not self._to_lose or not self._book.in_hand:
            return False
        done = self._to_lose.pop(0)
        self._reporter.event(Kind.COMMIT_LOST, detail="done" if done else "undone")
        if not done:
            raise self._gone()
        return True

    def _committed(self, lost: bool) -> None:  # noqa: FBT001 - what became of it
        if lost:
            raise self._gone()
        self._reporter.event(Kind.COMMITTED)

    def _gone(self) -> DatabaseGone:
        return self._book.raised.known(DatabaseGone(_GONE))  # `COMMIT_LOST` tells of it

    def asking(self) -> AbstractContextManager[None]:
        """As long as a question is under way: see `Book.asking`."""
        return self._book.asking(self._reporter, waits=self._waits)


_GONE = "connection was closed in the middle of operation"


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
