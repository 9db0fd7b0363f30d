"""Each take races the stop; after it, whatever fails goes back. A replay takes every letter first."""

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


class Hopeless(Exception):  # noqa: N818 - a state of the message
    """No attempt can change it, or none is left. What was wrong is its cause, if anything was."""


async def run(
    source: Source,
    handle: Handler,
    dead_letters: DeadLetters,
    *,
    max_attempts: int,
    stop: asyncio.Event,
) -> None:
    """Take, process, and look up: there may be nothing more, or a stop."""
    consumer = Consumer(handle, dead_letters, max_attempts, stop)
    stopping = asyncio.create_task(stop.wait())
    taking: asyncio.Task[Message | None] | None = None
    try:
        while not stop.is_set():
            taking = asyncio.create_task(taken(source))
            await asyncio.wait({taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                await source.stop_receiving()
            message = await taking
            if message is None:
                break
            with suppress(SettleFailed):
                await consumer.process(message)
    finally:
        tasks = [each for each in (stopping, taking) if each is not None]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def taken(source: Source) -> Message | None:
    """The next message, or None at the end."""
    try:
        return await anext(aiter(source))
    except StopAsyncIteration:
        return None


class Consumer:
    """One message at a time."""

    def __init__(
        self, handle: Handler, dead_letters: DeadLetters, max_attempts: int, stop: asyncio.Event
    ) -> None:
        self.handle, self.dead_letters = handle, dead_letters
        self.max_attempts, self.stop = max_attempts, stop
        self.since: dict[str, str] = {}

    async def process(self, message: Message) -> None:
        """From taking to settling."""
        try:
            await self.tried(message)
        except Hopeless as hopeless:
            await self.bury(message, hopeless.__cause__ or hopeless)
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self.since.setdefault(message.id, now())
            if message.attempt < self.max_attempts:
                await message.nack(requeue=True, delay_s=0.0 if self.stop.is_set() else 1.0)
            else:
                await self.bury(message, error)
        else:
            self.since.pop(message.id, None)
            await message.ack()

    async def tried(self, message: Message) -> None:
        """Handle it, if there is a point in that."""
        if message.attempt > self.max_attempts:
            raise Hopeless("it has come more often than it may be tried")
        try:
            json.loads(message.body)
        except ValueError as error:
            raise Hopeless from error
        try:
            await self.handle(message)
        except Permanent as error:
            raise Hopeless from error

    async def bury(self, message: Message, error: BaseException) -> None:
        """Write the letter; after a stop, leave that to the next process."""
        if self.stop.is_set():
            await message.nack(requeue=True)
            return
        at = now()
        story = {
            "reason": f"{error}" or "it did not say",
            "error": type(error).__name__,
            "attempts": f"{min(message.attempt, self.max_attempts)}",
            "first-failed-at": self.since.setdefault(message.id, at),
            "last-failed-at": at,
        }
        headers = {**message.headers, **{f"dead-letter-{name}": it for name, it in story.items()}}
        try:
            await self.dead_letters.publish(
                message.body, id=message.id, key=message.key, headers=headers
            )
        except PublishFailed:
            await message.nack(requeue=True, delay_s=1.0)
        else:
            del self.since[message.id]
            await message.ack()


def now() -> str:
    """With a `Z`, as many systems write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def replay(dead_letters: DeadLetters, publish: Publish, *, limit: int) -> None:
    """Everything that there is, in hand; as many as asked for are published, the others go back.

    A letter that cannot be published goes back as well, and the next one is tried.
    """
    letters = [letter async for letter in dead_letters]
    for number, letter in enumerate(letters):
        if number >= limit:
            await letter.nack(requeue=True)
            continue
        kept = {k: v for k, v in letter.headers.items() if not k.startswith("dead-letter-")}
        try:
            await publish(letter.body, id=letter.id, key=letter.key, headers=kept)
        except PublishFailed:
            await letter.nack(requeue=True)
        else:
            await letter.ack()
