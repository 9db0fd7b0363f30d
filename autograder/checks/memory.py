"""Memory: what is done with leaves nothing behind."""

from __future__ import annotations

import re

from autograder.checks.ledger import before, of_process
from autograder.checks.phrases import moment, witness
from autograder.checks.registry import guarantee
from autograder.model import History, Kind, Verdict, failed, inconclusive, passed

LEAST_KEYS = 100
"""So many keys tell what is kept of each from the few that somebody may happen to hold."""

_KEPT = re.compile(r"(\d{1,9}) of (\d{1,9}) keys", re.ASCII)


@guarantee
def memory_is_bounded(history: History) -> Verdict:
    """Nothing is kept of messages that are settled, nor of their keys.

    When every message is settled, the process is asked how many of the keys it has seen are still
    referred to by anything in it but the examiner's own books. Wrong when it is more than half of
    them, of at least 100. So few tell as much as 200,000 would: a dictionary that never forgets a
    key has all of them.

    Tolerated: holding some for later, as a small cache does. Not seen: what is kept in another form
    than the text itself. Weighings with messages in hand prove nothing.
    """
    proof = inconclusive("The process was not looked through after many keys.")
    for place in history.places[Kind.WEIGHED]:
        read = _KEPT.fullmatch(history.events[place].detail)
        if read is None or _in_hand(history, place):
            continue
        kept, seen = int(read[1]), int(read[2])
        if seen < LEAST_KEYS:
            continue
        if 2 * kept > seen:
            return failed(
                f"{kept} of {seen} keys were still held at {moment(history, place)}, when all their "
                "messages were settled.",
                witness(history, [*_first_story(history, place), place]),
                "Does a dictionary, of lines, locks or tasks, keep the keys of messages that are done?",
            )
        proof = passed(f"{kept} of {seen} keys were still held when all was settled.")
    return proof


def _in_hand(history: History, place: int) -> int:
    """Messages of the weighed process that had been taken and not settled."""
    process = history.events[place].process
    taken, *settled = (
        len(of_process(history, before(history.places[kind], place), process))
        for kind in (Kind.TAKEN, Kind.SETTLED, Kind.SETTLE_FAILED)
    )
    return taken - sum(settled)


def _first_story(history: History, place: int) -> list[int]:
    """The first message that the weighed process took, from its take to its settlement."""
    process = history.events[place].process
    takes = of_process(history, before(history.places[Kind.TAKEN], place), process)
    if not takes:
        return []
    delivery = history.events[takes[0]].delivery
    return [each for each in range(place) if history.events[each].delivery == delivery][:6]
