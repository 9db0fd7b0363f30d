"""Handle what belongs together in order, and everything else at the same time."""

from __future__ import annotations

import asyncio

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source  # noqa: F401 - you will need them


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Take messages from `source` and call `handle` with each, in order within a key.

    Of one key one message is handled at a time; different keys run at the same time, `workers`
    handlers at most. What fails is tried again in its place, and what follows it waits; only
    `Permanent` gives a message up.

    Returns when `stop` is set and nothing is in hand any more, or when `source` ends.
    """
    # TODO: take messages, let each wait for those of its key that came before it, and settle it.
    raise NotImplementedError
