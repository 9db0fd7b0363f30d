"""The servers behind a lesson: NATS, and PostgreSQL where money is kept. They live as long as the kernel."""

from __future__ import annotations

import atexit
import os
from functools import cache

from autograder.brokers import Server, acquire

ENGINE = "nats"
STORE = "postgres"

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


def store_in_use() -> Server | None:
    """The database server, if anything has asked for it."""
    return _opened.get(STORE)
