"""A small language for histories of a pool, one call per thing that happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from autograder.model import BrokerState, Event, History, Kind

STEP_S = 0.01


class Story:
    """Writes events down; a message's latest delivery is the one spoken of.

    `a:1` is a message of the key `a`; without a colon it has none.
    """

    def __init__(self, workers: int = 2) -> None:
        self.workers = workers
        self.events: list[Event] = []
        self.process = 0
        self._now = 0.0
        self._deliveries: dict[str, int] = {}
        self._attempts: dict[str, int] = {}

    def say(self, kind: Kind, message: str = "", detail: str = "") -> Self:
        self._now += STEP_S
        delivery = self._deliveries.get(message, 0)
        if kind in {Kind.PUBLISHED, Kind.CONFIRMED}:
            delivery = 0
        attempt = self._attempts.get(message, 0) if delivery else 0
        key = message.rpartition(":")[0]
        self.events.append(
            Event(self._now, kind, message, key, delivery, attempt, self.process, detail)
        )
        return self

    def wait(self, seconds: float) -> Self:
        self._now += seconds
        return self

    def publish(self, *messages: str) -> Self:
        for message in messages:
            self.say(Kind.PUBLISHED, message)
        for message in messages:
            self.say(Kind.CONFIRMED, message)
        return self

    def begin(self) -> Self:
        self.process += 1
        return self.say(Kind.SPAWNED).say(Kind.RUN_STARTED)

    def take(self, *messages: str) -> Self:
        for message in messages:
            self._deliveries[message] = 1 + max(self._deliveries.values(), default=0)
            self._attempts[message] = self._attempts.get(message, 0) + 1
            self.say(Kind.TAKEN, message)
        return self

    def start(self, *messages: str) -> Self:
        for message in messages:
            self.say(Kind.STARTED, message)
        return self

    def finish(self, *messages: str) -> Self:
        for message in messages:
            self.say(Kind.FINISHED, message)
        return self

    def fail(self, message: str, how: str = "transient") -> Self:
        return self.say(Kind.FAILED, message, how)

    def cancelled(self, *messages: str) -> Self:
        for message in messages:
            self.say(Kind.CANCELLED, message)
        return self

    def call(self, kind: Kind, message: str, result: Kind = Kind.SETTLED) -> Self:
        return self.say(kind, message).say(result, message)

    def ack(self, *messages: str) -> Self:
        for message in messages:
            self.call(Kind.ACK, message)
        return self

    def requeue(self, *messages: str) -> Self:
        for message in messages:
            self.call(Kind.REQUEUE, message)
        return self

    def give_up(self, *messages: str) -> Self:
        for message in messages:
            self.call(Kind.GIVE_UP, message)
        return self

    def handle(self, *messages: str) -> Self:
        """One whole, correct delivery after the other."""
        for message in messages:
            self.take(message).start(message).finish(message).ack(message)
        return self

    def fault(self, detail: str) -> Self:
        return self.say(Kind.FAULT, detail=detail)

    def kill(self) -> Self:
        return self.fault("kill").say(Kind.EXITED, detail="signal SIGKILL")

    def stop(self) -> Self:
        return self.fault("terminate").say(Kind.STOP_SET).say(Kind.STOP_IN_FORCE)

    def returned(self, left_behind: str = "") -> Self:
        return self.say(Kind.RUN_RETURNED, detail=left_behind).say(Kind.EXITED, detail="status 0")

    def raised(self, detail: str) -> Self:
        return self.say(Kind.RUN_RAISED, detail=detail).say(Kind.EXITED, detail="status 0")

    def expect(self, detail: str) -> Self:
        return self.say(Kind.EXPECTED, detail=detail)

    def history(
        self,
        *,
        waiting: int = -1,
        unsettled: int = -1,
        truncated: bool = False,
        engine: str = "",
    ) -> History:
        return History(
            tuple(self.events),
            self.workers,
            engine=engine,
            broker=BrokerState(waiting, unsettled),
            truncated=truncated,
        )


def names(count: int, prefix: str = "m") -> Sequence[str]:
    """`m1` to `m<count>`."""
    return [f"{prefix}{number}" for number in range(1, count + 1)]
