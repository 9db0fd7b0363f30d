"""The servers behind a lesson: NATS, and what keeps its money and its leases. They live as long as the kernel."""

from __future__ import annotations

import atexit
import os
from functools import cache

from autograder.brokers import Server, acquire

ENGINE = "nats"
STORE = "postgres"
LEASES = "valkey"

_opened: dict[str, Server] = {}


@cache
def server(name: str = ENGINE) -> Server:
    """The server, started at the first call. ACKADEMY_LESSON_PROVIDER chooses another provider."""
    session = acquire(name, os.environ.get("ACKADEMY_LESSON_PROVIDER", "embedded"))
    opened = session.__enter__()
    atexit.register(session.__exit__, None, None, None)
    _opened[name] = opened
    return opened


def store() -> Server:
    """The database server, started at the first call."""
    return server(STORE)


def stores_in_use() -> dict[str, Server]:
    """The servers beside the broker that anything has asked for, by the names that people know."""
    named = {"PostgreSQL": STORE, "Valkey": LEASES}
    return {name: _opened[each] for name, each in named.items() if each in _opened}
