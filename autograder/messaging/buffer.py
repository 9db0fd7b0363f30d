"""The shelf between a broker and those who take from it: in order, ended at will, losing nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

M = TypeVar("M")


class Buffer(Generic[M]):
    """Messages that were received and not taken, and the tasks that wait for one.

    `asyncio.Queue` would do but for two things: it has no end before Python 3.13, and a task
    cancelled in the very turn in which its message arrives must put that message back.
    """

    def __init__(self) -> None:
        self._messages: deque[M] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._ended = False

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def ended(self) -> bool:
        """Whether every take, now and later, ends with `StopAsyncIteration`."""
        return self._ended

    def put(self, message: M) -> None:
        """Add a message at the end and wake the task that has waited longest."""
        self._messages.append(message)
        self._wake_one()

    async def take(self) -> M:
        """The oldest message; waits for one. Raises `StopAsyncIteration` once the end has come.

        A message leaves the buffer in the same turn in which its taker returns, so there is no
        moment at which a cancelled task could hold one that nobody else knows of.
        """
        while not self._ended and not self._messages:
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                self._hand_on(taker)
                raise
        if self._ended:
            raise StopAsyncIteration
        return self._messages.popleft()

    def drain(self) -> list[M]:
        """Everything nobody took, in order; the buffer is empty afterwards."""
        messages = list(self._messages)
        self._messages.clear()
        return messages

    def end(self) -> None:
        """End every pending and later take. What is left can be had with `drain`."""
        self._ended = True
        while self._takers:
            self._wake_one()

    def _hand_on(self, taker: asyncio.Future[None]) -> None:
        """A cancelled task was woken for nothing: wake the next one in its place."""
        if not taker.done() or taker.cancelled():
            if taker in self._takers:
                self._takers.remove(taker)
        elif self._messages:
            self._wake_one()

    def _wake_one(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return
