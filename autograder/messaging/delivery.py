"""What the messages of all adapters have in common: their fields, and that each is settled once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping

from autograder.messaging import AlreadySettled, SettleFailed


class Delivery(ABC):
    """One delivery of one message; see `autograder.messaging.Message` for what is promised.

    An adapter says in `_settle` how its broker is told. Slots, because a busy source makes
    thousands of these a second.
    """

    __slots__ = ("_settled", "attempt", "body", "headers", "id", "key")

    def __init__(
        self, identity: str, key: str, body: bytes, headers: Mapping[str, str], attempt: int
    ) -> None:
        self.id = identity
        self.key = key
        self.body = body
        self.headers = headers
        self.attempt = attempt
        self._settled = False

    def __repr__(self) -> str:
        return f"<message {self.id!r} key={self.key!r} attempt={self.attempt}>"

    async def ack(self) -> None:
        """Say that the work is done."""
        await self._settle_once(self._ack())

    async def nack(self, *, requeue: bool, delay_s: float = 0.0) -> None:
        """Say that the work is not done: bring it back after `delay_s` seconds, or give it up."""
        if delay_s < 0:
            raise ValueError(f"a delay is not negative: {delay_s}")
        await self._settle_once(self._requeue(delay_s) if requeue else self._give_up())

    async def _settle_once(self, settlement: Coroutine[None, None, None]) -> None:
        """Mark before telling the broker: two settlements at the same time are one too many.

        A failed settlement settled nothing, so that asking again fails in the same way.
        """
        if self._settled:
            settlement.close()
            raise AlreadySettled(f"message {self.id} was settled before")
        self._settled = True
        try:
            await settlement
        except SettleFailed:
            self._settled = False
            raise

    @abstractmethod
    async def _ack(self) -> None:
        """Tell the broker that the work is done."""

    @abstractmethod
    async def _requeue(self, delay_s: float) -> None:
        """Have the message come back."""

    @abstractmethod
    async def _give_up(self) -> None:
        """Have it never come back."""
