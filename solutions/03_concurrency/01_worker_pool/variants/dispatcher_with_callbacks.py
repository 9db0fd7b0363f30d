"""A class with two counters: handlers that run, and messages in hand.

A worker's place is free as soon as its handler is done; the settlement goes on beside it, in a
task of its own. Two limits keep the promises apart: `workers` handlers, `2 * workers` in hand.
"""

from __future__ import annotations

import asyncio
from functools import partial

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle messages `workers` at a time until `stop` is set or `source` ends."""
    await Dispatcher(source, handle, workers, stop).run()


class Dispatcher:
    """Takes messages while there is room; everything after the take is driven by callbacks."""

    def __init__(self, source: Source, handle: Handler, workers: int, stop: asyncio.Event) -> None:
        self._source = source
        self._handle = handle
        self._workers = workers
        self._stop = stop
        self._handling: set[asyncio.Future[None]] = set()
        self._settling: set[asyncio.Future[None]] = set()
        self._changed = asyncio.Event()
        self._abandoned = False

    async def run(self) -> None:
        """Dispatch until told to stop, then wait until nothing is in hand."""
        stopping = asyncio.create_task(self._close_on_stop())
        try:
            if not self._stop.is_set():
                await self._dispatch()
            while self._handling or self._settling:
                await self._change()
            if self._stop.is_set():
                await stopping
        finally:
            self._abandoned = True
            ours = [stopping, *self._handling, *self._settling]
            for task in ours:
                task.cancel()
            await asyncio.gather(*ours, return_exceptions=True)

    async def _dispatch(self) -> None:
        async for message in self._source:
            handling = asyncio.ensure_future(self._handle(message))
            self._handling.add(handling)
            handling.add_done_callback(partial(self._handled, message))
            while not self._has_room():
                await self._change()

    def _has_room(self) -> bool:
        in_hand = len(self._handling) + len(self._settling)
        return len(self._handling) < self._workers and in_hand < 2 * self._workers

    def _handled(self, message: Message, handling: asyncio.Future[None]) -> None:
        self._handling.discard(handling)
        self._changed.set()
        if self._abandoned:  # cancelled from outside: the broker keeps the message
            return
        settling = asyncio.ensure_future(self._settle(message, handling))
        self._settling.add(settling)
        settling.add_done_callback(self._settled)

    def _settled(self, settling: asyncio.Future[None]) -> None:
        self._settling.discard(settling)
        self._changed.set()

    async def _settle(self, message: Message, handling: asyncio.Future[None]) -> None:
        error = asyncio.CancelledError() if handling.cancelled() else handling.exception()
        try:
            if error is None:
                await message.ack()
            else:
                await message.nack(requeue=not isinstance(error, Permanent))
        except SettleFailed:
            return

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _close_on_stop(self) -> None:
        await self._stop.wait()
        await self._source.stop_receiving()
