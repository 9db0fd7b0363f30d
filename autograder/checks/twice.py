"""Done twice: what a process had finished, and a later one was given again."""

from __future__ import annotations

from collections import Counter

from autograder.checks.ledger import after, before, of_process
from autograder.checks.lives import Life
from autograder.checks.phrases import counted, message_places, moment, some, were, witness
from autograder.model import History, Kind, Verdict, failed


def done_twice(history: History, life: Life, told: int) -> Verdict | None:
    """Messages that this process had finished, and that a later one was given again.

    Asked of a process that closes its own connection, which makes settlements durable. Where everything
    that was begun was finished, nothing of it can lie above a committed offset. A connection that broke
    excuses it, and so does a message that was published twice.
    """
    if not (life.connected < life.returned < min(life.expired, life.killed)):
        return None
    events, process = history.events, life.process
    mine = {
        kind: {
            events[place].message for place in of_process(history, history.places[kind], process)
        }
        for kind in (Kind.STARTED, Kind.FINISHED)
    }
    if mine[Kind.STARTED] != mine[Kind.FINISHED] or _was_cut(history, life):
        return None
    copies = Counter(event.message for event in history.of(Kind.PUBLISHED))
    again = [
        place
        for place in after(history.places[Kind.STARTED], life.returned)
        if events[place].process != process
        and events[place].message in mine[Kind.FINISHED]
        and copies[events[place].message] == 1
    ]
    if not again:
        return None
    first = events[again[0]]
    story = [p for p in message_places(history, first.message) if events[p].delivery]
    return failed(
        f"{counted(len(again), 'message')} that had been finished before run() returned at "
        f"{moment(history, life.returned)} {were(len(again))} delivered again after the restart: "
        f"{some(events[place].message for place in again)}.",
        witness(history, [*story[:4], told, life.returned, again[0]]),
        "Does the process end before its last settlements have reached the broker?",
    )


def _was_cut(history: History, life: Life) -> bool:
    """Whether its connection broke before it was closed."""
    end = min(life.disconnecting, life.over)
    failed_before = before(history.places[Kind.SETTLE_FAILED], end)
    return bool(of_process(history, failed_before, life.process)) or any(
        life.began < place < end and history.events[place].detail.startswith(("cut", "stall"))
        for place in history.places[Kind.FAULT]
    )
