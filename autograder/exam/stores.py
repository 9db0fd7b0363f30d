"""The databases of one run: what a student's function is given as `db` and `lease`, and who counts.

Each run has a schema and a user of its own in PostgreSQL, and a user with a prefix of its own in
Valkey, with passwords that nobody can guess: runs beside each other, and a subject that looks around,
see nothing of one another. A schema takes a fifth of the time that a database takes. The tables are
the examiner's: a subject may read the effects and add to them, and cannot take one back.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from autograder.model import Call, Exercise, GraderError
from autograder.subject.effects import EFFECTS, READ

if TYPE_CHECKING:
    from autograder.brokers import Server

STORES: Mapping[str, str] = {"db": "postgres", "lease": "valkey"}
"""What a function is given by name, and the store that it comes from."""

_PATIENCE_S = 20.0
_SCRAM_ITERATIONS_SINCE = (16,)
"""Version of PostgreSQL that can be told how often SCRAM hashes a password, 4,096 times by default
(https://www.postgresql.org/docs/16/runtime-config-connection.html): that slows guessing down, and a
run's password of 128 random bits needs no such help. Both sides do it for every connection."""
_COMMANDS = "-@all +auth +ping +get +set +del +pexpire +eval"  # what the port `Lease` is made of
Effect = tuple[str, str]
"""The id of a message, and what else the row says."""
Held = tuple[str, float]
"""The value of a lease, empty for none, and how many seconds it has left; -1: it does not end."""


def needed(calls: Iterable[Call]) -> list[str]:
    """The stores that these functions need, by the names of `autograder.brokers`."""
    return sorted({STORES[name] for call in calls for name in call.names if name in STORES})


def of_exercise(exercise: Exercise) -> list[str]:
    """The stores that an exercise needs."""
    return needed([*exercise.calls, exercise.call()])


def modules(exercise: Exercise) -> list[str]:
    """What a process imports to reach them: worth doing once, before subjects are forked."""
    adapters = {"postgres": "autograder.storage.postgres", "valkey": "autograder.storage.valkey"}
    return [adapters[store] for store in of_exercise(exercise)]


@dataclass(frozen=True)
class Stores:
    """The servers of an exam, and the tables of its exercise."""

    servers: Mapping[str, Server] = field(default_factory=dict)
    tables: str = ""
    _idle: list[Any] = field(default_factory=list)
    """The examiner's connections to PostgreSQL that no run uses now: one costs as much as a run's
    tables do."""

    def open(self, call: Call) -> RunStores:
        """What one run of this function needs. It still has to be `prepare`d."""
        names = [name for name in call.names if name in STORES]
        for name in names:
            if STORES[name] not in self.servers:
                raise GraderError(
                    f"This run needs {STORES[name]}, and nobody has started it.",
                    next_command=f"ackademy brokers up {STORES[name]}",
                )
        return RunStores(self.servers, names, self.tables, self._idle)

    async def close(self) -> None:
        """Close the examiner's connections, when there are no more runs."""
        while self._idle:
            self._idle.pop().terminate()
        await asyncio.sleep(0)  # closed transports say goodbye in the loop's next turn


class RunStores:
    """The stores of one run."""

    def __init__(
        self, servers: Mapping[str, Server], names: Sequence[str], tables: str, idle: list[Any]
    ) -> None:
        self._servers = servers
        self._idle = idle
        self._names = names
        self._tables = tables
        self._user = f"run_{secrets.token_hex(8)}"
        self._password = secrets.token_hex(16)
        self._postgres: Any = None
        self._valkey: Any = None
        self.job: dict[str, Any] = {}  # what the subject is told

    @property
    def ports(self) -> tuple[int, ...]:
        """Where the subject has to connect to."""
        return tuple(self._servers[STORES[name]].address[1] for name in self._names)

    @property
    def hosts(self) -> tuple[str, ...]:
        """On which machines."""
        return tuple(self._servers[STORES[name]].address[0] for name in self._names)

    async def prepare(self) -> None:
        """Make the user, the tables, the prefix. Raises `GraderError` if the server refuses."""
        try:
            if "db" in self._names:
                await self._prepare_postgres()
            if "lease" in self._names:
                await self._prepare_valkey()
        except Exception as error:
            raise GraderError(
                f"The examiner cannot prepare its stores: {error}.",
                next_command="ackademy brokers status",
            ) from error

    async def _prepare_postgres(self) -> None:
        url = self._servers["postgres"].url
        self._postgres = self._idle.pop() if self._idle else await _connect(url)
        user = self._user
        if self._postgres.get_server_version() >= _SCRAM_ITERATIONS_SINCE:
            await self._postgres.execute("SET scram_iterations = 1")
        await self._postgres.execute(
            f"CREATE ROLE {user} LOGIN PASSWORD '{self._password}'; CREATE SCHEMA {user}; "
            f"GRANT USAGE, CREATE ON SCHEMA {user} TO {user}; "
            f"ALTER ROLE {user} SET search_path = {user}; SET search_path = {user}; {self._tables}; "
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {user} TO {user}"
        )
        if EFFECTS in self._tables:
            await self._postgres.execute(f"REVOKE UPDATE, DELETE ON {EFFECTS} FROM {user}")
        self.job["db"] = _as_user(url, user, self._password)

    async def _prepare_valkey(self) -> None:
        from autograder.storage.valkey import Connection  # noqa: PLC0415 - the same

        url = self._servers["valkey"].url
        self._valkey = Connection(url)
        words = f"ACL SETUSER {self._user} on >{self._password} ~{self._user}:* {_COMMANDS}"
        await self._valkey.call(*words.split())
        self.job["lease"] = [_as_user(url, self._user, self._password), f"{self._user}:"]

    async def effects(self) -> list[Effect]:
        """Every effect that is committed now."""
        if self._postgres is None:
            return []
        return [(row["id"], row["detail"]) for row in await self._postgres.fetch(READ)]

    async def at_lease(self, do: str, key: str, value: str) -> Held:
        """Set a lease to this value, delete it, delete it if it would end by itself, or look."""
        if self._valkey is None:
            return "", -1.0
        call, key = self._valkey.call, f"{self._user}:{key}"
        left_ms = int(await call("PTTL", key))
        match do:
            case "take":
                await call("SET", key, value)
            case "free":
                await call("DEL", key)
            case "end" if left_ms >= 0:
                await call("DEL", key)
        found = await call("GET", key)
        return found or "", left_ms / 1000 if left_ms >= 0 else -1.0

    async def settle(self) -> None:
        """Return when the server has ended everything of a subject that is gone.

        What was sent to be committed before the process died may be committed after it.
        """
        if self._postgres is None:
            return
        async with asyncio.timeout(_PATIENCE_S):
            while await self._sessions():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.002)

    async def _sessions(self) -> int:
        query = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1"
        return int(await self._postgres.fetchval(query, self._user))

    async def drop(self) -> None:
        """Take everything of this run away. Left-overs hurt nobody: nobody knows their names."""
        if self._postgres is not None:
            with suppress(Exception):
                await self._postgres.execute(
                    f"DROP SCHEMA {self._user} CASCADE; DROP OWNED BY {self._user}; "
                    f"DROP ROLE {self._user}"
                )
            self._keep_or_end()
        if self._valkey is not None:
            with suppress(Exception):
                await self._valkey.call("ACL", "DELUSER", self._user)
            self._valkey.close()

    def _keep_or_end(self) -> None:
        connection, self._postgres = self._postgres, None
        if connection.is_closed() or connection.is_in_transaction():
            connection.terminate()
        else:
            self._idle.append(connection)


async def _connect(url: str) -> Any:
    """A connection of the examiner's; it prepares nothing, for the next run's tables are others."""
    import asyncpg  # noqa: PLC0415 - slow to import, and most exercises have no database

    tls: dict[str, Any] = {} if "sslmode=" in url else {"ssl": False}
    return await asyncpg.connect(url, timeout=_PATIENCE_S, statement_cache_size=0, **tls)


def _as_user(url: str, user: str, password: str) -> str:
    """The same address for somebody else."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(user)}:{quote(password)}@{place}").geturl()
