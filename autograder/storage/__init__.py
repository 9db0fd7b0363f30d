"""The ports to databases that students code against: rows in transactions, and keys that expire.

What is promised here holds on every implementation, and one contract test suite for each port keeps
them to it. `Database` is PostgreSQL (`postgres`) or, where there is none and in the simulation,
SQLite with PostgreSQL's manners (`sqlite`). `Lease` is Valkey or Redis (`valkey`) or, in the same
places, a table in memory (`expiring`). Where they differ, the page of each says how.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

__all__ = [
    "Database",
    "DatabaseError",
    "DatabaseGone",
    "Lease",
    "Row",
    "SerializationFailure",
    "StoreGone",
    "Transaction",
    "TransactionFailed",
    "UniqueViolation",
]

Row = dict[str, Any]
"""One row: its values by the names of its columns."""


class StoreGone(ConnectionError):  # noqa: N818 - the field's phrase
    """There is no connection, or it broke: what was under way has happened or has not."""


class DatabaseError(Exception):
    """The database refused a statement. The text is its own."""


class UniqueViolation(DatabaseError):  # noqa: N818 - PostgreSQL's name for it
    """Another row with the same key is there, committed."""


class SerializationFailure(DatabaseError):  # noqa: N818 - the same
    """Two transactions stood in each other's way, and this one was chosen to go: try it again."""


class TransactionFailed(DatabaseError):  # noqa: N818 - a state
    """A statement of this transaction failed before: no other runs in it, and all of it is undone."""


class DatabaseGone(DatabaseError, StoreGone):  # noqa: N818 - the same
    """There is no connection to the database, or it broke: a commit under way is done or is not."""


class Statements(Protocol):
    """What a database and a transaction of it both do.

    One statement at a time, with values by name: `:name` in the text, `name=...` in the call. Values
    never become part of the text. Raises `DatabaseError` and its kinds. A value is a `str`, `int`,
    `float`, `bytes` or `None`.
    """

    async def execute(self, sql: str, /, **values: Any) -> int:
        """Run a statement; returns how many rows it inserted, changed or deleted."""

    async def fetch_one(self, sql: str, /, **values: Any) -> Row | None:
        """Run a statement; returns its first row, or None if there is none."""

    async def fetch_all(self, sql: str, /, **values: Any) -> list[Row]:
        """Run a statement; returns all its rows."""


@runtime_checkable
class Transaction(Statements, Protocol):
    """Statements that happen together or not at all."""


@runtime_checkable
class Database(Statements, Protocol):
    """A database with a few connections, ten unless said otherwise.

    A statement on the database itself is a transaction of its own: when it returns, it is committed.
    """

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction, READ COMMITTED: it holds one connection until the block ends.

        `async with db.transaction() as tx` commits when the block ends, and undoes everything when an
        exception leaves it. Other transactions see nothing of it before the commit. Whoever inserts a
        key that an unfinished transaction has inserted waits for that one's end, with `ON CONFLICT`
        too. After a statement that failed, the others raise `TransactionFailed`, and the end of the
        block undoes everything, even if you caught the error; only `ROLLBACK TO` a `SAVEPOINT` of this
        transaction goes back to before it. BEGIN, COMMIT and ROLLBACK are the block's.
        """


@runtime_checkable
class Lease(Protocol):
    """Keys with a life span: what Valkey and Redis have for claims that expire.

    The first two are what a lease is made of, each of them one step that nothing can come between.
    The others are steps that look like them. Raises `StoreGone` where there is no connection: what
    was asked for has happened or has not.
    """

    async def set_if_absent(self, key: str, value: str, *, ttl_s: float | None) -> bool:
        """Set a key that is not there; it goes after `ttl_s` seconds. Returns whether it was set.

        `SET key value NX PX milliseconds`. Without a life span it stays until somebody deletes it.
        """

    async def delete_if_equals(self, key: str, value: str) -> bool:
        """Delete a key if it still has this value. Returns whether it was deleted."""

    async def expire_if_equals(self, key: str, value: str, *, ttl_s: float) -> bool:
        """Give a key a new life span if it still has this value. Returns whether it had."""

    async def get(self, key: str) -> str | None:
        """The value of a key; None if it is not there."""

    async def set(self, key: str, value: str, *, ttl_s: float | None = None) -> None:
        """Set a key, whatever it was before. Without `ttl_s` it stays."""

    async def expire(self, key: str, *, ttl_s: float) -> bool:
        """Give a key a new life span, whoever set it. Returns whether it is there."""

    async def delete(self, key: str) -> bool:
        """Delete a key, whoever set it. Returns whether it was there."""
