"""PostgreSQL behind the port `Database`, by asyncpg: a pool of connections to one server.

Values keep PostgreSQL's own strictness: a number for a TEXT column is an error here, not a text.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import asyncpg

from autograder.storage import (
    DatabaseError,
    DatabaseGone,
    Row,
    SerializationFailure,
    TransactionFailed,
    UniqueViolation,
)
from autograder.storage.statement import read

CONNECTIONS = 10
CONNECT_TIMEOUT_S = 10.0

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.InternalClientError,  # what a call on a connection says that broke a moment ago
    OSError,
    TimeoutError,
)
_WHILE_LEAVING = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
_AGAIN = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
# In asyncpg's words for a connection or a pool that is no longer open. The pool takes a connection back
# as soon as it breaks, whoever has it.
_CLOSED = ("clos", "released back to the pool")


@contextmanager
def _translated() -> Iterator[None]:
    """The port's errors for asyncpg's."""
    try:
        yield
    except asyncpg.UniqueViolationError as error:
        raise UniqueViolation(str(error)) from error
    except _AGAIN as error:
        raise SerializationFailure(str(error)) from error
    except asyncpg.InFailedSQLTransactionError as error:
        raise TransactionFailed(str(error)) from error
    except _GONE as error:
        raise DatabaseGone(str(error) or type(error).__name__) from error
    except asyncpg.InterfaceError as error:
        gone = any(words in str(error) for words in _CLOSED)
        kind = DatabaseGone if gone else DatabaseError
        raise kind(str(error)) from error
    except asyncpg.PostgresError as error:
        raise DatabaseError(str(error)) from error


async def _execute(connection: Any, sql: str, values: Mapping[str, Any]) -> int:
    statement = read(sql)
    with _translated():
        status = await connection.execute(statement.numbered, *statement.values(values))
    last = str(status).rpartition(" ")[2]  # `INSERT 0 1`, `UPDATE 3`, `CREATE TABLE`
    return int(last) if last.isdigit() and statement.verb != "select" else 0


async def _fetch(connection: Any, sql: str, values: Mapping[str, Any]) -> list[Row]:
    statement = read(sql)
    with _translated():
        rows = await connection.fetch(statement.numbered, *statement.values(values))
    return [dict(row) for row in rows]


class PostgresTransaction:
    """A transaction on one connection of the pool."""

    def __init__(self, connection: Any) -> None:
        self._connection: Any = connection

    async def execute(self, sql: str, /, **values: Any) -> int:
        """Run a statement; returns how many rows it inserted, changed or deleted."""
        return await _execute(self._open(), sql, values)

    async def fetch_one(self, sql: str, /, **values: Any) -> Row | None:
        """Run a statement; returns its first row, or None if there is none."""
        rows = await _fetch(self._open(), sql, values)
        return rows[0] if rows else None

    async def fetch_all(self, sql: str, /, **values: Any) -> list[Row]:
        """Run a statement; returns all its rows."""
        return await _fetch(self._open(), sql, values)

    def _open(self) -> Any:
        if self._connection is None:
            raise DatabaseError("The transaction is over: its block has ended.")
        return self._connection

    def end(self) -> None:
        """Whoever kept the transaction cannot use it any more: the connection is another's soon."""
        self._connection = None


class PostgresDatabase:
    """A pool of connections; made by `open_postgres`."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresTransaction]:
        """A transaction: see the port."""
        async with self._connection() as connection:
            with _translated():
                await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            transaction = PostgresTransaction(connection)
            try:
                yield transaction
            except BaseException:
                transaction.end()
                # A cancelled task may not wait here; the pool undoes what is left open.
                with suppress(*_WHILE_LEAVING):
                    await connection.execute("ROLLBACK")
                raise
            transaction.end()
            with _translated():
                await connection.execute("COMMIT")

    async def execute(self, sql: str, /, **values: Any) -> int:
        """Run a statement in a transaction of its own; returns how many rows it changed."""
        async with self._connection() as connection:
            return await _execute(connection, sql, values)

    async def fetch_one(self, sql: str, /, **values: Any) -> Row | None:
        """Run a statement; returns its first row, or None if there is none."""
        async with self._connection() as connection:
            rows = await _fetch(connection, sql, values)
        return rows[0] if rows else None

    async def fetch_all(self, sql: str, /, **values: Any) -> list[Row]:
        """Run a statement; returns all its rows."""
        async with self._connection() as connection:
            return await _fetch(connection, sql, values)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        with _translated():
            connection = await self._pool.acquire()
        try:
            yield connection
        finally:
            with suppress(*_WHILE_LEAVING):
                await self._pool.release(connection)


@asynccontextmanager
async def open_postgres(
    url: str, *, connections: int = CONNECTIONS
) -> AsyncIterator[PostgresDatabase]:
    """A database at a `postgresql://` address, with at most so many connections at a time.

    Raises `DatabaseGone` if there is none.
    """
    tls: dict[str, Any] = {} if "sslmode=" in url else {"ssl": False}
    with _translated():
        pool = await asyncpg.create_pool(
            url, min_size=1, max_size=connections, timeout=CONNECT_TIMEOUT_S, **tls
        )
    try:
        yield PostgresDatabase(pool)
    finally:
        pool.terminate()
        await asyncio.sleep(0)  # closed transports say goodbye in the loop's next turn
