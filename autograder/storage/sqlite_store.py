"""What a `SqliteDatabase` stores, and how its transactions keep out of each other's way.

SQLite has one writer at a time and locks the whole database. PostgreSQL has many, and locks rows and
keys. Here every transaction is a list of the statements that changed something. A statement runs on
the committed data with the transaction's own list played before it, and all of that is undone at
once; a commit plays the list for good. Between two statements nothing is open, so nobody sees what is
not committed, and everybody sees what is: READ COMMITTED.

Imitated, from https://www.postgresql.org/docs/current/transaction-iso.html#XACT-READ-COMMITTED: whoever
inserts a key, or changes a row, that an unfinished transaction has inserted or changed, waits for its
end and looks again; a circle of waiting ends with an error for one of them; a statement that fails
ends its transaction. Not imitated: savepoints, row locks without a change (`FOR UPDATE`), locks on the rows that a
foreign key points to, waiting for a key that an unfinished transaction has deleted, and tables made or
dropped in a transaction, which happen at once. A statement that computes from rows it does not change
computes again at the commit.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from autograder.storage import DatabaseError, Row, SerializationFailure, UniqueViolation
from autograder.storage.sqlite_gaps import is_gap
from autograder.storage.statement import Statement, read

Lock = tuple[str, str, str]
"""A row or a key: which of them, of which table, and which one."""

_SHAPE = frozenset({"create", "drop", "alter"})
_OWN = re.compile(
    r"insert\s+or\b|update\s+or\b|replace\b|pragma\b|attach\b|vacuum\b", re.IGNORECASE
)
# PostgreSQL's names of types, by those that SQLite's strict tables know
_TYPES = (
    (r"\b(?:BIGINT|SMALLINT|BOOLEAN)\b", "INTEGER"),
    (r"\b(?:VARCHAR|CHAR)\s*\(\s*\d+\s*\)", "TEXT"),
    (r"\bBYTEA\b", "BLOB"),
    (r"\bDOUBLE\s+PRECISION\b", "REAL"),
)
_STRICT_SINCE = (3, 37, 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement gives back."""

    rows: list[Row]
    changed: int


@dataclass(eq=False)
class Unit:
    """One transaction: what it changed, what it holds, and who waits for its end."""

    writes: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    locks: set[Lock] = field(default_factory=set)
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    waits_for: Unit | None = None
    failed: bool = False
    over: bool = False
    busy: bool = False


class Blocked(Exception):  # noqa: N818 - a state, for the caller to wait
    """Somebody else holds what the statement wants."""

    def __init__(self, by: Unit) -> None:
        super().__init__()
        self.by = by


class SqliteStore:
    """A database in memory. It outlives the processes, and the connections, that use it.

    `refuse` is told of a statement that SQLite does not understand, and raises: it may be wrong, or
    be right on PostgreSQL. Without it such a statement is a `DatabaseError`.
    """

    def __init__(self, refuse: Callable[[str], NoReturn] | None = None) -> None:
        self._refuse = refuse
        self._held: dict[Lock, Unit] = {}
        self._watched: set[str] = set()
        self._data = sqlite3.connect(":memory:", isolation_level=None)
        self._data.execute("PRAGMA temp_store = MEMORY")
        self._data.execute("PRAGMA foreign_keys = ON")
        self._data.execute("CREATE TEMP TABLE touched (what TEXT, name TEXT, value TEXT)")

    # -- for its owner

    def create(self, script: str) -> None:
        """Run the statements that make the tables."""
        for sql in script.split(";"):
            if sql.strip():
                self._change_shape(read(sql))

    def rows(self, sql: str, **values: Any) -> list[Row]:
        """What is committed, for whoever counts it."""
        return _rows(self._data.execute(read(sql).named, values))

    def close(self) -> None:
        """Throw it away."""
        self._data.close()

    # -- for transactions

    def attempt(self, unit: Unit, statement: Statement, values: Mapping[str, Any]) -> Answer:
        """Run one statement of a transaction, and hold what it changed.

        Raises
        ------
        Blocked
            Another transaction has to end first.
        DatabaseError
            The statement fails.
        """
        if _OWN.match(statement.named):
            words = " ".join(statement.named.split()[:2])
            raise DatabaseError(f"`{words}` is SQLite's own: PostgreSQL does not know it.")
        if statement.savepoint:
            if self._refuse is not None:
                self._refuse("savepoints")
            raise DatabaseError("There are no savepoints here. PostgreSQL has them.")
        if statement.verb in _SHAPE:
            self._change_shape(statement)
            return Answer([], 0)
        self._data.execute("BEGIN")
        try:
            self._play(unit)
            before = self._touched()
            cursor = self._run(statement, values)
            rows = _rows(cursor)
            touched = self._touched()
        finally:
            self._data.execute("ROLLBACK")
        if len(touched) > len(before):
            self._hold(unit, touched)
            unit.writes.append((statement.named, dict(values)))
        changed = len(rows) if cursor.description else max(cursor.rowcount, 0)
        return Answer(rows, changed)

    def commit(self, unit: Unit) -> None:
        """Make its changes everybody's, and let those go on who waited. A failed one is undone."""
        try:
            if unit.writes and not (unit.failed or unit.over):
                self._data.execute("BEGIN")
                try:
                    self._play(unit)
                    self._data.execute("DELETE FROM touched")
                except BaseException:
                    self._data.execute("ROLLBACK")
                    raise
                self._data.execute("COMMIT")
        finally:
            self.end(unit)

    def fail(self, unit: Unit) -> None:
        """A statement failed: what the transaction held is free at once, and it goes on to its end."""
        unit.failed = True
        self._release(unit)

    def end(self, unit: Unit) -> None:
        """It is over. Without a commit before, nothing of it happened."""
        unit.over = True
        self._release(unit)

    def _release(self, unit: Unit) -> None:
        unit.writes.clear()
        for lock in unit.locks:
            del self._held[lock]
        unit.locks.clear()
        waiters, unit.waiters = unit.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # -- inside

    def _play(self, unit: Unit) -> None:
        for sql, values in unit.writes:
            with self._translated(sql):
                self._data.execute(sql, values).fetchall()

    def _touched(self) -> list[Lock]:
        return self._data.execute("SELECT what, name, value FROM touched").fetchall()

    def _run(self, statement: Statement, values: Mapping[str, Any]) -> sqlite3.Cursor:
        with self._translated(statement.named):
            return self._data.execute(statement.named, values)

    @contextmanager
    def _translated(self, sql: str) -> Iterator[None]:
        """The port's errors for sqlite3's."""
        try:
            yield
        except sqlite3.Error as error:
            text = str(error)
            if isinstance(error, sqlite3.IntegrityError) and text.startswith("UNIQUE"):
                raise UniqueViolation(text) from error
            if self._refuse is not None and is_gap(text, sql, self._watched):
                self._refuse(
                    "PostgreSQL: SQLite, which stands in for it, does not know this statement "
                    f"({text})"
                )
            raise DatabaseError(text) from error
        except OverflowError as error:
            raise DatabaseError(str(error)) from error

    def _hold(self, unit: Unit, touched: list[Lock]) -> None:
        """Take the locks of rows and keys, all or none. Raises `Blocked`."""
        new = {(name, value) for what, name, value in touched if what == "new"}
        wanted = {
            (what, name, value)
            for what, name, value in touched
            if what == "key" or (what == "row" and (name, value) not in new)
        }
        for lock in sorted(wanted):
            holder = self._held.get(lock)
            if holder is not None and holder is not unit:
                _forbid_circle(unit, holder)
                raise Blocked(holder)
        for lock in wanted:
            self._held[lock] = unit
        unit.locks |= wanted

    def _change_shape(self, statement: Statement) -> None:
        sql = statement.named
        if re.search(r"\bcreate\s+table\b", sql, re.IGNORECASE):
            for pattern, known in _TYPES:
                sql = re.sub(pattern, known, sql, flags=re.IGNORECASE)
            if sqlite3.sqlite_version_info >= _STRICT_SINCE:
                sql += " STRICT"
        with self._translated(sql):
            self._data.execute(sql)
        found = self._data.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        tables = {str(name) for (name,) in found}
        for table in sorted(tables - self._watched):
            self._watch(table)
        self._watched = tables

    def _watch(self, table: str) -> None:
        """Have SQLite itself say which rows and keys a statement touches."""
        keys = [(f"{table}({','.join(key)})", key) for key in self._keys(table)]
        inserted = "".join(_told(name, key) for name, key in keys)
        updated = "".join(_told(name, key, changed=True) for name, key in keys)
        name = table.replace('"', '""')
        label = table.replace("'", "''")
        for event, what, row, keys_told in (
            ("INSERT", "new", "NEW", inserted),
            ("UPDATE", "row", "OLD", updated),
            ("DELETE", "row", "OLD", ""),
        ):
            told = f"INSERT INTO touched VALUES ('{what}', '{label}', {row}.rowid);{keys_told}"  # noqa: S608 - quoted
            self._data.execute(
                f'CREATE TEMP TRIGGER "touched {event} {name}" AFTER {event} ON main."{name}" '
                f"BEGIN {told} END"
            )

    def _keys(self, table: str) -> list[tuple[str, ...]]:
        """The columns of each unique key."""
        indexes = self._data.execute(
            'SELECT name FROM pragma_index_list(?) WHERE "unique"', (table,)
        ).fetchall()
        keys = [
            tuple(
                str(column)
                for (column,) in self._data.execute(
                    "SELECT name FROM pragma_index_info(?) ORDER BY seqno", (index,)
                )
            )
            for (index,) in indexes
        ]
        columns = self._data.execute(
            "SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", (table,)
        )
        primary = tuple(str(column) for (column,) in columns)
        return keys if not primary or primary in keys else [*keys, primary]  # INTEGER PRIMARY KEY


def _told(label: str, key: tuple[str, ...], *, changed: bool = False) -> str:
    """The part of a trigger that tells a key's value, if it is one: with a NULL it is none."""
    columns = [column.replace('"', '""') for column in key]
    value = " || ',' || ".join(f'quote(NEW."{column}")' for column in columns)
    there = " AND ".join(f'NEW."{column}" IS NOT NULL' for column in columns)
    if changed:
        differs = " OR ".join(f'NEW."{column}" IS NOT OLD."{column}"' for column in columns)
        there = f"{there} AND ({differs})"
    label = label.replace("'", "''")
    return f" INSERT INTO touched SELECT 'key', '{label}', {value} WHERE {there};"


def _forbid_circle(unit: Unit, holder: Unit) -> None:
    waiting: Unit | None = holder
    while waiting is not None:
        if waiting is unit:
            raise SerializationFailure("deadlock detected: the transactions wait for each other")
        waiting = waiting.waits_for


def _rows(cursor: sqlite3.Cursor) -> list[Row]:
    if cursor.description is None:
        return []
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
