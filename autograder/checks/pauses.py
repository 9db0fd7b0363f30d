"""Pauses between the tries of one message: judged in the simulation alone, whose clock is exact."""

from __future__ import annotations

from autograder.checks.expectations import stood_still
from autograder.checks.lines import Turn
from autograder.checks.lives import read_lives
from autograder.checks.phrases import witness
from autograder.model import History, Kind, Verdict, Wait, failed

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0  # between two tries, doubled from one to the other
_ROUNDING_S = 0.001
BEYOND_S = 1.5  # a timer is late now and then, but a pause this long is the second sign at most
FAR_BEYOND_S = 3.0


def hurried_pause(history: History, turn: Turn) -> Verdict | None:
    """Tries that follow each other too closely, where time is exact."""
    if history.engine != "sim":
        return None
    pause_s = FIRST_PAUSE_S
    for number, fail in enumerate(turn.failed, 1):
        again = next((each for each in turn.started if each > fail), None)
        if again is None:
            return None
        waited_s = history.events[again].at - history.events[fail].at
        if waited_s < pause_s - _ROUNDING_S:
            return failed(
                f"{turn.message} was tried again {waited_s * 1000:.0f} ms after its failure number "
                f"{number}; {pause_s * 1000:.0f} ms are the least.",
                witness(history, [turn.taken, *turn.started[:1], fail, again]),
                "Does each failure double the pause before the next try, from 50 ms up to 1 s?",
            )
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return None


def endless_pause(history: History, turn: Turn) -> Verdict | None:
    """Tries that follow each other later and later, with nothing but the pause between them.

    Two signs are asked for: a pause of more than 1.5 s, and then one of more than 3 s or a pool that
    was seen to stand. Each counts only if nothing else happened meanwhile and no other handler
    ran, for then no other message was what this one waited for.
    """
    if history.engine != "sim":
        return None
    events = history.events
    grew: tuple[int, int] | None = None
    for number, fail in enumerate(turn.failed, 1):
        again = next((each for each in turn.started if each > fail), None)
        until = _stood_at(history, turn, fail) if again is None else again
        if until is None or not _alone(history, turn, fail, until):
            return None
        waited_s = events[until].at - events[fail].at
        if grew is not None and (again is None or waited_s > FAR_BEYOND_S):
            return _no_limit(history, turn, grew, (fail, until), number)
        if again is not None and waited_s > BEYOND_S:
            grew = fail, again
    return None


def _stood_at(history: History, turn: Turn, fail: int) -> int | None:
    """Where the pool was seen to stand in the pause after the last failure, before any stop."""
    process = history.events[fail].process
    for each in stood_still(history):
        if each.process == process and each.place > fail and each.wait == Wait.STALLED:
            told = each.place > read_lives(history)[process].told
            return None if told or turn.final < each.place else each.place
    return None


def _alone(history: History, turn: Turn, fail: int, until: int) -> bool:
    """Whether nothing happened between these places, and no other handler of the process ran."""
    process, delivery = history.events[fail].process, history.events[fail].delivery
    between = history.events[fail + 1 : until]
    if any(event.at > history.events[fail].at + LONGEST_PAUSE_S for event in between):
        return False
    running: set[int] = set()
    for place in history.where(Kind.STARTED, Kind.FINISHED, Kind.FAILED, Kind.CANCELLED):
        event = history.events[place]
        if place >= until:
            break
        if event.process == process and event.delivery != delivery:
            change = running.add if event.kind is Kind.STARTED else running.discard
            change(event.delivery)
    return not running


def _no_limit(
    history: History, turn: Turn, grew: tuple[int, int], last: tuple[int, int], number: int
) -> Verdict:
    events = history.events
    first_s, last_s = (events[until].at - events[fail].at for fail, until in (grew, last))
    again = "it was tried again" if last[1] in turn.started else "the pool still stood"
    return failed(
        f"{turn.message} was tried again {first_s:.1f} s after a failure, and {last_s:.1f} s after "
        f"failure number {number} {again}; a pause has 1 s at most.",
        witness(history, [turn.taken, *grew, *last]),
        "Is the pause capped at 1 s?",
    )
