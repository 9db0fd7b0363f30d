"""Messages that went back and forth between code and broker until the run was ended for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from autograder.checks.expectations import read_expectations
from autograder.checks.ledger import ENDS, after, before
from autograder.checks.phrases import message_places
from autograder.model import History, Kind, Wait

MANY = 25  # takes of one message, or answers to it, in a run that was ended by a storm
_LATELY = 3  # takes of the message, back from the storm
_OUTAGES = ("DatabaseGone", "StoreGone")


def storm(history: History) -> int | None:
    """Where the run was ended because one message came again and again; None if it was not."""
    storms = [each.place for each in read_expectations(history) if each.wait == Wait.STORM]
    return storms[-1] if storms else None


def raised_lately(history: History, message: str) -> int | None:
    """The place of the last exception since this message was last taken: what sends it back."""
    events = history.events
    end = storm(history)
    takes = [place for place in history.places[Kind.TAKEN] if events[place].message == message]
    if end is None or not takes:
        return None
    last = before(after(history.places[Kind.RAISED], takes[-_LATELY:][0]), end)
    return last[-1] if last else None


def is_outage(history: History, place: int | None) -> bool:
    """Whether this exception says that a server could not be reached: the code gives back rightly."""
    return place is not None and history.events[place].detail.startswith(_OUTAGES)


@dataclass(frozen=True)
class Endless:
    """A message that is booked, and came again and again until the run was ended for it."""

    message: str
    times: int  # it was given back since it was booked
    last: Sequence[int]  # its last events
    said: str  # the last exception, as a sentence of its own; empty if there was none


def given_back_for_ever(history: History, booked: set[str]) -> Endless | None:
    """Such a message, of those that are booked. None, too, where no server could be reached, or a handler still works with the message."""
    end = storm(history)
    if end is None:
        return None
    takes = Counter(e.message for e in history.of(Kind.TAKEN) if e.message in booked)
    for message, times in takes.most_common(1):
        story = before(message_places(history, message), end)
        kinds = [history.events[place].kind for place in story]
        begun = kinds.count(Kind.STARTED)
        if times <= MANY or Kind.FINISHED not in kinds or begun > sum(k in ENDS for k in kinds):
            return None
        done = len(kinds) - kinds[::-1].index(Kind.FINISHED)
        back, raised = kinds[done:].count(Kind.REQUEUE), raised_lately(history, message)
        if back > MANY and not is_outage(history, raised):
            text = "" if raised is None else history.events[raised].detail
            exception = [] if raised is None else [raised]
            said = f" The last exception: {text}." if text else ""
            return Endless(message, back, [*story[-5:], *exception], said)
    return None
