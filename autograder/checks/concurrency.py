"""Concurrency: no more at once than asked for, no fewer while there is work, little in hand."""

from __future__ import annotations

from autograder.checks.expectations import Expectation, read_expectations, stood_still
from autograder.checks.isolation import lost_slots
from autograder.checks.ledger import ENDS, Level, before, ids, levels, of_process, open_at, running
from autograder.checks.lives import NEVER, read_lives
from autograder.checks.phrases import counted, moment, some, witness
from autograder.checks.registry import guarantee
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
    by_process = running(history)
    over = min((level.first_above(workers) for level in by_process.values()), default=NEVER)
    if over < NEVER:
        return _too_many(history, over, max(level.peak() for level in by_process.values()))
    started = len(history.places[Kind.STARTED])
    if not started:
        return inconclusive("No handler was started.")
    peak = max(level.peak() for level in by_process.values())
    if started > workers or (peak >= workers and len(ids(history, Kind.CONFIRMED)) > workers):
        return passed(f"At most {peak} of {counted(workers, 'handler')} ran at once.")
    return inconclusive(f"Only {started} handlers were started: no more than there are workers.")


def _too_many(history: History, over: int, peak: int) -> Verdict:
    workers = history.workers
    opened = open_at(history, over, Kind.STARTED, ENDS)
    failures = before(history.where(Kind.FAILED, Kind.CANCELLED), over)
    if peak > 2 * workers:
        slip = "Is a task created for every message, with nothing that bounds how many run?"
    elif failures:
        slip = "Is a slot given back twice when a handler fails (in `except` and in `finally`)?"
    else:
        slip = "Is a slot given back before its handler has ended, or is there one slot too many?"
    return failed(
        f"{peak} handlers ran at once, {workers} were allowed; the limit broke at "
        f"{moment(history, over)} with {history.events[over].message or 'a message'}.",
        witness(history, [*failures[-1:], *sorted(opened.values())[-7:]]),
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
        if _is_idle(each, workers) and _is_unexplained(history, each):
            return _idle(history, each)
    if any(each.wait != Wait.MET for each in asked):
        return inconclusive("The run ended before all workers could be seen busy.")
    if met:
        return passed(f"All {workers} workers were busy at {moment(history, met[0].place)}.")
    peak = max((level.peak() for level in running(history).values()), default=0)
    if 0 < workers <= peak:
        return passed(f"All {workers} workers were busy at once.")
    return inconclusive(
        f"At most {peak} of {workers} workers were seen busy, and none was asked for."
    )


def _is_idle(each: Expectation, workers: int) -> bool:
    """Whether workers stood idle here: fewer at work than were waited for, or than there are."""
    asked = each.wanted.get("running", 0)
    if 0 < asked <= workers:
        return min(each.busy, each.seen.get("running", each.busy)) < asked
    return each.held > 0 and each.busy < workers and each.within_reach > 0


def _is_unexplained(history: History, each: Expectation) -> bool:
    """Whether neither a stop, nor failures, nor a lack of messages tells why workers were idle."""
    if each.place > read_lives(history)[each.process].told or lost_slots(history, each):
        return False
    if each.wait != Wait.DRAINED:
        return True
    failures = before(history.places[Kind.FAILED], each.place)
    peak = running(history).get(each.process, Level()).peak(until=each.place)
    enough = len(ids(history, Kind.CONFIRMED)) >= history.workers > peak
    return enough and not of_process(history, failures, each.process)


def _idle(history: History, each: Expectation) -> Verdict:
    level = running(history).get(each.process, Level())
    peak = level.peak(until=each.place)
    starts = before(history.places[Kind.STARTED], each.place)
    ends = before(history.where(*ENDS, Kind.RELEASED), each.place)
    if peak >= history.workers:
        slip = "Does the pool wait until a whole batch is done (gather, join) before it takes more?"
    elif peak <= 1:
        slip = "Is each message awaited in the loop that takes them, so that one runs at a time?"
    else:
        slip = "Does something beside a running handler use up a slot: a queue's consumer, a settled message?"
    busy = min(each.busy, each.seen.get("running", each.busy))
    return failed(
        f"{busy} of {history.workers} workers were busy and the pool stood, with "
        f"{each.figures.get('buffered', 0)} messages to take and {each.in_hand} in hand "
        f"({moment(history, each.place)}).",
        witness(history, [*starts[-4:], *ends[-3:], each.place]),
        slip,
    )


@guarantee
def backpressure_holds(history: History) -> Verdict:
    """The pool takes only what it can soon handle: at most 2 * workers + 2 messages are in hand.

    A message is in hand from the moment it is taken until the call that settles it has returned, or
    has told that the connection is gone; the end of run() or of the process empties the hands. What the
    source buffers behind the pool's back does not count. A pass needs a temptation: more messages
    than the limit, taken or waiting.
    """
    workers = history.workers
    limit = 2 * workers + 2
    lives = read_lives(history)
    in_hand = levels(history, Kind.TAKEN, _SETTLED)
    ends = {process: lives[process].over for process in in_hand}
    over = min(
        (level.first_above(limit, until=ends[p]) for p, level in in_hand.items()), default=NEVER
    )
    peak = max((level.peak(until=ends[p]) for p, level in in_hand.items()), default=0)
    if over < NEVER:
        return _too_much(history, over, peak, limit)
    taken = len(history.places[Kind.TAKEN])
    if not taken:
        return inconclusive("No message was taken.")
    if taken > limit or (peak >= workers and len(ids(history, Kind.CONFIRMED)) > limit):
        return passed(f"At most {peak} messages were in hand; {limit} are allowed.")
    return inconclusive(f"Only {counted(taken, 'message')} could be taken; {limit} are allowed.")


def _too_much(history: History, over: int, peak: int, limit: int) -> Verdict:
    opened = open_at(history, over, Kind.TAKEN, _SETTLED)
    places = sorted(opened.values())
    names = some((history.events[place].message for place in places[-2:]), 2)
    started = [p for p in history.places[Kind.STARTED] if history.events[p].delivery in opened]
    if len(started) > limit:
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
