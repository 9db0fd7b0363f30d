"""Virtual time: it stands still while anybody works, and jumps to whatever is due next."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

MOST_CANCELLED = 1_000
"""Cancelled appointments that are kept: `asyncio.timeout` in a loop makes and cancels them for ever."""


@dataclass(order=True, slots=True)
class Appointment:
    """Something that is due at a time. Equal times come in the order in which they were made."""

    when: float
    number: int
    then: Callable[[], None] = field(compare=False)
    clock: Clock = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """It will not come; and time will not stop for it."""
        if not self.cancelled:
            self.cancelled = True
            self.clock.one_was_cancelled()


class Clock:
    """Seconds since the world began, shared by the broker and by every process of a run."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = count()
        self._due: list[Appointment] = []
        self._cancelled = 0

    def call_at(self, when: float, then: Callable[[], None]) -> Appointment:
        """Have `then` called at this time, at the earliest now."""
        appointment = Appointment(when, next(self._numbers), then, self)
        heapq.heappush(self._due, appointment)
        return appointment

    def one_was_cancelled(self) -> None:
        """Throw the cancelled ones away once they are many."""
        self._cancelled += 1
        if self._cancelled > max(MOST_CANCELLED, len(self._due) // 2):
            self._due = [each for each in self._due if not each.cancelled]
            heapq.heapify(self._due)
            self._cancelled = 0

    def call_later(self, delay_s: float, then: Callable[[], None]) -> Appointment:
        """Have `then` called after this time."""
        return self.call_at(self.now + delay_s, then)

    @property
    def next_at(self) -> float | None:
        """When something is due next; None if nothing ever will be."""
        while self._due and self._due[0].cancelled:
            heapq.heappop(self._due)
        return self._due[0].when if self._due else None

    def pass_by(self, seconds: float) -> None:
        """Let time go by. What falls due meanwhile is late: see `call_due`."""
        self.now += seconds

    def jump(self) -> bool:
        """Go to the next appointment. False if there is none: this world stands still for ever."""
        when = self.next_at
        if when is None:
            return False
        self.now = max(self.now, when)
        return True

    def call_due(self) -> None:
        """Keep every appointment up to now, the earliest first, and those that they make for now."""
        while (when := self.next_at) is not None and when <= self.now:
            heapq.heappop(self._due).then()
