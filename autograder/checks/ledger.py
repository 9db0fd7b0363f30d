"""Books over messages and deliveries that several checks keep."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from autograder.checks.lives import NEVER
from autograder.model import History, Kind

FINAL = (Kind.ACK, Kind.GIVE_UP)  # calls after which a message does not come back
CALLS = (*FINAL, Kind.REQUEUE)
ENDS = (Kind.FINISHED, Kind.FAILED, Kind.CANCELLED)  # how a handler can end


def ids(history: History, kind: Kind) -> set[str]:
    """The messages that have an event of this kind."""
    events = history.events
    return {events[place].message for place in history.places[kind]}


def unfinished(history: History) -> set[str]:
    """Confirmed messages that no handler finished, except those that failed for good."""
    left = ids(history, Kind.CONFIRMED) - ids(history, Kind.FINISHED)
    if left:
        left -= {event.message for event in history.of(Kind.FAILED) if event.detail == "permanent"}
    return left


def first_place(history: History, kind: Kind) -> dict[int, int]:
    """Delivery -> the place of its first event of this kind."""
    events = history.events
    return {events[place].delivery: place for place in reversed(history.places[kind])}


def before(places: Sequence[int], place: int) -> Sequence[int]:
    """Those of these ascending places that come before this one."""
    return places[: bisect_left(places, place)]


def after(places: Sequence[int], place: int) -> Sequence[int]:
    """Those of these ascending places that come after this one."""
    return places[bisect_left(places, place + 1) :]


def of_process(history: History, places: Iterable[int], process: int) -> list[int]:
    """Those of these places whose events belong to this process."""
    events = history.events
    return [place for place in places if events[place].process == process]


@dataclass(slots=True)
class Level:
    """How many deliveries of one process are open, after each event that changes it."""

    places: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def peak(self, *, since: int = 0, until: int = NEVER) -> int:
        """The most that were open at once, at places from `since` to before `until`."""
        return max(self._part(since, until), default=0)

    def first_above(self, limit: int, *, until: int = NEVER) -> int:
        """Where more than `limit` were open for the first time; `NEVER` if they never were."""
        for place, count in zip(self.places, self._part(0, until), strict=False):
            if count > limit:
                return place
        return NEVER

    def _part(self, since: int, until: int) -> list[int]:
        start, end = bisect_left(self.places, since), bisect_left(self.places, until)
        return self.counts if (start, end) == (0, len(self.counts)) else self.counts[start:end]


def levels(history: History, opening: Kind, closing: Iterable[Kind]) -> dict[int, Level]:
    """Process -> its level: an event of kind `opening` opens a delivery, the others close it."""
    events, found = history.events, dict[int, Level]()
    hands: dict[int, set[int]] = {}
    current: int | None = None
    for place in history.where(opening, *closing):
        event = events[place]
        if event.process != current:  # rare: a restart; its hands are empty
            current = event.process
            level, open_now = found.setdefault(current, Level()), hands.setdefault(current, set())
            append_place, append_count = level.places.append, level.counts.append
        if event.kind is opening:
            open_now.add(event.delivery)
        else:
            open_now.discard(event.delivery)
        append_place(place)
        append_count(len(open_now))
    return found


def running(history: History) -> dict[int, Level]:
    """Process -> how many of its handlers run at once."""
    return levels(history, Kind.STARTED, ENDS)


def open_at(history: History, place: int, opening: Kind, closing: Iterable[Kind]) -> dict[int, int]:
    """Delivery -> where it was opened, for those open right after `place` in its process."""
    process = history.events[place].process
    opened: dict[int, int] = {}
    for each in before(history.where(opening, *closing), place + 1):
        event = history.events[each]
        if event.process != process:
            continue
        if event.kind is opening:
            opened[event.delivery] = each
        else:
            opened.pop(event.delivery, None)
    return opened
