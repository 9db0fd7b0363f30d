"""Four messages at a time, one task each; letters are replayed four at a time as well."""

from __future__ import annotations

import asyncio
import json
import time
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

AT_ONCE = 4


async def run(
    source: Source,
    handle: Handler,
    dead_letters: DeadLetters,
    *,
    max_attempts: int,
    stop: asyncio.Event,
) -> None:
    """Handle messages until `stop` is set or `source` ends."""
    if stop.is_set():
        return
    slots = asyncio.Semaphore(AT_ONCE)
    since: dict[str, float] = {}

    async def one(message: Message) -> None:
        try:
            with suppress(SettleFailed):
                await process(message, handle, dead_letters, max_attempts, since)
        finally:
            slots.release()

    async def close_on_stop() -> None:
        await stop.wait()
        await source.stop_receiving()

    async with asyncio.TaskGroup() as group:
        closer = group.create_task(close_on_stop())
        await slots.acquire()
        async for message in source:
            group.create_task(one(message))
            await slots.acquire()
        if not stop.is_set():
            closer.cancel()


async def process(
    message: Message,
    handle: Handler,
    dead_letters: DeadLetters,
    max_attempts: int,
    since: dict[str, float],
) -> None:
    """One delivery from taking to settling."""
    why: BaseException | None = None
    try:
        if message.attempt <= max_attempts:
            json.loads(message.body)
            await handle(message)
            since.pop(message.id, None)
            await message.ack()
            return
    except SettleFailed:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        why = error
    except Exception as error:  # noqa: BLE001 - one failure is one message's
        why = error
    since.setdefault(message.id, time.time())
    hopeless = isinstance(why, Permanent | json.JSONDecodeError | UnicodeDecodeError)
    if why is not None and not hopeless and message.attempt < max_attempts:
        await message.nack(requeue=True, delay_s=0.02 * message.attempt)
        return
    told = {
        "dead-letter-reason": str(why) or "cancelled",
        "dead-letter-error": f"{type(why).__module__}.{type(why).__qualname__}",
        "dead-letter-attempts": str(message.attempt),
        "dead-letter-first-failed-at": iso(since[message.id]),
        "dead-letter-last-failed-at": iso(time.time()),
    }
    try:
        await dead_letters.publish(
            message.body, id=message.id, key=message.key, headers=dict(message.headers) | told
        )
    except PublishFailed:
        await message.nack(requeue=True, delay_s=1)
        return
    del since[message.id]
    await message.ack()


def iso(seconds: float) -> str:
    """A time as text."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


async def replay(dead_letters: DeadLetters, publish: Publish, *, limit: int) -> None:
    """A few letters at a time: all of them published, then all of them acked."""
    left = min(limit, await dead_letters.count())
    while left > 0:
        letters = await taken(dead_letters, min(left, AT_ONCE))
        if not letters:
            return
        await asyncio.gather(*(again(letter, publish) for letter in letters))
        await asyncio.gather(*(letter.ack() for letter in letters))
        left -= len(letters)


async def again(letter: Message, publish: Publish) -> None:
    """Publish one letter as the message it was."""
    kept = {k: v for k, v in letter.headers.items() if not k.startswith("dead-letter-")}
    await publish(letter.body, id=letter.id, key=letter.key, headers=kept | {"replayed": "1"})


async def taken(dead_letters: DeadLetters, count: int) -> list[Message]:
    """The next few letters, and not one more."""
    letters: list[Message] = []
    async for letter in dead_letters:
        letters.append(letter)
        if len(letters) == count:
            break
    return letters
