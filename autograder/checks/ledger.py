"""Books over messages and deliveries that several checks keep."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, islice, repeat
from operator import gt

from autograder.checks.lives import NEVER
from autograder.checks.memo import remembered
from autograder.model import Event, History, Kind

FINAL = (Kind.ACK, Kind.GIVE_UP)  # calls after which a message does not come back
CALLS = (*FINAL, Kind.REQUEUE)
LONGEST_DELAY_S = 1.0  # that a contract allows
ENDS = (Kind.FINISHED, Kind.FAILED, Kind.CANCELLED)  # how a handler can end


@remembered
def ids(history: History, kind: Kind) -> frozenset[str]:
    """The messages that have an event of this kind."""
    events = history.events
    return frozenset({events[place].message for place in history.places[kind]})


def messages(history: History) -> frozenset[str]:
    """What somebody is responsible for: confirmed by the queue, or put among the dead letters."""
    return ids(history, Kind.CONFIRMED) | ids(history, Kind.LETTER_PUT)


def has_letters(history: History) -> bool:
    """Whether the run had a place for dead letters."""
    return history.broker.dead_letters >= 0 or bool(history.where(Kind.DEAD_LETTER))


@remembered
def unfinished(history: History) -> frozenset[str]:
    """Confirmed messages that no handler finished, except those that failed for good.

    Where there are dead letters, failing for good is no end: a message has to lie there, or wait in
    the queue again. One that was confirmed there counts if nobody has looked.
    """
    left = messages(history) - ids(history, Kind.FINISHED)
    if has_letters(history):
        left -= ids(history, Kind.LETTER_FOUND) | ids(history, Kind.MESSAGE_FOUND)
        return left if history.broker.dead_letters >= 0 else left - ids(history, Kind.DEAD_LETTERED)
    if left:
        left = left - {e.message for e in history.of(Kind.FAILED) if e.detail == "permanent"}
    return left


@remembered
def first_place(history: History, kind: Kind) -> Mapping[int, int]:
    """Delivery -> the place of its first event of this kind."""
    events = history.events
    return {events[place].delivery: place for place in reversed(history.places[kind])}


@remembered
def first_of_message(history: History, kind: Kind) -> Mapping[str, int]:
    """Message -> the place of its first event of this kind."""
    events = history.events
    return {events[place].message: place for place in reversed(history.places[kind])}


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


def delay_s(event: Event) -> float:
    """How long a message that was given back is to wait, in seconds; 0 for any other event."""
    if event.kind is not Kind.REQUEUE or not event.detail:
        return 0.0
    try:
        return float(event.detail)
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """How many deliveries of one process are open: each opens at one place and closes at another."""

    opens: Sequence[int] = ()
    closes: Sequence[int] = ()

    def above(self, limit: int, *, since: int = 0, until: int = NEVER) -> int:
        """Where more than `limit` are first open, from `since` to before `until`; else `NEVER`.

        After opening number i (from 0), i + 1 minus the closings before it are open. That is more
        than `limit` exactly if closing number i - limit comes later, or never: no need to count.
        """
        limit = max(limit, 0)
        first = max(limit, bisect_left(self.opens, since))
        opens = self.opens[first : bisect_left(self.opens, until)]
        closes = chain(islice(self.closes, first - limit, None), repeat(NEVER))
        return next(compress(opens, map(gt, closes, opens)), NEVER)

    def peak(self, *, until: int = NEVER) -> int:
        """The most that were open at once, before `until`."""
        opens = before(self.opens, until)
        return max(
            (number - bisect_left(self.closes, place) for number, place in enumerate(opens, 1)),
            default=0,
        )


def levels(history: History, opening: Kind, closing: Iterable[Kind]) -> dict[int, Level]:
    """Process -> its level: an event of kind `opening` opens a delivery, the others close it."""
    opens = _by_process(history, history.places[opening])
    closes = _by_process(history, history.where(*closing))
    return {process: Level(places, closes.get(process, ())) for process, places in opens.items()}


def _by_process(history: History, places: Sequence[int]) -> dict[int, Sequence[int]]:
    events = history.events
    processes = {events[place].process for place in places}
    if len(processes) == 1:
        return dict.fromkeys(processes, places)
    parts: dict[int, list[int]] = {process: [] for process in sorted(processes)}
    for place in places:
        parts[events[place].process].append(place)
    return dict(parts)


@remembered
def running(history: History) -> Mapping[int, Level]:
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
