"""What one stretch of a consumer's work on a queue came to, dead letters included."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from autograder.model import History, Kind

_ENDS = {Kind.FINISHED, Kind.FAILED, Kind.CANCELLED}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call of the handler. Seconds since the shift began."""

    message: str
    begin: float
    end: float
    finished: bool


@dataclass(frozen=True)
class Shift:
    """One stretch of work. `waiting` and `letters` are the broker's own counts at its end."""

    history: History
    waiting: int  # messages in the queue
    letters: int  # messages among the dead letters
    raised: Counter[str]  # what came out of the consumer, which was started again each time
    processor: float  # share of one core that this process and the broker used meanwhile

    def __str__(self) -> str:
        lines = [
            ("printed", _counted(self.finished, "order")),
            ("failed", _counted(self.failed, "attempt")),
            ("given up", _counted(self.given_up, "order")),
            ("letters", f"{self.letters:,}"),
            ("waiting", _counted(self.waiting, "order")),
            ("processor", f"{self.processor:.0%} of a core"),
        ]
        if self.raised:
            why = ", ".join(self.raised)
            lines.append(("restarted", f"{_counted(self.raised.total(), 'time')} ({why})"))
        if self.replayed:
            lines.append(("replayed", _counted(self.replayed, "letter")))
        return "\n".join(f"{name:<11}{text}" for name, text in lines)

    @cached_property
    def finished(self) -> int:
        """Messages whose handler has returned, each counted once."""
        return len({event.message for event in self.history.of(Kind.FINISHED)})

    @property
    def failed(self) -> int:
        """Attempts that ended in an exception."""
        return len(self.history.of(Kind.FAILED))

    @property
    def given_up(self) -> int:
        """Messages that the broker was told to forget, though nobody has handled them."""
        return len(self.history.of(Kind.GIVE_UP))

    @property
    def replayed(self) -> int:
        """Letters that were published again, each as often as it was."""
        return len(self.history.of(Kind.REPUBLISHED))

    @property
    def took_s(self) -> float:
        """Seconds until the last message was printed, or became a letter."""
        last = self.history.of(Kind.FINISHED, Kind.DEAD_LETTERED)
        return last[-1].at if last else 0.0

    @cached_property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every call of the handler that ended, in the order in which they began."""
        ends = {event.delivery: event for event in self.history.events if event.kind in _ENDS}
        return tuple(
            Attempt(begun.message, begun.at, end.at, end.kind is Kind.FINISHED)
            for begun in self.history.of(Kind.STARTED)
            if (end := ends.get(begun.delivery)) is not None
        )

    @cached_property
    def attempts_of(self) -> Counter[str]:
        """How often the handler was called, by message."""
        return Counter(each.message for each in self.attempts)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
