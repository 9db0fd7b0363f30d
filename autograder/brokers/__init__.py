"""Where a server comes from: named by the environment, kept warm, embedded, or installed here.

    with acquire("nats") as server:
        print(server.url, server.version, server.provider)

`async with acquire("kafka") as server` is the same for coroutines. Engines are the brokers that an
exercise runs on; stores are the databases beside them, `postgres` and `valkey`. Nothing that was started
survives the block, nor a crash of whoever runs it: see `records`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autograder.brokers import kafka_boot, kafka_jars
from autograder.brokers.kafka_jars import installed
from autograder.brokers.providers import (
    available,
    engines,
    is_alive,
    require_alive,
    require_known,
    stores,
)
from autograder.brokers.server import Missing, MissingError, Progress, Server
from autograder.brokers.session import acquire
from autograder.brokers.warm import Standing, Status, down, status, up

__all__ = [
    "Missing",
    "MissingError",
    "Server",
    "Standing",
    "Status",
    "acquire",
    "available",
    "down",
    "engines",
    "install_kafka",
    "installed",
    "is_alive",
    "require_alive",
    "require_known",
    "status",
    "stores",
    "up",
]


def install_kafka(
    progress: Progress | None = None,
    *,
    waiting: Callable[[], None] | None = None,
    preparing: Callable[[], None] | None = None,
) -> Path:
    """Fetch the pinned jars of Apache Kafka into the user's cache and make its start fast.

    `progress` gets done and total bytes; `waiting` is called when another installation is under
    way, `preparing` before the ten seconds in which the start cache is made. Does nothing that is
    done already. Returns the folder. Raises what `kafka_jars.install` raises; a failed preparation
    is silent, because it only makes starts slower.
    """
    home = kafka_jars.install(progress, waiting=waiting)
    kafka_boot.prepare(preparing)
    return home
