"""The databases of a simulated world. They outlive its processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from autograder.sim.clock import Clock
from autograder.sim.timing import Timing
from autograder.storage.expiring import ExpiringLease, ExpiringStore
from autograder.subject.effects import READ

if TYPE_CHECKING:
    from autograder.storage.sqlite import SqliteDatabase
    from autograder.storage.sqlite_store import SqliteStore


class SimStores:
    """What the student's function is given as `db` and `lease`; made only if it is given them."""

    def __init__(
        self, job: dict[str, Any], clock: Clock, timing: Timing, refuse: Callable[[str], NoReturn]
    ) -> None:
        self._timing = timing
        self._tables: SqliteStore | None = None
        if job["tables"]:
            # by name: most exercises have no database, and a check of theirs loads none
            tables: SqliteStore = import_module("autograder.storage.sqlite_store").SqliteStore(
                refuse
            )
            tables.create(job["tables"])
            self._tables = tables
        self._keys = ExpiringStore(lambda: clock.now)

    def database(self) -> SqliteDatabase:
        """A process's connections."""
        assert self._tables is not None, "an exercise with a database has a tables.sql"  # noqa: S101 - for mypy
        database: SqliteDatabase = import_module("autograder.storage.sqlite").SqliteDatabase(
            self._tables, self._pause
        )
        return database

    def lease(self) -> ExpiringLease:
        """A process's connection."""
        return ExpiringLease(self._keys, self._pause)

    def effects(self) -> list[tuple[str, str]]:
        """Every effect that is committed now."""
        rows = self._tables.rows(READ) if self._tables is not None else []
        return [(row["id"], row["detail"]) for row in rows]

    def at_lease(self, do: str, key: str, value: str) -> None:
        """What the examiner does to a lease, as on a real server."""
        if do == "take":
            self._keys.set(key, value, None)
        elif do == "free" or self._keys.left_s(key) >= 0:
            self._keys.delete(key)

    def lease_now(self, key: str) -> tuple[str, float]:
        """The value of a lease, empty for none, and how many seconds it has left; -1: it stays."""
        return self._keys.get(key) or "", self._keys.left_s(key)

    def close(self) -> None:
        """Throw them away."""
        if self._tables is not None:
            self._tables.close()

    async def _pause(self) -> None:
        """The way to a database, or back: half of what a question to the broker takes."""
        await asyncio.sleep(self._timing.store() / 2)
