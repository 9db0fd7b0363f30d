"""What a history tells of dead letters: what was asked for, why each was written, what it says."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from autograder.checks.lives import NEVER
from autograder.checks.memo import remembered
from autograder.model import Content, Event, History, Kind

STORY = "dead-letter-"
"""What the names of a letter's own headers begin with."""

REASON, ERROR, ATTEMPTS = f"{STORY}reason", f"{STORY}error", f"{STORY}attempts"
FIRST, LAST = f"{STORY}first-failed-at", f"{STORY}last-failed-at"

ERRORS = {
    "transient": frozenset({"Transient"}),
    "permanent": frozenset({"UnknownCustomer"}),
    "error": frozenset(
        {"ValueError", "TimeoutError", "KeyError", "ConnectionResetError", "StopAsyncIteration"}
    ),
    "cancelled": frozenset({"CancelledError"}),
}
"""The exceptions that handlers of ours raise, by the detail of their `FAILED` event."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one process was started for: the function, and the numbers it was given."""

    function: str = ""
    numbers: Mapping[str, int] | None = None

    def number(self, name: str) -> int:
        """`max_attempts`, `limit`; `NEVER` if it was given none."""
        return (self.numbers or {}).get(name, NEVER)


@remembered
def tasks(history: History) -> Mapping[int, Task]:
    """Process -> its task, from `run max_attempts=3`."""
    found = {}
    for event in history.of(Kind.SPAWNED):
        function, *words = event.detail.split() or [""]
        pairs = [word.partition("=") for word in words]
        numbers = {name: int(value) for name, _, value in pairs if value.isdecimal()}
        found[event.process] = Task(function, numbers)
    return found


def max_attempts(history: History, process: int) -> int:
    """How many attempts a message has in this process."""
    return tasks(history).get(process, Task()).number("max_attempts")


@remembered
def contents(history: History, kind: Kind) -> Mapping[str, tuple[str, Content]]:
    """Message -> the key and the content that its first event of this kind tells of."""
    found: dict[str, tuple[str, Content]] = {}
    for event in history.of(kind):
        content = Content.read(event.detail)
        if content is not None:
            found.setdefault(event.message, (event.key, content))
    return found


@remembered
def unreadable(history: History) -> frozenset[str]:
    """Messages whose body is no JSON."""
    told = contents(history, Kind.PUBLISHED)
    return frozenset(name for name, (_, content) in told.items() if not content.readable)


@dataclass(frozen=True, slots=True)
class Case:
    """One call of `dead_letters.publish`: the delivery it is about, and how its handler had failed."""

    place: int
    event: Event
    delivery: int  # of the latest take of this message in this process; 0 if there was none
    attempt: int
    failure: Event | None  # of that delivery, before the call
    ended: bool  # whether its handler had ended in any other way


@remembered
def cases(history: History) -> tuple[Case, ...]:
    """Every letter that a consumer wrote, or tried to."""
    return tuple(_case(history, place) for place in history.places[Kind.DEAD_LETTER])


@remembered
def _cases_by_message(history: History) -> Mapping[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in cases(history):
        found.setdefault(case.event.message, []).append(case)
    return found


def cases_of(history: History, message: str) -> Sequence[Case]:
    """Every letter that a consumer wrote of this message, or tried to."""
    return _cases_by_message(history).get(message, ())


def _case(history: History, place: int) -> Case:
    event = history.events[place]
    latest = failure = None
    ended = False
    for each in _about(history, event.message):
        if each >= place:
            break
        other = history.events[each]
        if other.process != event.process:
            continue
        if other.kind is Kind.TAKEN:
            latest, failure, ended = other, None, False
        elif latest is not None and other.delivery == latest.delivery:
            if other.kind is Kind.FAILED:
                failure = other
            ended |= other.kind in {Kind.FINISHED, Kind.CANCELLED}
    delivery, attempt = (latest.delivery, latest.attempt) if latest else (0, 0)
    return Case(place, event, delivery, attempt, failure, ended)


@remembered
def _by_message(history: History) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, event in enumerate(history.events):
        if event.message:
            found.setdefault(event.message, []).append(place)
    return found


@remembered
def _by_kind(history: History) -> Mapping[str, Mapping[Kind, list[int]]]:
    found: dict[str, dict[Kind, list[int]]] = {}
    for message, places in _by_message(history).items():
        for place in places:
            found.setdefault(message, {}).setdefault(history.events[place].kind, []).append(place)
    return found


def _about(history: History, message: str) -> list[int]:
    return _by_message(history).get(message, [])


def between(
    history: History, message: str, start: int, end: int, *kinds: Kind, process: int = 0
) -> list[int]:
    """Where this message has events of these kinds after `start` and before `end`."""
    found = _by_kind(history).get(message, {})
    events, parts = history.events, [found.get(kind, []) for kind in kinds]
    places = parts[0] if len(parts) == 1 else sorted(chain.from_iterable(parts))
    return [
        place
        for place in places[bisect_left(places, start + 1) : bisect_left(places, end)]
        if not process or events[place].process == process
    ]
