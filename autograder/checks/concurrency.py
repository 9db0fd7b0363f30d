"""Concurrency: no more at once than asked for, no fewer while there is work, little in hand."""

from __future__ import annotations

from autograder.checks.expectations import Expectation, read_expectations, stood_still
from autograder.checks.ledger import ENDS, Level, before, ids, levels, of_process, open_at, running
from autograder.checks.lives import NEVER, read_lives
from autograder.checks.phrases import counted, moment, some, witness
from autograder.checks.registry import guarantee
from autograder.checks.standstill import failures_before, lost_slots, startable
from autograder.model import History, Kind, Verdict, Wait, failed, inconclusive, passed

_SETTLED = (Kind.SETTLED, Kind.SETTLE_FAILED)


@guarantee
def concurrency_is_bounded(history: History) -> Verdict:
    """Never more than `workers` handlers run at once.

    Counted per process: a handler runs from its call until it returns, raises or is cancelled; the
    death of a process ends all its handlers. A pass needs a temptation: more handlers started than
    `workers`, or all workers busy while more messages waited.
    """
    workers = history.workers
    pools = running(history).values()
    over = min((pool.above(workers) for pool in pools), default=NEVER)
    if over < NEVER:
        return _too_many(history, over, max(pool.peak() for pool in pools))
    started = len(history.places[Kind.STARTED])
    if not started:
        return inconclusive("No handler was started.")
    enough = started > workers
    if enough or (_all_busy(history) and len(ids(history, Kind.CONFIRMED)) > workers):
        return passed(f"{counted(started, 'handler')} ran, never more than {workers} at once.")
    return inconclusive(f"Only {counted(started, 'handler')} ran: no more than there are workers.")


def _all_busy(history: History) -> bool:
    """Whether all workers were ever busy at once."""
    above = (pool.above(history.workers - 1) for pool in running(history).values())
    return min(above, default=NEVER) < NEVER


def _too_many(history: History, over: int, peak: int) -> Verdict:
    workers = history.workers
    opened = open_at(history, over, Kind.STARTED, ENDS)
    process = history.events[over].process
    ended = of_process(history, before(history.where(*ENDS), over), process)
    if ended:
        slip = "Is a slot given back twice, or before its handler has ended?"
    elif peak == workers + 1:
        slip = "Is there one slot too many, or does the loop that takes messages handle some, too?"
    else:
        slip = "Is a task created for every message, with nothing that bounds how many run?"
    return failed(
        f"{peak} handlers ran at once, {workers} were allowed; the limit broke at "
        f"{moment(history, over)} with {history.events[over].message or 'a message'}.",
        witness(history, [*ended[-1:], *sorted(opened.values())[-7:]]),
        slip,
    )


@guarantee
def pool_is_used(history: History) -> Verdict:
    """All `workers` are busy while there is work for them.

    Scenarios hold handlers at gates and wait until as many run as there are workers. Wrong when
    the pool stands with fewer at work although messages are within its reach; that includes a pool
    that waits for a whole batch before it takes more, for it stands as soon as one of the batch is
    released and the others are held. Wrong too when the broker ran dry and so many were never seen
    at work together. How fast workers are filled is not asked.

    A pool that lost workers to failures is judged by `one_failure_is_one_failure`. Without such an
    expectation in the history, `workers` handlers seen running at once are evidence enough.
    """
    workers = history.workers
    asked = [each for each in read_expectations(history) if each.wanted.get("running", 0) > 0]
    met = [each for each in asked if each.wait == Wait.MET and each.wanted["running"] >= workers]
    for each in stood_still(history):
        if _is_idle(history, each):
            return _idle(history, each)
    if any(each.wait != Wait.MET for each in asked):
        return inconclusive("The run ended before all workers could be seen busy.")
    if met:
        return passed(f"All {workers} workers were busy at {moment(history, met[0].place)}.")
    if _all_busy(history):
        return passed(f"All {workers} workers were busy at once.")
    return inconclusive(f"All {workers} workers were never seen busy, nor was the pool asked to.")


def _is_idle(history: History, each: Expectation) -> bool:
    """Whether workers stood idle here, though there was work, and nothing else explains it."""
    asked = each.wanted.get("running", 0)
    fewer = _busy(each) < asked <= history.workers
    if each.wait == Wait.DRAINED:
        return fewer and _never_together(history, each)
    beside_gates = 0 < each.held <= each.busy < history.workers
    return (
        (fewer or beside_gates)
        and startable(history, each) > 0
        and each.place < read_lives(history)[each.process].told
        and not lost_slots(history, each)
    )


def _busy(each: Expectation) -> int:
    """Handlers at work, by the subject's last heartbeat and by the events: the smaller number."""
    return min(each.busy, each.seen.get("running", each.busy))


def _never_together(history: History, each: Expectation) -> bool:
    """Whether a pool that emptied the broker, and failed at nothing, never used all workers."""
    peak = running(history).get(each.process, Level()).peak(until=each.place)
    enough = len(ids(history, Kind.CONFIRMED)) >= history.workers > peak
    return enough and not failures_before(history, each.process, each.place)


def _idle(history: History, each: Expectation) -> Verdict:
    peak = running(history).get(each.process, Level()).peak(until=each.place)
    starts = before(history.places[Kind.STARTED], each.place)
    ends = before(history.where(*ENDS, Kind.RELEASED), each.place)
    if peak >= history.workers:
        slip = "Does the pool wait until a whole batch is done (gather, join) before it takes more?"
    elif peak <= 1:
        slip = "Is each message awaited in the loop that takes them, so that one runs at a time?"
    else:
        slip = "Does something beside a running handler use up a slot: a queue's consumer, a settled message?"
    if each.wait == Wait.DRAINED:
        observed = f"Never more than {peak} of {history.workers} workers were busy, until no message was left."
    else:
        observed = (
            f"{_busy(each)} of {history.workers} workers were busy and the pool stood, with "
            f"{counted(startable(history, each), 'message')} it could have begun "
            f"({moment(history, each.place)})."
        )
    return failed(
        observed,
        witness(history, [*starts[-4:], *ends[-3:], each.place]),
        slip,
    )


@guarantee
def backpressure_holds(history: History) -> Verdict:
    """No more than 2 * workers + 2 messages are taken and unsettled.

    A message is in hand from the moment it is taken until the call that settles it has returned,
    or has told that the connection is gone; the end of run() or of the process empties the hands.
    What the source buffers behind the pool's back does not count. A pass needs a temptation: more
    messages than the limit, taken or waiting.
    """
    workers = history.workers
    limit = 2 * workers + 2
    lives = read_lives(history)
    hands = [(hand, lives[p].over) for p, hand in levels(history, Kind.TAKEN, _SETTLED).items()]
    over = min((hand.above(limit, until=end) for hand, end in hands), default=NEVER)
    if over < NEVER:
        return _too_much(history, over, max(hand.peak(until=end) for hand, end in hands), limit)
    taken = len(history.places[Kind.TAKEN])
    if not taken:
        return inconclusive("No message was taken.")
    if taken > limit or (taken >= workers and len(ids(history, Kind.CONFIRMED)) > limit):
        return passed(
            f"{counted(taken, 'message')} taken, never more than {limit} in hand at once."
        )
    return inconclusive(f"Only {counted(taken, 'message')} could be taken; {limit} are allowed.")


def _too_much(history: History, over: int, peak: int, limit: int) -> Verdict:
    opened = open_at(history, over, Kind.TAKEN, _SETTLED)
    places = sorted(opened.values())
    names = some((history.events[place].message for place in places[-2:]), 2)
    pool = running(history).get(history.events[over].process, Level())
    if pool.above(limit) < NEVER:
        slip = "Is a task started for every message that can be taken?"
    else:
        slip = (
            "Is the queue between taking and handling unbounded (asyncio.Queue() without maxsize)?"
        )
    return failed(
        f"{peak} messages were in hand at once, taken and not settled; {limit} are allowed. The "
        f"limit broke at {moment(history, over)} ({names}).",
        witness(history, [*places[:3], *places[-5:]]),
        slip,
    )
