"""Attempts: how often a message is tried, and what happens after the last time."""

from __future__ import annotations

from collections.abc import Sequence

from autograder.checks.ledger import CALLS, FINAL, LONGEST_DELAY_S, delay_s
from autograder.checks.letterbook import Case, between, cases, max_attempts, unreadable
from autograder.checks.lives import NEVER, read_lives
from autograder.checks.phrases import (
    counted,
    delivery_places,
    failure,
    message_places,
    moment,
    were,
    witness,
)
from autograder.checks.registry import guarantee
from autograder.model import Event, History, Kind, Verdict, failed, inconclusive, passed


@guarantee
def attempts_are_exact(history: History) -> Verdict:
    """A message is tried up to `max_attempts` times, and no more.

    An attempt is a delivery, as the message itself counts them (`attempt`), so the count outlives the
    process. Wrong when a handler is called with a delivery beyond `max_attempts`, or twice with the
    same delivery; when a message whose handler failed transiently with attempts left is written to the
    dead letters, or not given back; when one that has used its last attempt is given back and no
    letter was tried; when a letter is written of a message that was not handled, though it had
    attempts left, or whose handler was cancelled or went well; when a message is given back with a
    longer delay than the second that the contract allows, or because run() was cancelled: that is no
    failure, and nothing is said of it.

    Tolerated: giving back after `stop`; giving back after a letter that the broker did not confirm, and
    trying only the letter when the message comes again, attempts left or not; anything that a kill cut
    short.
    """
    over = [p for p in history.places[Kind.STARTED] if _is_beyond(history, p)]
    if over:
        return _beyond(history, over)
    twice = _started_twice(history)
    if twice:
        return _in_place(history, twice)
    early = [case for case in cases(history) if _is_early(history, case)]
    if early:
        return _early(history, early)
    tries = [p for p in history.places[Kind.FAILED] if history.events[p].detail != "permanent"]
    wrong = [place for place in tries if _is_wrong(history, place)]
    if wrong:
        return _wrong(history, wrong)
    for look in (_put_off, _cut_short):
        verdict = look(history)
        if verdict is not None:
            return verdict
    if not tries:
        return inconclusive("No handler failed in a way that may pass.")
    return passed(f"{counted(len(tries), 'failed attempt')}, each counted.")


def _is_beyond(history: History, place: int) -> bool:
    event = history.events[place]
    return event.attempt > max_attempts(history, event.process)


def _beyond(history: History, places: Sequence[int]) -> Verdict:
    event = history.events[places[0]]
    most = max_attempts(history, event.process)
    story = message_places(history, event.message)
    return failed(
        f"{event.message} was handled at attempt {event.attempt}, though it had {most}.",
        witness(history, [place for place in story if place <= places[0]][-7:]),
        "Are attempts compared with `>` where it should be `>=`, or not counted at all?",
    )


def _started_twice(history: History) -> list[int]:
    seen: set[int] = set()
    found = []
    for place in history.places[Kind.STARTED]:
        delivery = history.events[place].delivery
        if delivery in seen:
            found.append(place)
        seen.add(delivery)
    return found


def _in_place(history: History, places: Sequence[int]) -> Verdict:
    event = history.events[places[0]]
    return failed(
        f"{event.message} was handled again within one delivery: an attempt that the broker does not "
        "count is forgotten when the process dies, and others wait meanwhile.",
        witness(history, delivery_places(history, event.delivery)[:8]),
        "Is a failed message tried again in a loop of yours, instead of given back?",
    )


def _is_early(history: History, case: Case) -> bool:
    """Whether this letter is about a message that still had attempts."""
    if case.event.message in unreadable(history) or not case.delivery:
        return False
    most = max_attempts(history, case.event.process)
    if case.failure is None:
        return case.ended or (case.attempt <= most and not _was_hopeless(history, case, most))
    return case.failure.detail != "permanent" and case.attempt < most


def _was_hopeless(history: History, case: Case, most: int) -> bool:
    """Whether an earlier delivery had shown that there is nothing more to try."""
    return any(
        history.events[p].detail == "permanent" or history.events[p].attempt >= most
        for p in between(history, case.event.message, 0, case.place, Kind.FAILED)
    )


_ANY = "Is every failure treated as the last, or is the count off by one?"
_SLIPS = {
    "error": "Is an exception of the handler's own, a `ValueError` say, taken for a body that is no JSON, or for "
    "`Permanent`?",
    "cancelled": "Is a `CancelledError` that the handler raised itself treated as final? It is a failure like others.",
}
"""By the kind of failure, where only that kind was given up too early."""


def _early(history: History, early: Sequence[Case]) -> Verdict:
    case = early[0]
    most = max_attempts(history, case.event.process)
    if case.failure is not None:
        how = f"failed ({failure(case.failure.detail)}) at attempt {case.attempt} of {most}"
        kinds = {each.failure.detail for each in early if each.failure is not None}
        slip = _SLIPS.get(kinds.pop(), _ANY) if len(kinds) == 1 else _ANY
    elif case.ended:
        how = "was cancelled, or had done its work,"
        slip = "Does `except BaseException` treat a handler that was cancelled as one that failed?"
    else:
        how = f"was not even tried at attempt {case.attempt} of {most}"
        slip = "Is `attempt` compared before the handler is called, and with `>=`?"
    return failed(
        f"{counted(len(early), 'letter')} {were(len(early))} written too early: {case.event.message} "
        f"{how} and went to the dead letters.",
        witness(history, [*delivery_places(history, case.delivery), case.place]),
        slip,
    )


def _is_wrong(history: History, place: int) -> bool:
    """Whether a transient failure was answered otherwise than its attempt asks for."""
    event = history.events[place]
    call = _call_after(history, event, place)
    if call == NEVER:
        return False
    said = history.events[call].kind
    if event.attempt < max_attempts(history, event.process):
        return said in FINAL and not _finished(history, event, call)
    stopped = read_lives(history)[event.process].stop_set < call
    tried = between(history, event.message, place, call, Kind.DEAD_LETTER, process=event.process)
    return said is Kind.REQUEUE and not tried and not stopped


def _call_after(history: History, event: Event, place: int) -> int:
    """Where this delivery is settled after this place."""
    calls = between(history, event.message, place, NEVER, *CALLS, process=event.process)
    return next((p for p in calls if history.events[p].delivery == event.delivery), NEVER)


def _finished(history: History, event: Event, call: int) -> bool:
    ends = between(history, event.message, 0, call, Kind.FINISHED, process=event.process)
    return any(history.events[p].delivery == event.delivery for p in ends)


def _wrong(history: History, wrong: Sequence[int]) -> Verdict:
    event = history.events[wrong[0]]
    most = max_attempts(history, event.process)
    if event.attempt < most:
        what = "was not given back, though it had attempts left"
        slip = "Is `Transient`, or an exception of any other kind, answered as `Permanent` is?"
    else:
        what = "was given back once more, and no letter was written"
        slip = (
            "Are attempts counted in your process, which forgets them when it is started anew, and not "
            "by `message.attempt`?"
        )
    return failed(
        f"{event.message} failed ({failure(event.detail)}) at attempt {event.attempt} of {most} and {what}.",
        witness(history, [*message_places(history, event.message)[:2], *delivery_places(history, event.delivery)]),
        slip,
    )  # fmt: skip


def _put_off(history: History) -> Verdict | None:
    """Messages that were given back, but not for anybody to take them soon."""
    late = [p for p in history.places[Kind.REQUEUE] if delay_s(history.events[p]) > LONGEST_DELAY_S]
    if not late:
        return None
    longest = history.events[max(late, key=lambda place: delay_s(history.events[place]))]
    return failed(
        f"{longest.message} was given back with a delay of {longest.detail} s, and "
        f"{LONGEST_DELAY_S:g} s is allowed.",
        witness(history, delivery_places(history, longest.delivery)),
        "Does the delay grow with every attempt, without an upper limit?",
    )


def _cut_short(history: History) -> Verdict | None:
    """Messages given back because the cancelling of run() had ended their handlers."""
    for life in read_lives(history).values():
        if life.cancelled > life.stop_set:  # a stop gives back what is in hand
            continue
        for place in history.places[Kind.REQUEUE]:
            event = history.events[place]
            if place < life.cancelled or event.process != life.process:
                continue
            story = [p for p in delivery_places(history, event.delivery) if p < place]
            kinds = {history.events[p].kind for p in story}
            if Kind.CANCELLED in kinds and not kinds & {Kind.FINISHED, Kind.FAILED}:
                return failed(
                    f"run() was cancelled at {moment(history, life.cancelled)}, which ended the handler of "
                    f"{event.message}, and the message was given back as if it had failed.",
                    witness(history, [*story, life.cancelled, place]),
                    "Does `except BaseException`, or a `finally`, give back what was only cancelled?",
                )
    return None
