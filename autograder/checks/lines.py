"""The messages of one key in one process, in the order in which the pool took them: a line.

What a broker brings back may come after newer messages of its key, and a pool can keep no order but
that of its takes. So every check of order looks at lines, and at no more than one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autograder.checks.ledger import ENDS
from autograder.checks.lives import NEVER
from autograder.checks.memo import remembered
from autograder.model import History, Kind


@dataclass(slots=True)
class Turn:
    """One delivery of a line. Numbers are places in the history, lists of them ascend."""

    delivery: int
    message: str
    taken: int
    started: list[int] = field(default_factory=list)  # every try
    failed: list[int] = field(default_factory=list)  # tries that may be repeated
    ended: list[int] = field(default_factory=list)  # tries, in whatever way
    done: int = NEVER  # the handler finished, or failed for good
    final: int = NEVER  # ack() or nack(requeue=False) was called
    dropped: int = NEVER  # its handler was cancelled, or settling it failed: there is no duty left


@dataclass(slots=True)
class Line:
    """One key in one process."""

    process: int
    key: str
    turns: list[Turn] = field(default_factory=list)  # in the order of the takes
    done: dict[str, int] = field(default_factory=dict)  # message -> where it was first done

    @property
    def arrivals(self) -> list[Turn]:
        """The first delivery of each message."""
        first: dict[str, Turn] = {}
        for turn in self.turns:
            first.setdefault(turn.message, turn)
        return list(first.values())


@remembered
def lines(history: History) -> Sequence[Line]:
    """Every key of every process, in the order of their first takes."""
    found: dict[tuple[int, str], Line] = {}
    turns: dict[int, tuple[Line, Turn]] = {}
    kinds = (Kind.TAKEN, Kind.STARTED, *ENDS, Kind.ACK, Kind.GIVE_UP, Kind.SETTLE_FAILED)
    for place in history.where(*kinds):
        event = history.events[place]
        if event.kind is Kind.TAKEN:
            line = found.setdefault((event.process, event.key), Line(event.process, event.key))
            turn = Turn(event.delivery, event.message, place)
            line.turns.append(turn)
            turns[event.delivery] = line, turn
        elif event.delivery in turns:
            line, turn = turns[event.delivery]
            _note(line, turn, event.kind, event.detail, place)
    return list(found.values())


def _note(line: Line, turn: Turn, kind: Kind, detail: str, place: int) -> None:
    if kind is Kind.STARTED:
        turn.started.append(place)
    elif kind in {Kind.ACK, Kind.GIVE_UP}:
        turn.final = min(turn.final, place)
    elif kind is Kind.SETTLE_FAILED:
        turn.dropped = min(turn.dropped, place)
    else:
        turn.ended.append(place)
        if kind is Kind.CANCELLED:
            turn.dropped = min(turn.dropped, place)
        elif kind is Kind.FAILED and detail != "permanent":
            turn.failed.append(place)
        else:
            turn.done = min(turn.done, place)
            line.done.setdefault(turn.message, place)


@remembered
def cuts(history: History) -> Sequence[int]:
    """Where connections were cut: what was taken before may be dropped, and comes back."""
    return [
        place
        for place in history.places[Kind.FAULT]
        if history.events[place].detail.partition(" ")[0] == "cut"
    ]


def cut_between(history: History, first: int, last: int) -> bool:
    """Whether a connection was cut between these places."""
    return any(first < place < last for place in cuts(history))


@remembered
def keys_of(history: History) -> Mapping[str, str]:
    """Message -> its key, for all that were confirmed."""
    return {event.message: event.key for event in history.of(Kind.CONFIRMED)}
