"""One task takes, a small queue, one task works."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
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


class Consumer:
    """Everything between the source and the dead letters."""

    def __init__(self, handle: Handler, dead_letters: DeadLetters, max_attempts: int) -> None:
        self._handle = handle
        self._dead_letters = dead_letters
        self._max_attempts = max_attempts
        self._failures: dict[str, list[str]] = {}  # times, by message
        self.queue: asyncio.Queue[Message | None] = asyncio.Queue(maxsize=2)

    async def take(self, source: Source, stop: asyncio.Event) -> None:
        """Fill the queue until the source ends."""
        if not stop.is_set():
            async for message in source:
                await self.queue.put(message)
        await self.queue.put(None)

    async def work(self, stop: asyncio.Event) -> None:
        """Empty it; after a stop everything goes back."""
        while (message := await self.queue.get()) is not None:
            with suppress(SettleFailed):
                if stop.is_set():
                    await message.nack(requeue=True)
                else:
                    await self._process(message)

    async def _process(self, message: Message) -> None:
        error, may_work = await self._attempted(message)
        if error is None and may_work:
            self._failures.pop(message.id, None)
            await message.ack()
            return
        times = self._failures.setdefault(message.id, [])
        times.append(datetime.now(UTC).isoformat())
        if may_work and message.attempt < self._max_attempts:
            await message.nack(requeue=True, delay_s=0.01)
        elif await buried(self._dead_letters, message, story(message, error, times)):
            self._failures.pop(message.id, None)
            await message.ack()
        else:
            await message.nack(requeue=True, delay_s=0.5)

    async def _attempted(self, message: Message) -> tuple[BaseException | None, bool]:
        """How it failed, and whether it can ever work."""
        if message.attempt > self._max_attempts:
            return None, False
        try:
            json.loads(message.body)
        except ValueError as error:
            return error, False
        try:
            await self._handle(message)
        except Permanent as error:
            return error, False
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return error, True
        return None, True


async def run(
    source: Source,
    handle: Handler,
    dead_letters: DeadLetters,
    *,
    max_attempts: int,
    stop: asyncio.Event,
) -> None:
    """Until the source ends; `stop` ends it."""
    consumer = Consumer(handle, dead_letters, max_attempts)

    async def watch() -> None:
        await stop.wait()
        await source.stop_receiving()

    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(watch())
        group.create_task(consumer.take(source, stop))
        await group.create_task(consumer.work(stop))
        if not stop.is_set():
            watcher.cancel()


def story(message: Message, error: BaseException | None, times: list[str]) -> Mapping[str, str]:
    """The letter's headers."""
    return {
        **message.headers,
        "dead-letter-reason": str(error) or type(error).__name__,
        "dead-letter-error": type(error).__name__,
        "dead-letter-attempts": str(message.attempt),
        "dead-letter-first-failed-at": times[0],
        "dead-letter-last-failed-at": times[-1],
        "dead-letter-host": "consumer-1",
    }


async def buried(dead_letters: DeadLetters, message: Message, headers: Mapping[str, str]) -> bool:
    """Whether the broker has the letter for certain."""
    try:
        await dead_letters.publish(message.body, id=message.id, key=message.key, headers=headers)
    except PublishFailed:
        return False
    return True


async def replay(dead_letters: DeadLetters, publish: Publish, *, limit: int) -> None:
    """All that were there at the beginning, if the limit allows; one taken too many goes back."""
    there = await dead_letters.count()
    done = 0
    async for letter in dead_letters:
        if done >= min(limit, there):
            await letter.nack(requeue=True)
            break
        await publish(
            letter.body,
            id=letter.id,
            key=letter.key,
            headers={k: v for k, v in letter.headers.items() if "dead-letter" not in k},
        )
        await letter.ack()
        done += 1
