"""Isolation: what one failing message may cost the others."""

from __future__ import annotations

from collections.abc import Sequence

from autograder.checks.expectations import Expectation, read_expectations, stood_still
from autograder.checks.ledger import after, before, levels, running, unfinished
from autograder.checks.lines import keys_of
from autograder.checks.lives import NEVER, Life, Lives, read_lives
from autograder.checks.phrases import (
    counted,
    delivery_places,
    failure,
    first_line,
    moment,
    some,
    were,
    witness,
)
from autograder.checks.registry import guarantee
from autograder.checks.standstill import FAILURES, failures_before, lost_slots, startable
from autograder.model import Event, History, Kind, Verdict, Wait, failed, inconclusive, passed


@guarantee
def one_failure_is_one_failure(history: History) -> Verdict:
    """A failing message takes no other handler and no worker with it.

    A message fails when its handler raises, or when it cannot be settled because its connection is
    gone (`SettleFailed`). Wrong when a handler is cancelled though nobody stopped, cancelled or
    killed the pool (by a TaskGroup whose task failed, or by a timeout of the pool's own, which the
    contract does not have); when run() raises after a failure, or returns with messages left; when
    after failures the pool stands with fewer handlers at work than it has workers, though there are
    messages it could begin with; when it stands beside gates with fewer messages in hand than it had
    room for before, though more are within its reach.

    Tolerated: anything after a stop, a kill or a cancelled run(); fewer handlers at work beside gates
    where all messages have keys, for keys may share lanes. A pass needs evidence that no
    slot was lost: all workers busy again after a failure, or a handler begun after as many failures
    as there are workers, of each kind there was (handlers, settlements).
    """
    lives = read_lives(history)
    cancelled = [p for p in history.places[Kind.CANCELLED] if _unasked(history, lives, p)]
    if cancelled:
        return _others_cancelled(history, cancelled)
    failures = history.where(*FAILURES)
    if not failures:
        return inconclusive("Nothing failed.")
    ended = _ended_by_failure(history, lives)
    if ended is not None:
        return _pool_ended(history, ended)
    for each in stood_still(history):
        if each.place >= lives[each.process].told:
            continue
        if lost_slots(history, each) and not (each.held and _all_have_keys(history)):
            return _shrunk(history, each)
        had = _room_before(history, each)
        if had is not None:
            return _less_room(history, each, had)
    if _unclear_end(history):
        return inconclusive("Time ran out before the other messages were handled.")
    if _kept_its_slots(history):
        return passed(f"{counted(len(failures), 'failure')}, and every worker went on.")
    return inconclusive("Too little happened after the failures to tell whether a worker was lost.")


def _unasked(history: History, lives: Lives, place: int) -> bool:
    life = lives[history.events[place].process]
    return place < min(life.told, life.over)


def _others_cancelled(history: History, cancelled: Sequence[int]) -> Verdict:
    first = history.events[cancelled[0]]
    failures = failures_before(history, first.process, cancelled[0])
    names = some(history.events[place].message for place in cancelled)
    count = len(cancelled)
    if not failures:
        return failed(
            f"{counted(count, 'running handler')} {were(count)} cancelled though nothing had failed "
            f"and nobody had stopped the pool: {names}.",
            witness(history, delivery_places(history, first.delivery)),
            "Is there a timeout of your own around the handler?",
        )
    cause = history.events[failures[-1]]
    return failed(
        f"{cause.message} {_how(cause)} at {moment(history, failures[-1])}, and "
        f"{counted(count, 'other handler')} {were(count)} cancelled: {names}.",
        witness(history, [*delivery_places(history, cause.delivery)[:4], *cancelled[:4]]),
        "Do the handlers share a TaskGroup (or a gather) that a failing one tears down?",
    )


def _how(cause: Event) -> str:
    if cause.kind is Kind.SETTLE_FAILED:
        return "could not be settled"
    return f"failed ({failure(cause.detail)})"


def _ended_by_failure(history: History, lives: Lives) -> Life | None:
    """The last process, if after a failure run() raised, or returned unasked and left messages."""
    life = lives.last
    if life is None or life.over >= life.told:
        return None
    if not failures_before(history, life.process, life.over):
        return None
    return life if life.over == life.raised or unfinished(history) else None


def _pool_ended(history: History, life: Life) -> Verdict:
    last = failures_before(history, life.process, life.over)[-1]
    event, cause = history.events[life.over], history.events[last]
    words = {
        Kind.RUN_RAISED: f"run() raised {first_line(event.detail, 'an exception')}",
        Kind.RUN_RETURNED: "run() returned",
    }.get(event.kind, "the process ended")
    return failed(
        f"{cause.message} {_how(cause)} at {moment(history, last)}, and {words} "
        f"at {moment(history, life.over)} with {counted(len(unfinished(history)), 'message')} left.",
        witness(history, [*delivery_places(history, cause.delivery)[:6], life.over]),
        "Is SettleFailed caught where ack() and nack() are called?"
        if cause.kind is Kind.SETTLE_FAILED or "SettleFailed" in event.detail
        else "Is every exception of a handler caught inside the loop of its worker?",
    )


def _shrunk(history: History, each: Expectation) -> Verdict:
    failures = failures_before(history, each.process, each.place)
    answered = {event.delivery for event in history.of(Kind.REQUEUE, Kind.GIVE_UP)}
    slip = "Does the exception end the worker's loop, for want of an `except` inside the loop?"
    if all(history.events[place].delivery in answered for place in failures):
        slip = "Is a slot (of a semaphore, a task set) given back only when the handler succeeds?"
    lost = history.workers - each.busy
    if all(history.events[place].detail == "cancelled" for place in failures[-lost:]):
        slip = "Does a handler's own CancelledError, which `except Exception` does not see, end its worker?"
    if any(history.events[place].kind is Kind.SETTLE_FAILED for place in failures):
        slip = "Does SettleFailed, raised by ack() or nack(), end the worker?"
    return failed(
        f"After {counted(len(failures), 'failure')}, {each.busy} of {history.workers} workers were "
        f"at work and the pool stood, with {counted(startable(history, each), 'message')} it could "
        f"have begun ({moment(history, each.place)}).",
        witness(history, [*failures[:5], each.place]),
        slip,
    )


def _all_have_keys(history: History) -> bool:
    """Whether every message that is left has a key: it may wait behind another one, for its lane."""
    keys = keys_of(history)
    return all(keys.get(message) for message in unfinished(history))


def _room_before(history: History, each: Expectation) -> int | None:
    """How many messages were in hand before the failures, if it takes no more than fewer of them now.

    All handlers that run are held, and more messages lay in the buffer: nothing else than room for a
    message can be what it waits for. Room for `workers + 2` is all that a contract asks for.
    """
    failures = failures_before(history, each.process, each.place)
    taken = levels(history, Kind.TAKEN, (Kind.SETTLED, Kind.SETTLE_FAILED)).get(each.process)
    if taken is None or not failures or each.wait != Wait.STALLED:
        return None
    if not 0 < each.held == each.busy or not each.figures.get("buffered", 0):
        return None
    had = min(taken.peak(until=failures[0]), history.workers + 2)
    return had if each.in_hand < had else None


def _less_room(history: History, each: Expectation, had: int) -> Verdict:
    failures = failures_before(history, each.process, each.place)
    takes = before(history.places[Kind.TAKEN], each.place)
    return failed(
        f"{had} messages had been in hand at once; after {counted(len(failures), 'failure')} the pool "
        f"stood with {each.in_hand} and took no more, though {each.figures['buffered']} waited "
        f"({moment(history, each.place)}).",
        witness(history, [*failures[:4], *takes[-2:], each.place]),
        "Is room in hand given back however a message ends: given up, or not settled at all?",
    )


def _unclear_end(history: History) -> bool:
    """Whether healthy messages may only have wanted more time."""
    late = any(each.wait == Wait.LATE for each in read_expectations(history))
    return (history.truncated or late) and bool(unfinished(history))


def _kept_its_slots(history: History) -> bool:
    """Whether something after a failure shows that no worker was lost."""
    workers = history.workers
    met = [
        each
        for each in read_expectations(history)
        if each.wait == Wait.MET and each.wanted.get("running", 0) >= workers
    ]
    for process, pool in running(history).items():
        failures = failures_before(history, process)
        if not failures:
            continue
        if pool.above(workers - 1, since=failures[0]) < NEVER:
            return True
        if any(each.process == process and each.place > failures[0] for each in met):
            return True
        if workers > 0 and all(
            len(places) >= workers and after(pool.opens, places[workers - 1])
            for places in _by_kind(history, failures)
        ):
            return True
    return False


def _by_kind(history: History, failures: Sequence[int]) -> list[list[int]]:
    """Failures of handlers and of settlements apart: a pool may lose a worker to one kind only."""
    handlers = [place for place in failures if history.events[place].kind is Kind.FAILED]
    settlements = [place for place in failures if history.events[place].kind is not Kind.FAILED]
    return [places for places in (handlers, settlements) if places]
