"""Reading a standstill: what the pool could have begun with, and whether failures cost it slots."""

from __future__ import annotations

from autograder.checks.expectations import Expectation
from autograder.checks.ledger import Level, before, of_process, running
from autograder.checks.lives import NEVER
from autograder.model import History, Kind, Wait

FAILURES = (Kind.FAILED, Kind.SETTLE_FAILED)


def startable(history: History, each: Expectation) -> int:
    """Messages that lay ready: in the source's buffer, or taken and with no handler yet."""
    events = history.events
    deliveries = {
        kind: {
            events[place].delivery
            for place in of_process(history, before(history.places[kind], each.place), each.process)
        }
        for kind in (Kind.TAKEN, Kind.STARTED, Kind.SETTLED, Kind.SETTLE_FAILED)
    }
    waiting = deliveries.pop(Kind.TAKEN).difference(*deliveries.values())
    return each.figures.get("buffered", 0) + len(waiting)


def failures_before(history: History, process: int, place: int = NEVER) -> list[int]:
    """Where deliveries of this process failed before this place: each once, at the first failure.

    A handler that raised is a failure, and so is a settlement that found its connection gone.
    """
    first: dict[int, int] = {}
    failures = before(history.where(*FAILURES), place)
    for each in of_process(history, failures, process):
        first.setdefault(history.events[each].delivery, each)
    return list(first.values())


def lost_slots(history: History, each: Expectation) -> int:
    """How many slots the failures before this standstill cost; 0 if it has another cause.

    A pool that had all workers busy after the last failure has lost none. Nor has one that never
    had more handlers at work than now, unless those missing are exactly as many as failed: poison
    that fails at once never shows up beside other handlers.
    """
    workers, end = history.workers, each.place
    failures = failures_before(history, each.process, end)
    missing = workers - each.busy
    if each.wait != Wait.STALLED or not failures or missing <= 0 or not startable(history, each):
        return 0
    pool = running(history).get(each.process, Level())
    last = of_process(history, before(history.where(*FAILURES), end), each.process)[-1]
    if pool.above(workers - 1, since=last, until=end) < NEVER:
        return 0
    explained = pool.peak(until=end) > each.busy or each.busy == max(0, workers - len(failures))
    return missing if explained else 0
