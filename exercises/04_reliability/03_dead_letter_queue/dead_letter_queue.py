"""Try what fails a few times, set aside what never works with its story, and bring it back by hand."""

from __future__ import annotations

import asyncio

from autograder.messaging import (  # noqa: F401 - you will need them
    DeadLetters,
    Handler,
    Message,
    Permanent,
    Publish,
    PublishFailed,
    SettleFailed,
    Source,
)


async def run(
    source: Source,
    handle: Handler,
    dead_letters: DeadLetters,
    *,
    max_attempts: int,
    stop: asyncio.Event,
) -> None:
    """Handle the messages of `source`; what cannot be handled becomes a dead letter.

    A message whose handler raises comes back, up to `max_attempts` times in all. One that has used
    its last attempt, one whose handler raises `Permanent` and one whose body is no JSON goes to
    `dead_letters`, and only then is it acked.

    Returns when `stop` is set and nothing is in hand any more, or when `source` ends.
    """
    # TODO: decide for each message whether it is done, comes back, or becomes a dead letter.
    raise NotImplementedError


async def replay(dead_letters: DeadLetters, publish: Publish, *, limit: int) -> None:
    """Publish up to `limit` dead letters again, the oldest first, as the messages they once were.

    Letters that come in meanwhile stay. A letter is taken away when its message is confirmed.
    """
    # TODO: publish each letter without its story, ack it, and stop in time.
    raise NotImplementedError
