"""What happened to leases: who worked under one, and in whose hands it was meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autograder.checks.ledger import ENDS, after, before
from autograder.checks.lives import NEVER
from autograder.checks.phrases import message_places
from autograder.model import History, Holder, Kind

_TAKEN, _FREED, _OVER = "lease-taken", "lease-freed", "lease-over"
SLACK_S = 1.0
"""A server counts milliseconds, and its clock is another one."""


@dataclass(frozen=True)
class Look:
    """One look of the examiner's at one lease."""

    place: int
    message: str
    holder: Holder


@dataclass(frozen=True)
class Work:
    """One handler at work, as long as its lease may last."""

    message: str
    started: int
    ended: int  # its end; or NEVER, when it had none
    until: int  # the end of its right to work alone: `ended`, or where its lease was over

    @property
    def done(self) -> bool:
        """Whether the handler ended."""
        return self.ended < NEVER

    def covers(self, place: int) -> bool:
        """Whether it was at work there, with a lease that nobody has taken away."""
        return self.started < place < self.until


def looks(history: History) -> list[Look]:
    """Every look, in time order."""
    found = []
    for place in history.places[Kind.LEASE_SEEN]:
        event = history.events[place]
        found.append(Look(place, event.message, Holder.read(event.detail)))
    return found


def work_on(history: History, message: str) -> list[Work]:
    """Every handler that was called with this message.

    One that was under way when its process died may go on elsewhere, where its request has arrived: only
    the end of its lease ends that.
    """
    places = message_places(history, message)
    events = history.events
    spans = []
    for place in places:
        if events[place].kind is not Kind.STARTED:
            continue
        later = after(places, place)
        ended = next(
            (p for p in later if events[p].kind in ENDS and events[p].delivery == events[place].delivery),
            NEVER,
        )  # fmt: skip
        over = next((p for p in later if _hand(history, p) in {_TAKEN, _OVER}), NEVER)
        spans.append(Work(message, place, ended, min(ended, over, _ran_out(history, place))))
    return spans


def _ran_out(history: History, started: int) -> int:
    """Where the lease of this work was over by the clock."""
    event = history.events[started]
    takes = before(takes_of(history, event.message), started)
    span_s = ttl_s(history)
    if not takes or not span_s:
        return NEVER
    end = history.events[takes[-1]].at + span_s - SLACK_S
    return next(
        (p for p in range(started + 1, len(history.events)) if history.events[p].at >= end), NEVER
    )


def begun_meanwhile(history: History, span: Work) -> int:
    """Where another handler of the same message began during this one."""
    starts = [p for p in history.places[Kind.STARTED] if history.events[p].message == span.message]
    return next((p for p in starts if span.covers(p)), NEVER)


def _hand(history: History, place: int) -> str:
    """What the examiner did to a lease there, if it did."""
    event = history.events[place]
    return event.detail if event.kind is Kind.FAULT else ""


def _hands(history: History, message: str, until: int) -> Iterator[tuple[int, str]]:
    for place in before(history.places[Kind.FAULT], until):
        event = history.events[place]
        if event.message == message and event.detail in {_TAKEN, _FREED, _OVER}:
            yield place, event.detail


def other_holds(history: History, message: str, place: int) -> int | None:
    """Where another consumer took this lease, if it holds it at this place."""
    last = None
    for each, what in _hands(history, message, place):
        last = each if what == _TAKEN else None if what == _FREED else last
    return last


def freed_before(history: History, span: Work) -> bool:
    """Whether another consumer had held the lease before this handler began, and released it."""
    return any(what == _FREED for _, what in _hands(history, span.message, span.started))


def takes_of(history: History, message: str) -> list[int]:
    """Where the consumer took this lease."""
    return [p for p in history.places[Kind.LEASE_TAKEN] if history.events[p].message == message]


def taken_before(history: History, span: Work) -> bool:
    """Whether the process that did this work had been told, before, that it holds the lease."""
    process = history.events[span.started].process
    takes = before(takes_of(history, span.message), span.started)
    return any(history.events[place].process == process for place in takes)


def releases_of(history: History, message: str) -> list[int]:
    """Where a command of the consumer's that deletes this lease came back."""
    return [p for p in history.places[Kind.LEASE_RELEASED] if history.events[p].message == message]


def story(history: History, message: str, until: int) -> list[int]:
    """What is worth telling of a message and its lease."""
    dull = {Kind.PUBLISHED, Kind.CONFIRMED, Kind.SETTLED, Kind.HELD}
    places = before(message_places(history, message), until)
    return [place for place in places if history.events[place].kind not in dull]


def ttl_s(history: History) -> float:
    """The life span that leases were to have, an option of the call; 0 if it has none."""
    for event in history.of(Kind.SPAWNED):
        for word in event.detail.split():
            if word.startswith("ttl_s="):
                return float(word.partition("=")[2])
    return 0.0
