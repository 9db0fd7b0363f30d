"""One message at a time; the broker counts the attempts, and a letter comes before its ack."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
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

RETRY_S = 0.05  # before a failed message comes back
BACK_OFF_S = 0.5  # before a letter is tried again that nobody confirmed
MOST_STORIES = 10_000  # of messages that are still being tried; the oldest is forgotten first

STORY = "dead-letter-"


async def run(
    source: Source,
    handle: Handler,
    dead_letters: DeadLetters,
    *,
    max_attempts: int,
    stop: asyncio.Event,
) -> None:
    """Handle the messages of `source`; what cannot be handled becomes a dead letter."""
    if stop.is_set():
        return
    consumer = Consumer(handle, dead_letters, max_attempts)

    async def close_on_stop() -> None:
        await stop.wait()
        await source.stop_receiving()

    async with asyncio.TaskGroup() as tasks:
        closer = tasks.create_task(close_on_stop(), name="closer")
        async for message in source:
            with suppress(SettleFailed):  # it is the broker's again and will come back by itself
                await consumer.process(message)
        if not stop.is_set():
            closer.cancel()


@dataclass(slots=True)
class Story:
    """What is known of a message that failed, as long as this process lives."""

    reason: str
    error: str
    first: datetime
    last: datetime


class Consumer:
    """Brings one delivery after the other to its end."""

    def __init__(self, handle: Handler, dead_letters: DeadLetters, max_attempts: int) -> None:
        self._handle = handle
        self._dead_letters = dead_letters
        self._max_attempts = max_attempts
        self._stories: dict[str, Story] = {}

    async def process(self, message: Message) -> None:
        """Handle one delivery and settle it. Only being cancelled gets out, and `SettleFailed`."""
        if message.attempt > self._max_attempts:  # its letter could not be written last time
            await self._set_aside(message)
            return
        try:
            json.loads(message.body)
        except (ValueError, RecursionError) as error:
            self._note(message, error)
            await self._set_aside(message)
            return
        failure = await self._failure(message)
        if failure is None:
            self._stories.pop(message.id, None)
            await message.ack()
            return
        self._note(message, failure)
        if isinstance(failure, Permanent) or message.attempt >= self._max_attempts:
            await self._set_aside(message)
        else:
            await message.nack(requeue=True, delay_s=RETRY_S)

    async def _failure(self, message: Message) -> BaseException | None:
        """How the handler failed, if it did. Being cancelled is no failure, and gets out."""
        failure: BaseException | None = None
        try:
            await self._handle(message)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - any failure counts
            failure = error
        # A handler may raise `CancelledError` by itself, or swallow ours: only the task knows which.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return failure

    def _note(self, message: Message, failure: BaseException) -> None:
        now = datetime.now(UTC)
        before = self._stories.pop(message.id, None)
        reason = str(failure) or repr(failure)
        first = before.first if before else now
        self._stories[message.id] = Story(reason, type(failure).__name__, first, now)
        if len(self._stories) > MOST_STORIES:
            del self._stories[next(iter(self._stories))]

    async def _set_aside(self, message: Message) -> None:
        """Write the letter, and only then let the broker forget the message."""
        try:
            await self._dead_letters.publish(
                message.body, id=message.id, key=message.key, headers=self._told(message)
            )
        except PublishFailed:
            # Perhaps it is there, perhaps not. Two letters are better than none.
            await message.nack(requeue=True, delay_s=BACK_OFF_S)
        else:
            self._stories.pop(message.id, None)
            await message.ack()

    def _told(self, message: Message) -> dict[str, str]:
        """The headers of the message, and its story."""
        now = datetime.now(UTC)
        unknown = Story("came back after its last attempt", "unknown", now, now)
        story = self._stories.get(message.id, unknown)
        return {
            **message.headers,
            f"{STORY}reason": story.reason,
            f"{STORY}error": story.error,
            f"{STORY}attempts": str(min(message.attempt, self._max_attempts)),
            f"{STORY}first-failed-at": story.first.isoformat(),
            f"{STORY}last-failed-at": story.last.isoformat(),
        }


async def replay(dead_letters: DeadLetters, publish: Publish, *, limit: int) -> None:
    """Publish up to `limit` dead letters again, the oldest first, as the messages they once were."""
    # What comes in from now on has failed since, and would only fail again: it stays.
    left = min(limit, await dead_letters.count())
    if left <= 0:
        return
    async for letter in dead_letters:
        headers = {name: it for name, it in letter.headers.items() if not name.startswith(STORY)}
        await publish(letter.body, id=letter.id, key=letter.key, headers=headers)
        await letter.ack()  # killed in between, the message is published twice, and never lost
        left -= 1
        if not left:
            return
