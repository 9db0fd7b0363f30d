"""The broker behind a lesson: the embedded NATS server, one for as long as the kernel lives."""

from __future__ import annotations

import atexit
import os
from functools import cache

from autograder.brokers import Server, acquire

ENGINE = "nats"


@cache
def server() -> Server:
    """The server, started at the first call. ACKADEMY_LESSON_PROVIDER chooses another provider."""
    session = acquire(ENGINE, os.environ.get("ACKADEMY_LESSON_PROVIDER", "embedded"))
    opened = session.__enter__()
    atexit.register(session.__exit__, None, None, None)
    return opened
