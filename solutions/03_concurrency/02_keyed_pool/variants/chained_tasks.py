"""A task for each message in hand: it waits for the one before it in its key, then for a worker.

The chain is the order. A worker's place is held during the handler only, so a key that waits
between two tries costs nobody anything.
"""

from __future__ import annotations

import asyncio

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle messages in order within a key until `stop` is set or `source` ends."""
    if not stop.is_set():
        await Chains(source, handle, workers, stop).run()


class Chains:
    """The last task of each key, and the places for handlers and for messages in hand."""

    def __init__(self, source: Source, handle: Handler, workers: int, stop: asyncio.Event) -> None:
        self._source = source
        self._handle = handle
        self._stop = stop
        self._places = asyncio.Semaphore(workers)
        self._room = asyncio.Semaphore(2 * workers + 2)
        self._last: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Take while there is room; come back when every chain is done."""
        receiver = asyncio.create_task(self._receive(), name="receiver")
        stopping = asyncio.create_task(self._stop.wait(), name="stopping")
        try:
            await asyncio.wait({receiver, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.is_set():
                await self._source.stop_receiving()
                receiver.cancel()  # it may be waiting for room
            await asyncio.wait({receiver})
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            ours = [receiver, stopping, *self._tasks]
            for task in ours:
                task.cancel()
            await asyncio.gather(*ours, return_exceptions=True)

    async def _receive(self) -> None:
        messages = aiter(self._source)
        while not self._stop.is_set():
            await self._room.acquire()
            try:
                message = await anext(messages)
            except StopAsyncIteration:
                return
            task = asyncio.create_task(self._process(message, self._last.get(message.key)))
            self._last[message.key] = task
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()

    async def _process(self, message: Message, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait({before})
        try:
            await self._try_until_settled(message)
        finally:
            if self._last.get(message.key) is asyncio.current_task():
                del self._last[message.key]

    async def _try_until_settled(self, message: Message) -> None:
        pause_s = 0.05
        while not self._stop.is_set():
            async with self._places:
                if self._stop.is_set():
                    break
                error = await self._attempt(message)
            if error is None:
                return await settle(message)
            if isinstance(error, Permanent):
                return await settle(message, requeue=False)
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, 1.0)
        return await settle(message, requeue=True)

    async def _attempt(self, message: Message) -> BaseException | None:
        """The handler in a task of its own, so that its end is data and not control flow."""
        handling = asyncio.ensure_future(self._handle(message))
        try:
            await asyncio.wait({handling})
        except asyncio.CancelledError:  # ours: the handler's own would be inside `handling`
            handling.cancel()
            await asyncio.wait({handling})
            raise
        return asyncio.CancelledError() if handling.cancelled() else handling.exception()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return


async def settle(message: Message, *, requeue: bool | None = None) -> None:
    """Ack, or nack if told where to."""
    try:
        if requeue is None:
            await message.ack()
        else:
            await message.nack(requeue=requeue)
    except SettleFailed:
        return
