"""Pauses between the tries of one message: judged in the simulation alone, whose clock is exact."""

from __future__ import annotations

from dataclasses import dataclass

from autograder.checks.expectations import stood_still
from autograder.checks.homecoming import idle_before, last_of
from autograder.checks.ledger import CALLS, before
from autograder.checks.lines import Line, Turn, lines
from autograder.checks.lives import Life, read_lives
from autograder.checks.phrases import moment, witness
from autograder.model import History, Kind, Verdict, Wait, failed

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0  # between two tries, doubled from one to the other
_ROUNDING_S = 0.001
BEYOND_S = 1.5  # a timer is late now and then, but a pause this long is the second sign at most
FAR_BEYOND_S = 3.0
AT_ONCE_S = 0.5  # what a look at `stop` now and then may add to its end


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
    pauses: list[tuple[int, int]] = []
    for number, fail in enumerate(turn.failed, 1):
        again = next((each for each in turn.started if each > fail), None)
        until = _stood_at(history, turn, fail) if again is None else again
        if until is None:
            return None
        pauses.append((fail, until))
        waited_s = events[until].at - events[fail].at
        if grew is not None and (again is None or waited_s > FAR_BEYOND_S):
            alone = all(_alone(history, turn, *pause) for pause in pauses)
            return _no_limit(history, turn, grew, (fail, until), number) if alone else None
        if again is not None and waited_s > BEYOND_S:
            grew = fail, again
    return None


def slept_through_the_stop(history: History, life: Life, told: int) -> Verdict | None:
    """A pause that a stop does not end: the failed message is given back only when it is over.

    What the pool may have waited for excuses it: a handler at work, its source, the broker's answer. So
    nothing at all may have happened in the process for half a second before it gave the message back. Who
    tries once and takes a moment to answer has no pause between tries.
    """
    if history.engine != "sim":
        return None
    for line in lines(history):
        for turn in line.turns if line.process == life.process else ():
            fails, tries = before(turn.failed, told), before(turn.started, told)
            if len(tries) < 2 or not fails or tries[-1] > fails[-1]:
                continue
            answers = [
                place
                for place in history.where(*CALLS)
                if place > told and history.events[place].delivery == turn.delivery
            ]
            if not answers or any(told < each < answers[0] for each in turn.started):
                continue
            last, idle_s = idle_before(history, life, told, answers[0])
            if idle_s > AT_ONCE_S:
                return failed(
                    f"{turn.message} had failed and waited for its next try when stop was set at "
                    f"{moment(history, told)}; it was given back {idle_s:.1f} s after the last thing "
                    f"that happened ({moment(history, last)}).",
                    witness(
                        history,
                        [
                            turn.taken,
                            fails[-1],
                            *last_of(history, life, answers[0]),
                            told,
                            answers[0],
                        ],
                    ),
                    "Is the pause a sleep that hears no stop?",
                )
    return None


@dataclass(frozen=True)
class Rest:
    """A pause of one key, and what became of other keys' messages that were published in it."""

    line: Line
    turn: Turn
    failed: int  # where the try before it failed
    again: int  # where the next one began
    others: int
    finished: int


def rests(history: History) -> list[Rest]:
    """Pauses in which others had much to do, and half a second at least to do it in."""
    if history.engine != "sim":
        return []
    events, found = history.events, []
    for line in lines(history):
        for turn in line.turns:
            for fail in turn.failed:
                again = next((each for each in turn.started if each > fail), None)
                if again is None or events[again].at - events[fail].at < AT_ONCE_S:
                    continue
                others = {
                    events[place].message
                    for place in history.places[Kind.CONFIRMED]
                    if fail < place < again
                    and events[place].key != line.key
                    and events[again].at - events[place].at >= AT_ONCE_S
                }
                finished = {
                    events[place].message
                    for place in history.places[Kind.FINISHED]
                    if fail < place < again
                }
                if len(others) >= 2 * history.workers:
                    done = len(others & finished)
                    found.append(Rest(line, turn, fail, again, len(others), done))
    return found


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
