"""Room: how many messages a pool takes before it waits for a settlement."""

from __future__ import annotations

from autograder.checks.expectations import Expectation, stood_still
from autograder.checks.ledger import before
from autograder.checks.lives import read_lives
from autograder.checks.phrases import counted, moment, were, witness
from autograder.checks.standstill import failures_before
from autograder.model import History, Kind, Verdict, Wait, failed


def too_little_room(history: History) -> Verdict | None:
    """A fail if the pool stood beside gates with fewer than `workers + 2` in hand; None if it did not.

    More messages lay in the source's buffer, the scenario waited for a take, and every handler that
    ran was held by the examiner: whatever the keys were, a right pool would have taken the next one.
    A pool that was told to stop accuses nobody, nor does one in which something has failed before.
    """
    for each in stood_still(history):
        if _would_not_take(history, each):
            return _full_too_soon(history, each)
    return None


def _would_not_take(history: History, each: Expectation) -> bool:
    return (
        each.wait == Wait.STALLED
        and each.seen.get("taken", 0) < each.wanted.get("taken", 0)
        and each.figures.get("buffered", 0) > 0
        and 0 < each.held == each.busy
        and each.in_hand < history.workers + 2
        and each.place < read_lives(history)[each.process].told
        and not failures_before(history, each.process, each.place)
        and not before(history.places[Kind.FAULT], each.place)
    )


def _full_too_soon(history: History, each: Expectation) -> Verdict:
    workers, in_hand, more = history.workers, each.in_hand, each.figures["buffered"]
    if in_hand < workers:
        slip = (
            "Does the receiver wait for something else than room for a message, whatever its key?"
        )
    elif in_hand == workers:
        slip = "Does the receiver take only as many messages as there are workers?"
    else:
        slip = "Does the receiver take only one message more than there are workers?"
    takes = before(history.places[Kind.TAKEN], each.place)
    return failed(
        f"{counted(in_hand, 'message')} {were(in_hand)} in hand at {moment(history, each.place)}, "
        f"{more} more waited, and the pool took none: there has to be room for "
        f"workers + 2 = {workers + 2}.",
        witness(history, [*takes[-6:], each.place]),
        slip,
    )
