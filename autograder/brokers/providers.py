"""Where a server comes from: one table, row by row, the fastest honest place first.

To add a provider, write a class with `name`, `missing` and `open`, and put it into the table; to
add an engine or a store, give it a row and a probe. An engine is a broker that exercises run on. A
store is a database that stands beside whichever engine: no exercise runs on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from autograder.brokers import (
    containers,
    kafka,
    kafka_local,
    kafka_wire,
    nats,
    nats_wire,
    postgres,
    postgres_wire,
    process,
    rabbitmq,
    rabbitmq_wire,
    records,
    throwaway,
    valkey,
    valkey_wire,
)
from autograder.brokers.compose import Compose
from autograder.brokers.containers import Container
from autograder.brokers.process import Patience
from autograder.brokers.server import Missing, MissingError, NotReadyError, Server
from autograder.brokers.throwaway import Recipe
from autograder.model import GraderError, UsageError


class Provider(Protocol):
    """One place where servers of one engine come from."""

    @property
    def name(self) -> str:
        """Its name on the command line and in reports."""

    def missing(self) -> Missing | None:
        """Why there is none to be had here; None when there is."""

    def open(self, patience: Patience | None) -> Server:
        """A server that answers. Raises `GraderError` when there should be one and is not."""

    def close(self, server: Server) -> None:
        """Stop it, if this provider started it for whoever opened it."""


@runtime_checkable
class Starter(Provider, Protocol):
    """A provider that starts servers of its own, and can start one to stay."""

    def start(self, patience: Patience | None, *, warm: bool) -> Server:
        """Start one, to stay if `warm`."""


def probe_nats(url: str, timeout_s: float) -> str:
    """One round trip with a NATS server; returns its version."""
    return nats_wire.probe(url, timeout_s=timeout_s)


def probe_kafka(url: str, timeout_s: float) -> str:
    """One round trip with a Kafka broker; returns the release of its feature level."""
    return kafka_wire.probe(url, timeout_s=timeout_s).release or "unknown"


def probe_rabbitmq(url: str, timeout_s: float) -> str:
    """One login and one channel at a RabbitMQ server; returns its version."""
    return rabbitmq_wire.probe(url, timeout_s=timeout_s)


def probe_postgres(url: str, timeout_s: float) -> str:
    """One login and one question at a PostgreSQL server; returns its version."""
    return postgres_wire.probe(url, timeout_s=timeout_s)


def probe_valkey(url: str, timeout_s: float) -> str:
    """One login and one PING at a Valkey or Redis server; returns its version."""
    return valkey_wire.probe(url, timeout_s=timeout_s)


PROBES: Mapping[str, Callable[[str, float], str]] = {
    "nats": probe_nats,
    "kafka": probe_kafka,
    "rabbitmq": probe_rabbitmq,
    "postgres": probe_postgres,
    "valkey": probe_valkey,
}

EXAMPLES: Mapping[str, str] = {
    "nats": "nats://127.0.0.1:4222",
    "kafka": "127.0.0.1:9092",
    "rabbitmq": "amqp://guest:guest@127.0.0.1:5672",
    "postgres": "postgresql://postgres:password@127.0.0.1:5432/postgres",
    "valkey": "redis://127.0.0.1:6379",
}
"""What an address of each looks like."""

VARIABLES: Mapping[str, str] = {"valkey": "ACKADEMY_REDIS_URL"}
"""The environment variable that names a server, where it is not the server's own name."""


@dataclass(frozen=True)
class External:
    """A server somebody else runs, named by an environment variable. Never stopped by us."""

    engine: str
    name: str = "external"

    @property
    def variable(self) -> str:
        """The environment variable that names it."""
        return VARIABLES.get(self.engine, f"ACKADEMY_{self.engine.upper()}_URL")

    def missing(self) -> Missing | None:
        """Say whether it is named.

        A named server that is down is an error, not a reason to quietly use another one.
        """
        if os.environ.get(self.variable, "").strip():
            return None
        example = EXAMPLES.get(self.engine, "")
        return Missing(f"{self.variable} is not set", f"export {self.variable}={example}")

    def open(self, patience: Patience | None) -> Server:
        """The named server, after a round trip."""
        url = os.environ[self.variable].strip()
        if self.engine == "kafka":
            url = ",".join(each.rpartition("://")[2] for each in url.split(","))
        try:
            version = PROBES[self.engine](url, 5.0)
            if self.engine == "kafka" and (gap := kafka_wire.unreachable(kafka_wire.probe(url))):
                raise NotReadyError(gap)
        except NotReadyError as error:
            raise GraderError(
                f"The {self.engine} server of {self.variable} is not ready: {error}.",
                next_command=f"unset {self.variable}",
            ) from error
        return Server(self.engine, url, self.name, version)

    def close(self, server: Server) -> None:
        """Leave it alone."""


@dataclass(frozen=True)
class Warm:
    """A server that `ackademy brokers up` started. `ackademy brokers down` stops it."""

    engine: str
    name: str = "warm"

    def missing(self) -> Missing | None:
        """Whether one is on record and alive."""
        if warm_record(self.engine) is not None:
            return None
        return Missing("no server is kept warm", f"ackademy brokers up {self.engine}")

    def open(self, patience: Patience | None) -> Server:
        """The warm server, after a round trip."""
        record = warm_record(self.engine)
        if record is None:
            raise GraderError(
                f"The warm {self.engine} server has just been stopped.",
                next_command=f"ackademy brokers up {self.engine}",
            )
        server = record.server(provider=self.name)
        require_alive(server, next_command="ackademy brokers down && ackademy brokers up")
        return server

    def close(self, server: Server) -> None:
        """Leave it warm."""


@dataclass(frozen=True)
class Started:
    """A server of our own, in a throwaway folder, for as long as it is needed."""

    engine: str
    name: str
    find: Callable[[], Recipe | Missing]

    def missing(self) -> Missing | None:
        """What is not installed."""
        found = self.find()
        return found if isinstance(found, Missing) else None

    def open(self, patience: Patience | None) -> Server:
        """Start one."""
        return self.start(patience, warm=False)

    def start(self, patience: Patience | None, *, warm: bool) -> Server:
        """Start one, to stay if `warm`."""
        found = self.find()
        if isinstance(found, Missing):
            raise GraderError(
                f"No {self.name} {self.engine} server: {found.sentence}.",
                next_command=found.next_command,
            )
        return throwaway.start(found, warm=warm, patience=patience)

    def close(self, server: Server) -> None:
        """Stop it and delete its folder."""
        throwaway.stop(server)


def _places(engine: str, **ours: Callable[[], Recipe | Missing]) -> Sequence[Provider]:
    """Where servers of one engine or store come from, first asked first; `ours` are what we start."""
    started = [Started(engine, name, find) for name, find in ours.items()]
    return (External(engine), Compose(engine), Warm(engine), *started, Container(engine))


TABLE: Mapping[str, Sequence[Provider]] = {
    "nats": _places("nats", embedded=nats.embedded, local=nats.local),
    "kafka": _places("kafka", embedded=kafka.embedded, local=kafka_local.local),
    "rabbitmq": _places("rabbitmq", local=rabbitmq.local),
    "postgres": _places("postgres", embedded=postgres.embedded, local=postgres.local),
    "valkey": _places("valkey", embedded=valkey.embedded, local=valkey.local),
}

STORES = ("postgres", "valkey")


def engines() -> tuple[str, ...]:
    """The brokers that a server can be had for."""
    return tuple(name for name in TABLE if name not in STORES)


def stores() -> tuple[str, ...]:
    """The databases that a server can be had for."""
    return STORES


def require_known(engine: str) -> None:
    """Nothing for an engine or a store. Raises `UsageError` for any other word."""
    if engine not in TABLE:
        raise UsageError(
            f"There is no engine {engine!r}. There are: {', '.join(engines())}; "
            f"and the stores {' and '.join(stores())}.",
            next_command="ackademy brokers status",
        )


def providers(engine: str) -> Sequence[Provider]:
    """The providers of one engine or store, in the order in which they are asked."""
    require_known(engine)
    return TABLE[engine]


def named(engine: str, name: str) -> Provider:
    """One provider of one engine."""
    for provider in providers(engine):
        if provider.name == name:
            return provider
    known = ", ".join(provider.name for provider in providers(engine))
    raise UsageError(
        f"There is no provider {name!r} for {engine}. There are: {known}.",
        next_command="ackademy brokers status",
    )


def choose(engine: str, name: str | None = None) -> Provider:
    """The provider of this name, else the first that has a server to give.

    Raises
    ------
    UsageError
        There is no such engine or provider.
    MissingError
        None of those asked has a server. The text says of each why not, and the next command is
        the one that is least trouble.
    """
    asked = [named(engine, name)] if name else list(providers(engine))
    reasons: dict[str, Missing] = {}
    for provider in asked:
        missing = provider.missing()
        if missing is None:
            return provider
        reasons[provider.name] = missing
    listed = "".join(f"\n  {each}: {missing.sentence}" for each, missing in reasons.items())
    raise MissingError(
        f"There is no {engine} server to be had here.{listed}",
        next_command=easiest(reasons).next_command,
        reasons=reasons,
    )


def easiest(reasons: Mapping[str, Missing]) -> Missing:
    """The lack that is least trouble to mend, of those of several providers by name."""
    return reasons.get("embedded") or reasons.get("local") or next(iter(reasons.values()))


def available(engine: str) -> dict[str, Missing | None]:
    """Every provider of an engine, in order, and what is missing for it."""
    return {provider.name: provider.missing() for provider in providers(engine)}


def warm_record(engine: str) -> records.Record | None:
    """The record of the warm server of this engine, if its process lives."""
    for record in records.all_records():
        if record.engine == engine and record.warm and record.url and record.running:
            return record
    return None


def is_alive(server: Server, *, timeout_s: float = 5.0) -> bool:
    """Whether the server still answers a protocol round trip.

    Tells a broker that died in the middle of a run, which is our fault, from a student's failure.
    Blocks up to `timeout_s`; from a coroutine, `await asyncio.to_thread(is_alive, server)`.
    """
    if server.pid and not process.is_running(server.pid, server.started):
        return False
    try:
        PROBES[server.engine](server.url, timeout_s)
    except NotReadyError:
        return False
    return True


def require_alive(server: Server, *, timeout_s: float = 5.0, next_command: str = "") -> None:
    """Nothing when the server answers.

    Raises
    ------
    GraderError
        It does not (exit code 3). The text ends with the last lines of its log, if it is ours.
    """
    if is_alive(server, timeout_s=timeout_s):
        return
    # a process that is being killed closes its sockets a moment before it is gone
    gone = containers.has_died(server) or (
        bool(server.pid)
        and process.wait_until(
            lambda: not process.is_running(server.pid, server.started), timeout_s=0.5
        )
    )
    what = "has died" if gone else f"at {server.url.rpartition('@')[2]} does not answer"
    raise GraderError(
        f"The {server.provider} {server.engine} server {what}.{throwaway.quote_log(server.log)}",
        next_command=next_command or "ackademy brokers status",
    )
