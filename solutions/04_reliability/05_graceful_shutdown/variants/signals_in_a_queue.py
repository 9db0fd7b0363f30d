"""One loop owns everything: it waits for a message, a handler's end, a signal, or the deadline.

No task outside of it touches any state, so each line knows exactly what is in hand.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field

from autograder.messaging import Connect, Connection, Handler, Message, Permanent, SettleFailed


async def main(connect: Connect, handle: Handler, *, workers: int, deadline_s: float) -> int:
    """Consume until a signal comes; the status is 1 for work that was torn off."""
    ring: asyncio.Queue[None] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ring.put_nowait, None)
    source = await connect()
    consumer = Consumer(source, handle, workers, deadline_s, ring)
    try:
        return await consumer.run()
    finally:
        await source.close()


@dataclass
class Consumer:
    """What is in hand, and what is waited for."""

    source: Connection
    handle: Handler
    workers: int
    deadline_s: float
    ring: asyncio.Queue[None]
    busy: set[asyncio.Task[None]] = field(default_factory=set)
    ends_at: float | None = None

    async def run(self) -> int:
        """Until nothing is in hand after a signal, or there is no time left."""
        loop = asyncio.get_running_loop()
        bell = asyncio.create_task(self.ring.get())
        take: asyncio.Task[Message] | None = None
        while True:
            if take is None and self.ends_at is None and len(self.busy) < self.workers:
                take = asyncio.create_task(self.take())
            waiting = {bell, *self.busy} | ({take} if take else set())
            timeout = None if self.ends_at is None else max(0.0, self.ends_at - loop.time())
            done, _ = await asyncio.wait(
                waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            self.busy -= done
            if take in done and take is not None:
                self.busy.add(asyncio.create_task(self.process(take.result())))
                take = None
            if bell in done:
                now = loop.time()
                self.ends_at = now + self.deadline_s if self.ends_at is None else now
                bell = asyncio.create_task(self.ring.get())
                await self.end(take)
                take = None
            if self.ends_at is not None and (not self.busy or loop.time() >= self.ends_at):
                bell.cancel()
                return await self.tear_off()

    async def take(self) -> Message:
        """One message."""
        return await anext(aiter(self.source))

    async def end(self, take: asyncio.Task[Message] | None) -> None:
        """No more takes; a message that came with the signal is worked on like the others."""
        if take is None:
            return
        take.cancel()
        await asyncio.wait({take})
        if not take.cancelled():
            self.busy.add(asyncio.create_task(self.process(take.result())))

    async def tear_off(self) -> int:
        """Cancel what still runs; 1 if there was anything."""
        for task in self.busy:
            task.cancel()
        if self.busy:
            await asyncio.wait(self.busy)
        return int(bool(self.busy))

    async def process(self, message: Message) -> None:
        """One delivery from handler to settlement."""
        try:
            try:
                await self.handle(message)
            except (Permanent, Exception) as error:  # noqa: BLE001 - one failure is one message's
                await message.nack(requeue=not isinstance(error, Permanent))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                await message.nack(requeue=True)
            else:
                await message.ack()
        except SettleFailed:
            return
