"""Failed work: what may be said to the broker about it."""

from __future__ import annotations

from collections.abc import Sequence

from autograder.checks.expectations import read_expectations, stood_still
from autograder.checks.ledger import (
    CALLS,
    ENDS,
    FINAL,
    LONGEST_DELAY_S,
    after,
    before,
    delay_s,
    first_place,
    of_process,
)
from autograder.checks.lives import NEVER, Life, Lives, read_lives
from autograder.checks.phrases import (
    counted,
    delivery_places,
    failure,
    moment,
    some,
    were,
    witness,
)
from autograder.checks.registry import guarantee
from autograder.checks.slips import settled_again
from autograder.model import History, Kind, Verdict, Wait, failed, inconclusive, passed

LONG_BEFORE_S = 0.02  # a failure that is not about to be answered: virtual time, which is exact
MANY_TRIES = 50  # of one delivery, in a run that was ended because something went on without end


@guarantee
def failed_work_is_not_acked(history: History) -> Verdict:
    """Failed work goes back to the broker or is given up, never acked.

    After `Transient`, any other exception, or a `CancelledError` of the handler's own: a
    `nack(requeue=True)` is right; ack and giving up are wrong. After `Permanent`:
    `nack(requeue=False)` is right; ack and requeue are wrong. A handler that was cancelled from
    outside has not done its work either: its message is given back, never acked or given up. Once
    run() itself was cancelled, nothing unfinished is settled at all: the broker brings it back when
    the connection closes. Wrong as well: a failed message that is not settled by a pool that
    stands still or has returned, and settling any message twice (the port raises `AlreadySettled`).

    So is a delay above the second that the contract allows, and so is trying the same delivery
    again and again without end.

    Tolerated: trying again in place, if the ack follows a try that finished; giving back after
    `stop` whatever is in hand; answering, after a cancel, a handler that had just failed by itself (in
    the simulation, whose clock is exact, not one that was to be tried again after a pause); a
    settlement that fails (`SettleFailed`); nothing at all once the process was killed or run() was
    cancelled or raised. Acks that came before the failure belong to `ack_follows_work`.
    """
    twice = settled_twice(history)
    if twice is not None:
        return twice
    lives = read_lives(history)
    book = _Failures(history)
    wrong = [call for call in book.calls if _is_wrong(history, lives, book, call)]
    if wrong:
        return _wrong(history, book, wrong)
    put_off = [call for call in book.calls if delay_s(history.events[call]) > LONGEST_DELAY_S]
    if put_off:
        return _put_off(history, book, put_off)
    cut_short = _settled_after_cancel(history, lives)
    if cut_short:
        return _after_cancel(history, lives, cut_short)
    unsettled = [place for place in book.unsettled() if _had_time(history, lives, place)]
    if unsettled:
        return _unsettled(history, unsettled)
    if Wait.STORM in {each.wait for each in read_expectations(history)} and book.ends:
        endless = max(book.ends, key=lambda delivery: len(book.ends[delivery]))
        if len(book.ends[endless]) > MANY_TRIES:
            return _endless(history, book.ends[endless])
    if book.calls:
        return passed(f"{counted(len(book.ends), 'failure')}, each answered as it asked for.")
    if any(lives[event.process].cancelled < NEVER for event in history.of(Kind.CANCELLED)):
        return passed("run() was cancelled, and nothing unfinished was settled.")
    return inconclusive("No handler failed.")


class _Failures:
    """Handlers that failed or were cancelled, and what was then said to the broker."""

    def __init__(self, history: History) -> None:
        self._events = events = history.events
        self.ends: dict[int, list[int]] = {}  # delivery -> where its handler ended, each time
        for place in history.where(Kind.FAILED, Kind.CANCELLED):
            self.ends.setdefault(events[place].delivery, []).append(place)
        self.calls: list[int] = []  # ack() and nack() that came after such an end
        self._settled: set[int] = set()  # deliveries with a call, at whatever time
        if not self.ends:
            return
        for place in history.places[Kind.FINISHED]:
            if events[place].delivery in self.ends:
                self.ends[events[place].delivery].append(place)
        for place in history.where(*CALLS):
            delivery = events[place].delivery
            if delivery in self.ends:
                self._settled.add(delivery)
                if min(self.ends[delivery]) < place:
                    self.calls.append(place)

    def end_before(self, call: int) -> int:
        """How the handler had last ended when this call came."""
        ends = self.ends[self._events[call].delivery]
        return max(place for place in ends if place < call)

    def unsettled(self) -> list[int]:
        """Failures after which nothing was said, not even before."""
        events = self._events
        return sorted(
            max(ends)
            for delivery, ends in self.ends.items()
            if delivery not in self._settled and events[max(ends)].kind is Kind.FAILED
        )


def _is_wrong(history: History, lives: Lives, book: _Failures, call: int) -> bool:
    said, ended = history.events[call].kind, history.events[book.end_before(call)]
    life = lives[ended.process]
    if ended.kind is Kind.FINISHED or (ended.kind is Kind.CANCELLED and life.cancelled < call):
        return False  # the second is judged by `_settled_after_cancel`
    if ended.kind is Kind.FAILED and ended.detail == "permanent":
        return not (said is Kind.GIVE_UP or (said is Kind.REQUEUE and life.stop_set < call))
    return said is not Kind.REQUEUE


def _settled_after_cancel(history: History, lives: Lives) -> list[int]:
    """Messages settled after run() was cancelled, though no handler had finished or failed."""
    found: list[int] = []
    for life in lives.values():
        if life.cancelled == NEVER:
            continue
        ended = [first_place(history, kind) for kind in (Kind.FINISHED, Kind.FAILED)]
        calls = CALLS if life.cancelled < life.stop_set else FINAL  # a stop gives back, and may
        later = after(history.where(*calls), life.cancelled)
        for place in of_process(history, later, life.process):
            delivery = history.events[place].delivery
            untouched = all(places.get(delivery, NEVER) > place for places in ended)
            if untouched or _in_a_pause(history, life, place):
                found.append(place)
    return sorted(found)


def _in_a_pause(history: History, life: Life, call: int) -> bool:
    """Whether the message was given back in a pause between two tries, and not in answer to one."""
    events = history.events
    if history.engine != "sim" or events[call].kind is not Kind.REQUEUE:
        return False
    ends = before(history.where(*ENDS), call)
    mine = [place for place in ends if events[place].delivery == events[call].delivery]
    last = mine[-1]
    return (
        len(mine) > 1
        and last < life.cancelled < life.stop_set
        and events[last].detail != "permanent"
        and events[life.cancelled].at - events[last].at > LONG_BEFORE_S
    )


def _had_time(history: History, lives: Lives, failure: int) -> bool:
    """Whether the pool stood still, or returned in peace, with this failure unsettled."""
    life = lives[history.events[failure].process]
    if life.cancelled < NEVER:
        return False
    if failure < life.returned < min(life.killed, life.exited):
        return True
    return any(
        failure < each.place and each.process == life.process and not each.held and each.in_hand
        for each in stood_still(history)
        if failure < life.told
    )


_SAID = {Kind.ACK: "acked", Kind.GIVE_UP: "given up", Kind.REQUEUE: "given back"}


def _wrong(history: History, book: _Failures, wrong: Sequence[int]) -> Verdict:
    call = history.events[wrong[0]]
    end = history.events[book.end_before(wrong[0])]
    how = "was cancelled" if end.kind is Kind.CANCELLED else f"failed ({failure(end.detail)})"
    if call.kind is Kind.ACK:
        slip = "Does ack() also run after an exception: in a `finally`, or after an `except` that only logs?"
    elif end.kind is Kind.CANCELLED:
        slip = "Does `except BaseException` (or CancelledError) treat a cancelled handler as failed for good?"
    elif call.kind is Kind.GIVE_UP:
        slip = "Is every exception answered with nack(requeue=False), although only Permanent is for ever?"
    else:
        slip = (
            "Is Permanent caught before the other exceptions, so that it is given up, not requeued?"
        )
    return failed(
        f"{len(wrong)} of {counted(len(book.ends), 'failure')} {were(len(wrong))} answered wrongly: "
        f"{call.message} {how} at {end.at:.3f} s and was {_SAID[call.kind]}.",
        witness(history, delivery_places(history, call.delivery)),
        slip,
    )


def _put_off(history: History, book: _Failures, calls: Sequence[int]) -> Verdict:
    longest = history.events[max(calls, key=lambda call: delay_s(history.events[call]))]
    return failed(
        f"{len(calls)} of {counted(len(book.ends), 'failure')} {were(len(calls))} put off for too "
        f"long: {longest.message} was given back with a delay of {longest.detail} s, and "
        f"{LONGEST_DELAY_S:g} s is allowed.",
        witness(history, delivery_places(history, longest.delivery)),
        "Does the delay grow with every attempt, without an upper limit?",
    )


def _after_cancel(history: History, lives: Lives, found: Sequence[int]) -> Verdict:
    first = history.events[found[0]]
    fault = lives[first.process].cancelled
    slip = (
        "Is a cancelled handler treated as a failed one, by `except BaseException` or a `finally`?"
    )
    if _in_a_pause(history, lives[first.process], found[0]):
        slip = "Does a cancel in the pause between two tries give the message back, as a stop does?"
    return failed(
        f"run() was cancelled at {moment(history, fault)}, and {counted(len(found), 'message')} "
        f"that no handler had finished {were(len(found))} settled all the same: "
        f"{some(history.events[place].message for place in found)}.",
        witness(history, [*delivery_places(history, first.delivery), fault]),
        slip,
    )


def _unsettled(history: History, places: Sequence[int]) -> Verdict:
    first = history.events[places[0]]
    return failed(
        f"{counted(len(places), 'failed message')} {were(len(places))} neither "
        f"given back nor given up: {some(history.events[place].message for place in places)}.",
        witness(history, delivery_places(history, first.delivery)),
        "Does a failing handler's exception end its worker before nack() is reached?",
    )


def _endless(history: History, ends: Sequence[int]) -> Verdict:
    first = history.events[ends[0]]
    story = delivery_places(history, first.delivery)
    return failed(
        f"{first.message} failed {len(ends)} times in one delivery, and was neither given back nor "
        "given up.",
        witness(history, [*story[:5], *ends[-2:]]),
        "Is a failed message tried again in a loop of yours, instead of given back?",
    )


def settled_twice(history: History) -> Verdict | None:
    """The verdict on messages that were settled a second time; None if none was."""
    twice = history.places[Kind.SETTLED_TWICE]
    if not twice:
        return None
    first = history.events[twice[0]]
    story = delivery_places(history, first.delivery)
    return failed(
        f"{counted(len(twice), 'message')} {were(len(twice))} settled a second "
        f"time: {some(history.events[place].message for place in twice)}.",
        witness(history, story),
        settled_again(history.at(story)),
    )
