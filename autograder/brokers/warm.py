"""Servers kept warm between checks: `ackademy brokers up`, `down` and `status`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import psutil

from autograder.brokers import (
    compose,
    compose_control,
    container_engine,
    kafka_boot,
    providers,
    records,
)
from autograder.brokers.compose import Compose
from autograder.brokers.providers import Starter
from autograder.brokers.server import MissingError, NotReadyError, Server
from autograder.model import UsageError

ALIVE_TIMEOUT_S = 3.0
"""How long a warm server may take to answer before it counts as hanging."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a warm server or a compose service stands. `provider` is what started it; `healthy` is by a round trip."""

    engine: str
    url: str
    version: str
    pid: int
    memory_bytes: int  # resident set
    uptime_s: float
    provider: str
    healthy: bool
    container: str = ""  # its name; `pid` is then 0


@dataclass(frozen=True, slots=True)
class Status:
    """Every warm server and compose service, and what was cleaned up while looking."""

    servers: tuple[Standing, ...]
    notices: tuple[str, ...] = ()


def up(
    engines: Iterable[str],
    provider: str | None = None,
    *,
    preparing: Callable[[], None] | None = None,
) -> list[Server]:
    """Start a server to stay for each engine that has none yet; returns all of them.

    Two at once start one. Embedded Kafka's start cache is made on the way if it is missing;
    `preparing` is called before the ten seconds that takes.

    Raises
    ------
    UsageError, MissingError, GraderError
        As `acquire` does; servers that were already started stay.
    """
    return [_up(engine, provider, preparing) for engine in dict.fromkeys(engines)]


def _up(engine: str, provider: str | None, preparing: Callable[[], None] | None) -> Server:
    chosen = _starter(engine, provider)
    if isinstance(chosen, Compose):  # Compose keeps its own books
        return chosen.start(None, warm=True)
    with records.locked(f"up-{engine}"):
        cleaned = records.discard_orphans()
        for record in _warm_records(engine):
            server = record.server(notices=records.told(cleaned))
            if providers.is_alive(server, timeout_s=ALIVE_TIMEOUT_S):
                return server
            records.discard(record)
            cleaned.append(record)
        if engine == "kafka" and chosen.name == "embedded":
            kafka_boot.prepare(preparing)
        server = chosen.start(None, warm=True)
    return replace(server, notices=records.told(cleaned))


def _starter(engine: str, name: str | None) -> Starter:
    """The provider that starts servers; `external` and `warm` do not."""
    if name is not None:
        provider = providers.named(engine, name)
        if isinstance(provider, Compose):
            return provider  # what it lacks is that it does not run yet
        if not isinstance(provider, Starter):
            raise UsageError(
                f"A server cannot be started by the provider {name!r}.",
                next_command=f"ackademy brokers up {engine}",
            )
        missing = provider.missing()
        if missing is not None:
            raise MissingError(
                f"No {name} {engine} server can be started: {missing.sentence}.",
                next_command=missing.next_command,
                reasons={name: missing},
            )
        return provider
    starters = [
        each
        for each in providers.providers(engine)
        if isinstance(each, Starter) and not isinstance(each, Compose)
    ]
    reasons = {}
    for starter in starters:
        missing = starter.missing()
        if missing is None:
            return starter
        reasons[starter.name] = missing
    listed = "".join(f"\n  {each}: {missing.sentence}" for each, missing in reasons.items())
    raise MissingError(
        f"No {engine} server can be started here.{listed}",
        next_command=providers.easiest(reasons).next_command,
        reasons=reasons,
    )


def down(engines: Iterable[str] | None = None) -> list[str]:
    """Stop the warm servers and compose services of these engines, all by default.

    Returns the engines stopped. What a compose service stored stays in its volume.
    """
    wanted = None if engines is None else set(engines)
    engines = wanted
    stopped = []
    for record in _warm_records():
        if wanted is None or record.engine in wanted:
            with records.locked(f"up-{record.engine}"):
                records.discard(record)
            stopped.append(record.engine)
    records.discard_orphans()
    return stopped + [engine for engine in compose_control.down(engines) if engine not in stopped]


def status() -> Status:
    """Look at every warm server and compose service, one round trip each. Stale records are removed and said."""
    cleaned = records.discard_orphans()
    standings = [_standing(record) for record in _warm_records()]
    standings += map(_compose_standing, compose_control.running())
    return Status(tuple(standings), records.told(cleaned))


def _standing(record: records.Record) -> Standing:
    memory = 0
    if record.container:
        memory = container_engine.memory_bytes(record.endpoint, record.container)
    else:
        with contextlib.suppress(psutil.Error):
            memory = psutil.Process(record.pid).memory_info().rss
    return Standing(
        engine=record.engine,
        url=record.url,
        version=record.version,
        pid=record.pid,
        memory_bytes=memory,
        uptime_s=max(0.0, time.time() - record.started_at),
        provider=record.provider,
        healthy=providers.is_alive(record.server(), timeout_s=ALIVE_TIMEOUT_S),
        container=record.container,
    )


def _compose_standing(running: compose_control.Running) -> Standing:
    service = compose.SERVICES[running.engine]
    version, healthy = "", False
    with contextlib.suppress(NotReadyError):
        version, healthy = service.server().version, True
    return Standing(
        engine=running.engine,
        url=service.address,
        version=version,
        pid=0,
        memory_bytes=running.memory_bytes,
        uptime_s=running.uptime_s,
        provider="compose",
        healthy=healthy,
        container=running.container,
    )


def _warm_records(engine: str | None = None) -> list[records.Record]:
    return [
        record
        for record in records.all_records()
        if record.warm and engine in (None, record.engine)
    ]
