"""An actor for each key: a task with a mailbox, which goes home when no mail has come for a while.

What an actor framework would make of the exercise. An idle actor is cheap and a new one is not, so
it stays for 20 ms; its key is held that much longer than its last message. Slots bound the handlers.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source

IDLE_S = 0.02


async def run(source: Source, handle: Handler, *, workers: int, stop: asyncio.Event) -> None:
    """Handle messages in order within a key until `stop` is set or `source` ends."""
    mailboxes: dict[str, asyncio.Queue[Message | None]] = {}
    slots = asyncio.Semaphore(workers)
    room = asyncio.Semaphore(2 * workers + 2)

    async def receive() -> None:
        messages = aiter(source)
        while not stop.is_set():
            await room.acquire()
            message = await anext(messages, None)
            if message is None:
                return
            if message.key not in mailboxes:
                mailboxes[message.key] = asyncio.Queue()
                actors.create_task(act(message.key, mailboxes[message.key]))
            mailboxes[message.key].put_nowait(message)

    async def act(key: str, mailbox: asyncio.Queue[Message | None]) -> None:
        serving = True
        while (message := await next_of(mailbox)) is not None:
            serving = serving and await serve(message, handle, slots, stop)
            if not serving:
                await settle(message, requeue=True)
            room.release()
        del mailboxes[key]  # nothing was awaited since the mailbox was seen to be empty

    async with asyncio.TaskGroup() as actors:
        receiving = actors.create_task(receive())
        stopping = actors.create_task(stop.wait())
        await asyncio.wait({receiving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            await source.stop_receiving()
            receiving.cancel()  # it may wait for room
            await asyncio.wait({receiving})
        stopping.cancel()
        for mailbox in mailboxes.values():
            mailbox.put_nowait(None)  # there will be no more mail


async def next_of(mailbox: asyncio.Queue[Message | None]) -> Message | None:
    """The next message; None if there is none for a while, or will be none any more."""
    with suppress(TimeoutError):
        async with asyncio.timeout(IDLE_S):
            return await mailbox.get()
    return None if mailbox.empty() else mailbox.get_nowait()


async def serve(
    message: Message, handle: Handler, slots: asyncio.Semaphore, stop: asyncio.Event
) -> bool:
    """Try until the message is settled; False if the stop comes first, and it has to go back."""
    pause_s = 0.05
    while not stop.is_set():
        async with slots:
            if stop.is_set():
                return False
            error = await outcome(message, handle)
        if error is None:
            await settle(message)
            return True
        if isinstance(error, Permanent):
            await settle(message, requeue=False)
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await stop.wait()
        pause_s = min(2 * pause_s, 1.0)
    return False


async def outcome(message: Message, handle: Handler) -> BaseException | None:
    """What came of one try."""
    error: BaseException | None = None
    try:
        await handle(message)
    except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - whatever it is, it is this message's
        error = raised
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
    return error


async def settle(message: Message, *, requeue: bool | None = None) -> None:
    """Ack, or nack if told where to."""
    with suppress(SettleFailed):
        if requeue is None:
            await message.ack()
        else:
            await message.nack(requeue=requeue)
