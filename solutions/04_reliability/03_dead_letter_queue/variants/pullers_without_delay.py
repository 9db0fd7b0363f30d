"""Three tasks share the source, give back at once, and settle by `nack` what has its letter."""

from __future__ import annotations

import asyncio
import json
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


class Consumer:
    """What the tasks share."""

    def __init__(self, handle: Handler, dead_letters: DeadLetters, max_attempts: int) -> None:
        self.handle, self.dead_letters, self.max_attempts = handle, dead_letters, max_attempts
        self.began: dict[str, datetime] = {}

    async def pull(self, source: Source, stop: asyncio.Event) -> None:
        """Take and process until the source ends."""
        messages = aiter(source)
        while not stop.is_set():
            try:
                message = await anext(messages)
            except StopAsyncIteration:
                return
            try:
                await self.process(message)
            except SettleFailed:
                continue

    async def process(self, message: Message) -> None:
        """One delivery."""
        error: BaseException
        if message.attempt > self.max_attempts:
            await self.bury(message, RuntimeError("delivered once too often"))
            return
        try:
            json.loads(message.body)
        except ValueError as unreadable:
            await self.bury(message, unreadable)
            return
        try:
            await self.handle(message)
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            error = cancelled
        except Permanent as permanent:
            await self.bury(message, permanent)
            return
        except Exception as other:  # noqa: BLE001 - it may pass
            error = other
        else:
            self.began.pop(message.id, None)
            await message.ack()
            return
        if message.attempt >= self.max_attempts:
            await self.bury(message, error)
        else:
            self.began.setdefault(message.id, datetime.now(UTC))
            await message.nack(requeue=True)

    async def bury(self, message: Message, error: BaseException) -> None:
        """The letter, and then the end."""
        now = datetime.now(UTC)
        headers = dict(message.headers)
        headers["dead-letter-reason"] = repr(error)
        headers["dead-letter-error"] = type(error).__qualname__
        headers["dead-letter-attempts"] = f"{message.attempt}"
        headers["dead-letter-first-failed-at"] = self.began.get(message.id, now).isoformat()
        headers["dead-letter-last-failed-at"] = now.isoformat()
        try:
            await self.dead_letters.publish(
                message.body, id=message.id, key=message.key, headers=headers
            )
        except PublishFailed:
            await message.nack(requeue=True, delay_s=0.3)
        else:
            self.began.pop(message.id, None)
            await message.nack(requeue=False)


async def run(
    source: Source,
    handle: Handler,
    dead_letters: DeadLetters,
    *,
    max_attempts: int,
    stop: asyncio.Event,
) -> None:
    """Three equal tasks and one that waits for the stop."""
    consumer = Consumer(handle, dead_letters, max_attempts)

    async def close_on_stop() -> None:
        await stop.wait()
        await source.stop_receiving()

    async with asyncio.TaskGroup() as group:
        closer = group.create_task(close_on_stop())
        await asyncio.wait([group.create_task(consumer.pull(source, stop)) for _ in range(3)])
        if not stop.is_set():
            closer.cancel()


async def replay(dead_letters: DeadLetters, publish: Publish, *, limit: int) -> None:
    """The count first; a letter that cannot be published goes back, and the replay ends."""
    for _ in range(min(limit, await dead_letters.count())):
        try:
            letter = await anext(aiter(dead_letters))
        except StopAsyncIteration:
            return
        kept = {k: v for k, v in letter.headers.items() if not k.startswith("dead-letter-")}
        try:
            await publish(letter.body, id=letter.id, key=letter.key, headers=kept)
        except PublishFailed:
            await letter.nack(requeue=True)
            return
        await letter.ack()
