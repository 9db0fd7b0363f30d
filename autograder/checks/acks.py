"""Acks, and what else may be said to the broker when: not before the work is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autograder.checks.ledger import ENDS, first_place
from autograder.checks.lives import NEVER, read_lives
from autograder.checks.phrases import counted, delivery_places, some, were, witness
from autograder.checks.registry import guarantee
from autograder.model import History, Kind, Verdict, failed, inconclusive, passed

_DONE = "though its handler had finished it"
_AT_WORK = "while its handler was running"
_UNTOUCHED = "though no handler had begun with it"
_SLIPS = {
    _DONE: "Does something between the handler's return and ack(), a look at `stop` perhaps, choose nack()?",
    _AT_WORK: "Does the stop, or a timeout, give a message back and let its handler go on?",
    _UNTOUCHED: "Is a message given up because its id was seen before? A delivery is a message of its own.",
}


@guarantee
def ack_follows_work(history: History) -> Verdict:
    """A message is acked only after its handler has finished.

    Wrong when `ack()` is called for a delivery whose handler was never started, or is still
    running. An acked message is gone from the broker (AMQP 0-9-1 `basic.ack`, JetStream `+ACK`,
    Kafka: below the committed offset), so a crash between ack and work loses it.

    The call tells what became of a message once its handler has ended. So it is wrong as well to
    give back what is being handled, to give up what no handler has begun, and to give back or up
    what a handler has finished: done work is acked.

    Not judged here: an ack after the handler failed or was cancelled, and anything settled after
    run() itself was cancelled; see `failed_work_is_not_acked`. Each delivery counts by itself: that
    another delivery of the same message was finished excuses nothing. An ack that came to nothing
    (`SettleFailed`) counts, since the call was the mistake.
    """
    events, acks = history.events, history.places[Kind.ACK]
    unfit = _unfit(history)
    if unfit:
        return _said_otherwise(history, unfit)
    if not acks:
        return inconclusive("Nothing was acked.")
    finished = first_place(history, Kind.FINISHED)
    early = [place for place in acks if finished.get(events[place].delivery, NEVER) > place]
    if early:
        early_here = _of_unended_work(history, early)
        if early_here:
            return _early(history, early_here, len(acks))
    if len(early) == len(acks):
        return inconclusive("No ack of finished work was seen.")
    return passed(f"{counted(len(acks) - len(early), 'ack')}, each after its handler had finished.")


def _of_unended_work(history: History, acks: Sequence[int]) -> list[int]:
    """Acks of handlers that had not ended in any way, before run() was cancelled."""
    failures, cancels = first_place(history, Kind.FAILED), first_place(history, Kind.CANCELLED)
    lives = read_lives(history)
    found = []
    for place in acks:
        event = history.events[place]
        ended = min(failures.get(event.delivery, NEVER), cancels.get(event.delivery, NEVER))
        if ended > place and lives[event.process].cancelled > place:
            found.append(place)
    return found


def _unfit(history: History) -> dict[int, str]:
    """Where something was given back or up that should not be, and how its handler stood then."""
    calls = history.where(Kind.REQUEUE, Kind.GIVE_UP)
    if not calls:
        return {}
    lives = read_lives(history)
    started = first_place(history, Kind.STARTED)
    ends = {kind: first_place(history, kind) for kind in ENDS}
    found = {}
    for place in calls:
        event = history.events[place]
        ended = {kind for kind in ENDS if ends[kind].get(event.delivery, NEVER) < place}
        if lives[event.process].cancelled < place:
            continue
        if Kind.FINISHED in ended:
            found[place] = _DONE
        elif not ended and started.get(event.delivery, NEVER) < place:
            found[place] = _AT_WORK
        elif not ended and event.kind is Kind.GIVE_UP:
            found[place] = _UNTOUCHED
    return found


def _said_otherwise(history: History, unfit: Mapping[int, str]) -> Verdict:
    first = min(unfit)
    event, how = history.events[first], unfit[first]
    alike = [history.events[place].message for place, each in unfit.items() if each == how]
    said = "given back" if event.kind is Kind.REQUEUE else "given up"
    return failed(
        f"{counted(len(alike), 'message')} {were(len(alike))} {said} {how}: {some(alike)}.",
        witness(history, delivery_places(history, event.delivery)),
        _SLIPS[how],
    )


def _early(history: History, early: Sequence[int], acks: int) -> Verdict:
    started = first_place(history, Kind.STARTED)
    deliveries = [history.events[place].delivery for place in early]
    beside = [
        d for d, place in zip(deliveries, early, strict=True) if started.get(d, NEVER) < place
    ]
    where = "while the handler was running" if beside else "before the handler had begun"
    if beside and len(beside) < len(early):
        where = "before the handler had finished"
    slip = (
        "Is the handler started as a task, and ack() called without waiting for it?"
        if beside
        else "Is ack() called when the message is taken, instead of after `await handle(message)`?"
    )
    names = some(history.events[place].message for place in early)
    return failed(
        f"{len(early)} of {counted(acks, 'ack')} came {where}: {names}.",
        witness(history, delivery_places(history, (beside or deliveries)[0])),
        slip,
    )
