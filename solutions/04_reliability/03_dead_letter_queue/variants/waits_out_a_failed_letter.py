"""After a letter that failed nothing is taken for a while; all letters are replayed at once."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import datetime

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

AWAY_S = 0.5  # in which the dead letters may come back


async def run(
    source: Source,
    handle: Handler,
    dead_letters: DeadLetters,
    *,
    max_attempts: int,
    stop: asyncio.Event,
) -> None:
    """Message by message."""
    if stop.is_set():
        return
    closer = asyncio.create_task(closed_at(stop, source))
    since: dict[str, str] = {}
    try:
        async for message in source:
            try:
                error, hopeless = await tried(message, handle, max_attempts)
                if error is None:
                    since.pop(message.id, None)
                    await message.ack()
                    continue
                at = datetime.now().astimezone().isoformat()  # of here, with the distance from UTC
                since.setdefault(message.id, at)
                if not hopeless and message.attempt < max_attempts:
                    await message.nack(requeue=True, delay_s=0.1)
                elif await buried(message, error, dead_letters, (since[message.id], at)):
                    del since[message.id]
                    await message.nack(requeue=False)
                else:
                    await message.nack(requeue=True)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), AWAY_S)
            except SettleFailed:
                continue
    finally:
        if not stop.is_set():
            closer.cancel()
        await asyncio.wait({closer})


async def closed_at(stop: asyncio.Event, source: Source) -> None:
    """Take no more once it is set."""
    await stop.wait()
    await source.stop_receiving()


async def tried(
    message: Message, handle: Handler, max_attempts: int
) -> tuple[BaseException | None, bool]:
    """What went wrong, and whether that can never be another way."""
    if message.attempt > max_attempts:
        return RuntimeError("its attempts were used up"), True
    try:
        json.loads(message.body)
    except ValueError as error:
        return error, True
    work = asyncio.ensure_future(handle(message))
    try:
        await asyncio.wait({work})
    except asyncio.CancelledError:
        work.cancel()
        await asyncio.wait({work})
        raise
    why = asyncio.CancelledError() if work.cancelled() else work.exception()
    return why, isinstance(why, Permanent)


async def buried(
    message: Message, error: BaseException, dead_letters: DeadLetters, times: tuple[str, str]
) -> bool:
    """Whether the letter is there for certain."""
    story = {
        "dead-letter-reason": str(error) or repr(error),
        "dead-letter-error": type(error).__qualname__,
        "dead-letter-attempts": str(message.attempt),
        "dead-letter-first-failed-at": times[0],
        "dead-letter-last-failed-at": times[1],
    }
    try:
        await dead_letters.publish(
            message.body, id=message.id, key=message.key, headers=dict(message.headers) | story
        )
    except PublishFailed:
        return False
    return True


async def replay(dead_letters: DeadLetters, publish: Publish, *, limit: int) -> None:
    """All of them under way together; those that arrived are acked, the others go back."""
    left = max(0, min(limit, await dead_letters.count()))
    letters: list[Message] = []
    while len(letters) < left:
        letter = await anext(aiter(dead_letters), None)
        if letter is None:
            break
        letters.append(letter)
    failures = await asyncio.gather(
        *(again(letter, publish) for letter in letters), return_exceptions=True
    )
    for letter, failure in zip(letters, failures, strict=True):
        if failure is None:
            await letter.ack()
        else:
            await letter.nack(requeue=True)


async def again(letter: Message, publish: Publish) -> None:
    """Publish one."""
    headers = {name: it for name, it in letter.headers.items() if name[:12] != "dead-letter-"}
    await publish(letter.body, id=letter.id, key=letter.key, headers=headers)
