"""What became of a deploy: what was done twice, what the broker kept back, how the old process ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from autograder.model import BrokerState, Event, History, Kind

_ENDS = {Kind.FINISHED, Kind.FAILED, Kind.CANCELLED}
_TOLD = {"terminate", "interrupt"}


@dataclass(frozen=True)
class Stretch:
    """One handler's time at work. `torn`: it did not come to its own end. Seconds since the run began."""

    message: str
    process: int
    begin: float
    end: float
    torn: bool


@dataclass(frozen=True)
class Rollout:
    """One deploy. `broker` is what the broker had when the old process was gone."""

    history: History
    broker: BrokerState

    def __str__(self) -> str:
        lines = [
            ("ended", self.ended),
            ("torn off", _orders(self.torn_off)),
            ("to give out", _orders(self.broker.waiting)),
            ("kept back", _orders(self.broker.unsettled)),
            ("begun twice", _orders(self.begun_twice)),
            ("done twice", _orders(self.done_twice)),
        ]
        return "\n".join(f"{name:<13}{text}" for name, text in lines)

    @cached_property
    def told_at(self) -> float:
        """When the first signal was sent."""
        return next(e.at for e in self.history.of(Kind.FAULT) if e.detail in _TOLD)

    @cached_property
    def _exit(self) -> Event:
        return next(event for event in self.history.of(Kind.EXITED) if event.process == 1)

    @property
    def ended_at(self) -> float:
        """When the old process was gone."""
        return self._exit.at

    @property
    def ended(self) -> str:
        """How the kernel says that it ended: `with status 0`, `by SIGTERM`."""
        kind, _, which = self._exit.detail.partition(" ")
        return f"by {which}" if kind == "signal" else f"with {self._exit.detail}"

    @property
    def took_s(self) -> float:
        """Seconds from the first signal until the last order was settled."""
        return max(self.settled_at.values()) - self.told_at

    @property
    def old_s(self) -> float:
        """Seconds that the old process lived after the first signal."""
        return self.ended_at - self.told_at

    @cached_property
    def idle_s(self) -> float:
        """Seconds, from the old process's end to the last settlement, in which nobody was at work."""
        idle, reached = 0.0, self.ended_at
        for stretch in self.stretches:  # in the order in which they began
            idle += max(0.0, stretch.begin - reached)
            reached = max(reached, stretch.end)
        return idle

    @cached_property
    def settled_at(self) -> dict[str, float]:
        """When each order was settled."""
        return {event.message: event.at for event in self.history.of(Kind.SETTLED)}

    @property
    def torn_off(self) -> int:
        """Handlers of the old process that did not come to their own end."""
        return sum(each.torn for each in self.stretches if each.process == 1)

    @property
    def begun_twice(self) -> int:
        """Orders that a second handler was called for."""
        return _repeated(self.history, Kind.STARTED)

    @property
    def done_twice(self) -> int:
        """Orders that two handlers have finished."""
        return _repeated(self.history, Kind.FINISHED)

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """Every handler's time at work, in the order in which they began."""
        ends = {e.delivery: e for e in self.history.events if e.kind in _ENDS}
        found = []
        for begun in self.history.of(Kind.STARTED):
            end = ends.get(begun.delivery)
            torn = end is None or end.kind is Kind.CANCELLED
            until = end.at if end is not None else self.ended_at
            found.append(Stretch(begun.message, begun.process, begun.at, until, torn))
        return tuple(found)


def _repeated(history: History, kind: Kind) -> int:
    times = Counter(event.message for event in history.of(kind))
    return sum(count > 1 for count in times.values())


def _orders(number: int) -> str:
    return "1 order" if number == 1 else f"{number} orders"
