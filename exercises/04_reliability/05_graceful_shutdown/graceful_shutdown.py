"""A consumer that is a process of its own: it ends when it is told to, and leaves nothing half done."""

from __future__ import annotations

import asyncio  # noqa: F401 - you will need it
import signal  # noqa: F401 - the same

from autograder.messaging import Connect, Handler, Message, Permanent, SettleFailed  # noqa: F401 - the same


async def main(connect: Connect, handle: Handler, *, workers: int, deadline_s: float) -> int:
    """Consume until SIGTERM or SIGINT comes; then finish what is in hand, close, and return.

    `connect()` opens the connection, which is yours to close. Up to `workers` handlers run at once.
    The result is the exit status of the process: 0 if everything begun was finished, not 0 if work
    was torn off, `deadline_s` after the first signal or at the second one.
    """
    # TODO: listen for both signals before anything else.
    # TODO: connect, and handle messages with `workers` tasks until a signal comes.
    # TODO: drain within the deadline, close the connection on every way out, and tell how it went.
    raise NotImplementedError
