"""Which versions of a server are on this machine, without starting one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from autograder import brokers
from autograder.brokers import kafka_jars, kafka_local, nats, postgres, rabbitmq, valkey
from autograder.brokers.server import Missing

Found = Iterator[tuple[str, str]]


def server_versions(engine: str) -> Found:
    """Where a server of an engine or a store was found, and its version: those that run first."""
    for standing in brokers.status().servers:
        if standing.engine == engine and standing.version:
            yield standing.provider if standing.provider == "compose" else "warm", standing.version
    yield from _INSTALLED[engine]()


def _nats() -> Found:
    for place, binary in (("embedded", nats.wheel_binary()), ("local", nats.path_binary())):
        if said := _asked(binary):
            yield place, said.rpartition("v")[2]


def _kafka() -> Found:
    if kafka_jars.installed():
        yield "embedded", kafka_jars.version()
    local = kafka_local.local()
    if not isinstance(local, Missing):
        yield "local", local.version or "of unknown version"


def _rabbitmq() -> Found:
    if version := rabbitmq.installed_version():
        yield "local", version


def _postgres() -> Found:
    """`postgres (PostgreSQL) 16.14`."""
    places = (("embedded", postgres.wheel_programs()), ("local", postgres.path_programs()))
    for place, programs in places:
        if said := _asked(programs and programs / "postgres"):
            yield place, said.partition(") ")[2].partition(" ")[0]


def _valkey() -> Found:
    """`Valkey server v=9.1.2 sha=00000000:1 ...`, and Redis alike."""
    for place, binary in (("embedded", valkey.wheel_binary()), ("local", valkey.path_binary())):
        if said := _asked(binary):
            yield place, said.partition("v=")[2].partition(" ")[0]


_INSTALLED: Mapping[str, Callable[[], Found]] = {
    "nats": _nats,
    "kafka": _kafka,
    "rabbitmq": _rabbitmq,
    "postgres": _postgres,
    "valkey": _valkey,
}


def _asked(binary: Path | None) -> str:
    return first_line([str(binary), "--version"]) if binary is not None else ""


def first_line(command: list[str]) -> str:
    """What a command says of its version; empty when it does not run."""
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return (said.stdout.strip() or said.stderr.strip()).partition("\n")[0]
