"""One loop around `asyncio.wait` owns all state: who waits, who is busy, who rests between tries.

Everything that can happen next is a future in one set: a take, the stop, the end of a try, the end
of a pause. No queue, no lock, no callback.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle messages in order within a key until `stop` is set or `source` ends."""
    if not stop.is_set():
        await Loop(source, handle, workers, stop).run()


class Loop:
    """All keys with messages in hand; the first of a key's messages is the one that is its turn."""

    def __init__(self, source: Source, handle: Handler, workers: int, stop: asyncio.Event) -> None:
        self._messages: AsyncIterator[Message] = aiter(source)
        self._handle = handle
        self._workers = workers
        self._stop = stop
        self._keys: dict[str, deque[Message]] = {}
        self._free: deque[str] = deque()  # keys whose turn has come
        self._trying: dict[asyncio.Task[bool], str] = {}
        self._resting: dict[asyncio.Task[None], str] = {}
        self._pauses: dict[str, float] = {}  # of keys whose first message has failed
        self._taking: asyncio.Task[Message | None] | None = None
        self._open = True

    async def run(self) -> None:
        """Turn until nothing is in hand and nothing more is to come."""
        stopping = asyncio.create_task(self._stop.wait())
        try:
            while self._open or self._keys:
                await self._step(stopping)
        finally:
            taking = [self._taking] if self._taking else []
            ours: list[asyncio.Task[Any]] = [stopping, *self._trying, *self._resting, *taking]
            for task in ours:
                task.cancel()
            await asyncio.gather(*ours, return_exceptions=True)

    async def _step(self, stopping: asyncio.Task[bool]) -> None:
        if self._stop.is_set():
            await self._wind_up()
        in_hand = sum(map(len, self._keys.values()))
        if self._open and self._taking is None and in_hand < self._workers + 3:
            self._taking = asyncio.create_task(take(self._messages))
        while self._free and len(self._trying) < self._workers:
            key = self._free.popleft()
            self._trying[asyncio.create_task(self._try(self._keys[key][0]))] = key
        taking = {self._taking} if self._taking else set()
        others = {stopping} if not self._stop.is_set() else set()
        events = {*self._trying, *self._resting, *taking, *others}
        if events:
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        self._look()

    def _look(self) -> None:
        """Note everything that is done."""
        if self._taking is not None and self._taking.done():
            self._add(self._taking.result())
        for pause in [pause for pause in self._resting if pause.done()]:
            self._free.append(self._resting.pop(pause))
        for task in [task for task in self._trying if task.done()]:
            key = self._trying.pop(task)
            if task.result():
                self._next(key)
            else:
                pause_s = self._pauses.get(key, 0.05)
                self._pauses[key] = min(2 * pause_s, 1.0)
                self._resting[asyncio.create_task(asyncio.sleep(pause_s))] = key

    def _add(self, message: Message | None) -> None:
        self._taking = None
        if message is None:
            self._open = False
        elif message.key in self._keys:
            self._keys[message.key].append(message)
        else:
            self._keys[message.key] = deque([message])
            self._free.append(message.key)

    def _next(self, key: str) -> None:
        """The key's first message is done with."""
        self._pauses.pop(key, None)
        self._keys[key].popleft()
        if self._keys[key]:
            self._free.append(key)
        else:
            del self._keys[key]

    async def _wind_up(self) -> None:
        """After the stop: take no more, finish what is being tried, give everything else back."""
        self._open = False
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.wait({self._taking})
            if not self._taking.cancelled():
                self._add(self._taking.result())
            self._taking = None
        for pause in self._resting:
            pause.cancel()
        self._free.extend(self._resting.values())
        self._resting.clear()
        self._open = False
        while self._free:
            key = self._free.popleft()
            for message in self._keys[key]:
                await settle(message, requeue=True)
            del self._keys[key]

    async def _try(self, message: Message) -> bool:
        """One try; whether it was the last one."""
        task = asyncio.current_task()
        failure: BaseException | None = None
        try:
            await self._handle(message)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - judged below
            failure = error
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        if failure is None:
            await settle(message)
        elif isinstance(failure, Permanent):
            await settle(message, requeue=False)
        return failure is None or isinstance(failure, Permanent)


async def take(messages: AsyncIterator[Message]) -> Message | None:
    """Take the next message; None at the end of the source."""
    return await anext(messages, None)


async def settle(message: Message, *, requeue: bool | None = None) -> None:
    """Ack, or nack if told where to."""
    try:
        if requeue is None:
            await message.ack()
        else:
            await message.nack(requeue=requeue)
    except SettleFailed:
        return
