"""What one run of a consumer looked like from outside, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from autograder.model import History, Kind


@dataclass(frozen=True)
class Observation:
    """What one run of a consumer looked like, from the outside."""

    history: History
    published: int
    seconds: float  # from the first order taken to the end
    samples: Sequence[tuple[float, int, int]]  # seconds, orders in hand, orders at work
    memory_bytes: int  # most that Python allocated for it; 0 if nobody measured
    unheard: int  # exceptions that ended a task and reached nobody
    returned: bool  # the consumer came back by itself
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def finished(self) -> int:
        """Handlers that returned."""
        return len(self.history.of(Kind.FINISHED))

    @property
    def failed(self) -> int:
        """Handlers that raised."""
        return len(self.history.of(Kind.FAILED))

    @property
    def per_second(self) -> float:
        """Orders finished a second, between the first start and the last end of a handler."""
        starts, ends = self.history.of(Kind.STARTED), self.history.of(Kind.FINISHED)
        if not starts or not ends:
            return 0.0
        return len(ends) / max(ends[-1].at - starts[0].at, 1e-9)

    @cached_property
    def most_in_hand(self) -> int:
        """Most orders that were taken and not settled at one time."""
        return _peak(self.history, {Kind.TAKEN}, {Kind.SETTLED, Kind.SETTLE_FAILED})

    @cached_property
    def most_at_work(self) -> int:
        """Most handlers that ran at one time."""
        return _peak(self.history, {Kind.STARTED}, {Kind.FINISHED, Kind.FAILED, Kind.CANCELLED})

    def __str__(self) -> str:
        said = ", ".join(f"{name} {count:,}" for name, count in self.errors.items())
        settled = len(self.history.of(Kind.SETTLED))
        lines = [
            ("finished", f"{_counted(self.finished, 'order')}, {self.per_second:.0f} a second"),
            ("failed", _counted(self.failed, "order") + (f" ({said})" if said else "")),
            ("at work", f"{_counted(self.most_at_work, 'handler')} at most"),
            ("in hand", f"{_counted(self.most_in_hand, 'order')} at most"),
            ("settled", f"{settled:,} of {self.published:,} orders"),
        ]
        return "\n".join(f"{name:<10}{text}" for name, text in lines)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _peak(history: History, up: set[Kind], down: set[Kind]) -> int:
    most = now = 0
    for event in history.events:
        now += (event.kind in up) - (event.kind in down)
        most = max(most, now)
    return most
