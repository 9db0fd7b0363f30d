"""A letter that nobody confirms is tried again on the spot: nothing else is taken meanwhile.

Nothing can be done with a message that has nowhere to go, and the next one may have nowhere either.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime

from autograder.messaging import (
    DeadLetters,
    Handler,
    Message,
    Permanent,
    Publish,
    PublishFailed,
    SettleFailed,
    Source,
)

first_failures: dict[str, str] = {}


async def run(
    source: Source,
    handle: Handler,
    dead_letters: DeadLetters,
    *,
    max_attempts: int,
    stop: asyncio.Event,
) -> None:
    """Handle messages, one after the other."""

    async def closing() -> None:
        await stop.wait()
        await source.stop_receiving()

    if stop.is_set():
        return
    closer = asyncio.create_task(closing())
    try:
        async for message in source:
            with suppress(SettleFailed):
                outcome = await tried(message, handle, max_attempts)
                if outcome is None:
                    first_failures.pop(message.id, None)
                    await message.ack()
                elif final(outcome, message, max_attempts):
                    await bury(message, outcome, dead_letters, stop)
                else:
                    await message.nack(requeue=True)
    finally:
        if not stop.is_set():
            closer.cancel()
        await asyncio.gather(closer, return_exceptions=True)


class Undecodable(Exception):  # noqa: N818 - a state of the bytes
    """The body is no JSON."""


async def tried(message: Message, handle: Handler, max_attempts: int) -> BaseException | None:
    """What went wrong; None if nothing did."""
    if message.attempt > max_attempts:
        return Undecodable("more deliveries than attempts")
    try:
        json.loads(message.body.decode())
    except ValueError as error:
        return Undecodable(str(error))
    try:
        await handle(message)
    except asyncio.CancelledError as error:
        if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # a coroutine is in one
            raise
        return remembered(message, error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this message's
        return remembered(message, error)
    return None


def remembered(message: Message, error: BaseException) -> BaseException:
    """Note when it failed for the first time."""
    first_failures.setdefault(message.id, datetime.now(UTC).isoformat())
    return error


def final(error: BaseException, message: Message, max_attempts: int) -> bool:
    """Whether there will be no further attempt."""
    return isinstance(error, Permanent | Undecodable) or message.attempt >= max_attempts


async def bury(
    message: Message, error: BaseException, dead_letters: DeadLetters, stop: asyncio.Event
) -> None:
    """Write the letter, again and again; at a stop the message goes back instead."""
    now = datetime.now(UTC).isoformat()
    headers = {
        **message.headers,
        "dead-letter-reason": str(error),
        "dead-letter-error": type(error).__name__,
        "dead-letter-attempts": str(message.attempt),
        "dead-letter-first-failed-at": first_failures.get(message.id, now),
        "dead-letter-last-failed-at": now,
    }
    pause_s = 0.05
    while True:
        try:
            await dead_letters.publish(
                message.body, id=message.id, key=message.key, headers=headers
            )
        except PublishFailed:
            if stop.is_set():
                await message.nack(requeue=True)
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)
            pause_s = min(1.0, pause_s * 2)
        else:
            break
    first_failures.pop(message.id, None)
    await message.ack()


async def replay(dead_letters: DeadLetters, publish: Publish, *, limit: int) -> None:
    """Letters by id: the first that comes a second time is one that came back."""
    seen: set[str] = set()
    async for letter in dead_letters:
        if letter.id in seen or len(seen) >= limit:
            await letter.nack(requeue=True)
            return
        headers = dict(letter.headers)
        for name in list(headers):
            if name.startswith("dead-letter-"):
                del headers[name]
        await publish(letter.body, id=letter.id, key=letter.key, headers=headers)
        seen.add(letter.id)
        await letter.ack()
