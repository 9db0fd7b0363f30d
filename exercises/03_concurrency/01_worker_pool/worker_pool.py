"""Handle orders with a fixed number of workers: never more at once, never fewer than you could."""

from __future__ import annotations

import asyncio

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source  # noqa: F401 - you will need them


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Take messages from `source` and call `handle` with each, `workers` at a time.

    Work done is acked, and only then. `Permanent` gives the message up, any other failure gives
    it back; neither ends the pool. At most `2 * workers + 2` messages are in hand at once.

    Returns when `stop` is set and nothing is in hand any more, or when `source` ends.
    """
    # TODO: take messages, hand each to one of `workers` tasks, and settle it when the work is done.
    raise NotImplementedError
