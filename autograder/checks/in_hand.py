"""Pauses with a failed message in hand, seen by what does not happen meanwhile."""

from __future__ import annotations

from itertools import pairwise

from autograder.checks.ledger import CALLS, ENDS, first_of_message, ids
from autograder.checks.lives import Life, read_lives
from autograder.checks.phrases import counted, witness
from autograder.model import History, Kind, Verdict, failed

PAUSE_S = 0.05  # no program needs so long to say that a handler has failed,
TIMES = 3  # and no machine is held up just then so many times, and never is not


def slept_in_hand(history: History) -> Verdict | None:
    """A consumer that pauses before it gives a message back, while others wait that are well.

    Each of its failures has to show it. Only those are looked at after which the consumer did nothing
    else: one that handles others meanwhile holds up nobody.
    """
    for life in read_lives(history).values():
        pauses = _pauses(history, life)
        if len(pauses) < TIMES:
            continue
        length_s = [history.events[end].at - history.events[start].at for start, end in pauses]
        if min(length_s) < PAUSE_S:
            continue
        name = history.events[pauses[0][0]].message
        return failed(
            f"{name} failed and was given back {length_s[0]:.2f} s later, with messages waiting that nothing "
            f"is wrong with; so it was {counted(len(pauses), 'time')}, {min(length_s):.2f} s at least.",
            witness(history, [place for pause in pauses[:4] for place in pause]),
            "Does something sleep before it gives a message back, instead of asking for a delay?",
        )
    return None


def _pauses(history: History, life: Life) -> list[tuple[int, int]]:
    """From a failure to the giving back, with nothing in between and others waiting."""
    events = history.events
    waits = _waits(history)
    places = [
        place
        for place in history.where(Kind.TAKEN, Kind.STARTED, Kind.DEAD_LETTER, *ENDS, *CALLS)
        if events[place].process == life.process and place < life.told
    ]
    found = []
    for start, end in pairwise(places):
        answered = events[start].kind is Kind.FAILED and events[end].kind is Kind.REQUEUE
        same = events[start].delivery == events[end].delivery
        if answered and same and any(since < start and end < until for since, until in waits):
            found.append((start, end))
    return found


def _waits(history: History) -> list[tuple[int, int]]:
    """Of each message that never failed: where it was confirmed, and where it was first handled."""
    confirmed = first_of_message(history, Kind.CONFIRMED)
    started = first_of_message(history, Kind.STARTED)
    well = ids(history, Kind.FINISHED) - ids(history, Kind.FAILED)
    return [(confirmed[name], started[name]) for name in well if name in confirmed]
