"""Dead letters: who becomes one, in what order things are said, and what that costs others."""

from __future__ import annotations

from collections.abc import Sequence

from autograder.checks.expectations import Expectation, stood_still
from autograder.checks.in_hand import slept_in_hand
from autograder.checks.ledger import CALLS, FINAL, first_place, unfinished
from autograder.checks.letterbook import (
    between,
    unreadable,
)
from autograder.checks.lives import NEVER, Life, read_lives
from autograder.checks.phrases import (
    counted,
    delivery_places,
    first_line,
    message_places,
    moment,
    some,
    were,
    witness,
)
from autograder.checks.registry import guarantee
from autograder.model import (
    NOBODY_ASKED,
    Event,
    History,
    Kind,
    Verdict,
    Wait,
    failed,
    inconclusive,
    passed,
)


@guarantee
def permanent_goes_straight_to_dlq(history: History) -> Verdict:
    """What can never work goes to the dead letters at once.

    That is a message whose handler raised `Permanent`, and one whose body is no JSON. Wrong when it is
    given back although no letter was tried, or settled without one; when a body that is no JSON
    reaches the handler, or ends run().

    Tolerated: giving back after `stop`, or after a letter that the broker did not confirm; the same
    message again after a kill.
    """
    garbage = unreadable(history)
    handled = [e for e in history.of(Kind.STARTED) if e.message in garbage]
    if handled:
        return _handled_garbage(history, handled)
    killed_by = _ended_by_garbage(history, garbage)
    if killed_by is not None:
        return _ended(history, *killed_by)
    hopeless = _hopeless(history, garbage)
    wrong = [place for place in hopeless if _not_written(history, place)]
    if wrong:
        return _not_straight(history, wrong, garbage)
    answered = [p for p in hopeless if _letter_after(history, history.events[p], p)]
    if not answered:
        return inconclusive("Nothing that can never work was seen to its end.")
    return passed(f"{counted(len(answered), 'hopeless delivery')}, each to the dead letters at once.")  # fmt: skip


def _hopeless(history: History, garbage: frozenset[str]) -> list[int]:
    """Where it became clear that a delivery can never work."""
    return [
        place
        for place in history.where(Kind.FAILED, Kind.TAKEN)
        if (
            history.events[place].detail == "permanent"
            if history.events[place].kind is Kind.FAILED
            else history.events[place].message in garbage
        )
    ]


def _letter_after(history: History, event: Event, place: int) -> list[int]:
    return between(history, event.message, place, NEVER, Kind.DEAD_LETTER, process=event.process)


def _settled_at(history: History, event: Event, place: int) -> int:
    """Where this delivery is settled after this place; `NEVER` if it is not."""
    calls = between(history, event.message, place, NEVER, *CALLS, process=event.process)
    return next((p for p in calls if history.events[p].delivery == event.delivery), NEVER)


def _not_written(history: History, place: int) -> bool:
    event = history.events[place]
    call = _settled_at(history, event, place)
    if call == NEVER or between(history, event.message, place, call, Kind.DEAD_LETTER):
        return False
    if history.events[call].kind is Kind.REQUEUE:
        return read_lives(history)[event.process].stop_set > call
    return not between(history, event.message, 0, call, Kind.DEAD_LETTERED)


def _not_straight(history: History, wrong: Sequence[int], garbage: frozenset[str]) -> Verdict:
    event = history.events[wrong[0]]
    said = history.events[_settled_at(history, event, wrong[0])].kind
    what = "given back" if said is Kind.REQUEUE else "settled, and no letter was written"
    why = "is no JSON" if event.message in garbage else "failed for good (permanent)"
    return failed(
        f"{counted(len(wrong), 'hopeless delivery')} {were(len(wrong))} not dead-lettered: "
        f"{event.message} {why} and was {what}.",
        witness(history, delivery_places(history, event.delivery)),
        "Is `Permanent`, or a body that cannot be decoded, tried again like any other failure?"
        if said is Kind.REQUEUE
        else "Is `nack(requeue=False)` taken for a dead letter? The broker drops the message.",
    )


def _handled_garbage(history: History, handled: Sequence[Event]) -> Verdict:
    first = handled[0]
    return failed(
        f"{first.message} is no JSON, and the handler was called with it.",
        witness(history, delivery_places(history, first.delivery)),
        "Is the body decoded before the handler is called?",
    )


def _ended_by_garbage(history: History, garbage: frozenset[str]) -> tuple[Life, Event] | None:
    """A process that came to its end, unasked, with a body in hand that is no JSON."""
    for life in read_lives(history).values():
        if life.raised != life.over or life.over >= life.told:
            continue
        for event in history.of(Kind.TAKEN):
            if event.process == life.process and event.message in garbage:
                place = history.events.index(event)
                if _settled_at(history, event, place) > life.over:
                    return life, event
    return None


def _ended(history: History, life: Life, event: Event) -> Verdict:
    raised = first_line(history.events[life.over].detail, "an exception")
    return failed(
        f"{event.message} is no JSON, and run() raised {raised} at {moment(history, life.over)}.",
        witness(history, [*delivery_places(history, event.delivery), life.over]),
        "Is the body decoded outside of the `try` that guards the handler?",
    )


@guarantee
def dead_letters_are_confirmed_first(history: History) -> Verdict:
    """An unhandled message is settled only after its letter is confirmed.

    And then it is settled. Wrong when `ack()`, or `nack(requeue=False)`, is called for a delivery that no handler finished, and
    `dead_letters.publish` has not returned for that message before. The letter may never arrive: then
    the message is nowhere. Wrong as well: a confirmed letter whose message is given back, or kept in
    hand by a consumer that stands still. It comes again and again, and so does its letter.

    Tolerated: a letter and then no ack, by a kill, a stop or a broken connection.
    """
    finished = first_place(history, Kind.FINISHED)
    confirmed = 0
    wrong = []
    for place in history.where(*FINAL):
        event = history.events[place]
        if finished.get(event.delivery, NEVER) < place:
            continue
        if between(history, event.message, -1, place, Kind.DEAD_LETTERED):
            confirmed += 1
        else:
            wrong.append(place)
    if wrong:
        return _unconfirmed(history, wrong)
    kept = _kept(history)
    if kept is not None:
        return kept
    if not confirmed:
        return inconclusive("No message was settled in favour of its letter.")
    return passed(f"{counted(confirmed, 'message')}, each settled after its letter was confirmed.")


def _unconfirmed(history: History, wrong: Sequence[int]) -> Verdict:
    place = wrong[0]
    event = history.events[place]
    letters = between(history, event.message, -1, place, Kind.DEAD_LETTER)
    later = between(history, event.message, place, NEVER, Kind.DEAD_LETTER)
    what, slip = "no letter of it was ever written", "Is the message given up on a failure, and that is all?"  # fmt: skip
    if letters and history.events[letters[-1]].detail == NOBODY_ASKED:
        what = "its letter was only handed to the connection"
        slip = "Is the letter sent with `publish_nowait`, which nobody confirms?"
    elif letters:
        what = "its letter was not confirmed"
        slip = "Is the message acked although `publish` raised, or without waiting for it?"
    elif later:
        what = "its letter came afterwards"
        slip = "Is the message acked first, and the letter written second?"
    names = some(history.events[each].message for each in wrong)
    return failed(
        f"{counted(len(wrong), 'message')} {were(len(wrong))} settled before the letter was confirmed: "
        f"{names}. When {event.message} was settled, {what}.",
        witness(history, [*delivery_places(history, event.delivery), *letters[-1:], *later[:1]]),
        slip,
    )


def _kept(history: History) -> Verdict | None:
    """A message that the consumer keeps alive although its letter is confirmed."""
    lives = read_lives(history)
    for place in history.places[Kind.DEAD_LETTERED]:
        letter = history.events[place]
        life = lives[letter.process]
        takes = between(history, letter.message, -1, place, Kind.TAKEN, process=letter.process)
        if not takes:
            continue
        delivery = history.events[takes[-1]]
        call = _settled_at(history, delivery, takes[-1])
        back = call != NEVER and history.events[call].kind is Kind.REQUEUE
        if back and place < call < life.told:
            what, end = "was given back all the same", call
        elif call == NEVER and (still := _still_in_hand(history, place, life)) is not None:
            what, end = "was still in hand when nothing moved any more", still
        else:
            continue
        return failed(
            f"The letter of {letter.message} was confirmed at {moment(history, place)}, and the message "
            f"{what}: it will come again, and so will its letter.",
            witness(history, [*delivery_places(history, delivery.delivery), place, end]),
            "Is the message acked once `publish` has returned?",
        )
    return None


def _still_in_hand(history: History, place: int, life: Life) -> int | None:
    """Where the consumer was seen to stand after this place, with something in hand."""
    for each in stood_still(history):
        if each.process == life.process and place < each.place < life.told and each.in_hand:
            return None if each.held else each.place
    return None


@guarantee
def healthy_messages_flow(history: History) -> Verdict:
    """A message that cannot be handled holds up no other.

    Wrong when, after a failure, the consumer stands still, ends, or waits with a failed message in hand
    while messages that nothing is wrong with are left: between the failure and its answer, each time.

    Tolerated: a letter that is not confirmed may be waited for, as long as nothing else can be done
    with its message; anything after a stop or a kill. A pass needs a message that was handled after
    something had failed.
    """
    places = [*history.where(Kind.FAILED, Kind.PUBLISH_FAILED), *_garbage_taken(history)]
    trouble = sorted(p for p in places if history.events[p].detail != Kind.REPUBLISH)
    if not trouble:
        return inconclusive("Nothing failed.")
    lives = read_lives(history)
    left = _healthy_left(history)
    if left:
        for each in stood_still(history):
            if trouble[0] < each.place < lives[each.process].told and not each.held:
                return _held_up(history, each, left, trouble)
        last = lives.last
        if last is not None and trouble[0] < last.over < last.told:
            return _gone(history, last, left, trouble)
    slept = slept_in_hand(history)
    if slept is not None:
        return slept
    later = [p for p in history.places[Kind.FINISHED] if p > trouble[0]]
    if later and not left:
        return passed(f"{counted(len(later), 'message')} handled after the first failure.")
    return inconclusive("Too little happened after the first failure.")


def _garbage_taken(history: History) -> list[int]:
    garbage = unreadable(history)
    return [p for p in history.places[Kind.TAKEN] if history.events[p].message in garbage]


def _healthy_left(history: History) -> list[str]:
    """Messages that nothing is wrong with and that no handler finished."""
    sick = {e.message for e in history.of(Kind.FAILED)} | unreadable(history)
    return sorted(unfinished(history) - sick)


def _held_up(
    history: History, each: Expectation, left: Sequence[str], trouble: Sequence[int]
) -> Verdict:
    cause = history.events[[place for place in trouble if place < each.place][-1]]
    words = "the event loop was blocked" if each.wait == Wait.BLOCKED else "the consumer stood"
    return failed(
        f"{counted(len(left), 'healthy message')} {were(len(left))} left: {words} from about "
        f"{moment(history, each.place)} on, after {cause.message} had failed.",
        witness(history, [*message_places(history, cause.message)[-6:], each.place]),
        "Does something sleep before it gives a message back, instead of asking for a delay?",
    )


def _gone(history: History, life: Life, left: Sequence[str], trouble: Sequence[int]) -> Verdict:
    cause = history.events[[place for place in trouble if place < life.over][-1]]
    event = history.events[life.over]
    how = "returned" if event.kind is Kind.RUN_RETURNED else "ended"
    if event.kind is Kind.RUN_RAISED:
        how = f"raised {first_line(event.detail, 'an exception')}"
    return failed(
        f"{counted(len(left), 'healthy message')} {were(len(left))} left: run() {how} at "
        f"{moment(history, life.over)}, after {cause.message} had failed.",
        witness(history, [*message_places(history, cause.message)[:6], life.over]),
        "Can an exception leave the loop: of the handler, of decoding, or of writing the letter?",
    )
