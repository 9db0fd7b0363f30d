"""What is said to the broker about work on a payment or a charge, where it is not what the work came to."""

from __future__ import annotations

from autograder.checks.ledger import CALLS, ENDS, after, before, ids
from autograder.checks.lives import read_lives
from autograder.checks.phrases import delivery_places, message_places
from autograder.model import History, Kind


def wrong_answers(history: History, failed_for_good: set[str]) -> list[tuple[int, str, str]]:
    """Calls that do not say what became of the work, what did, and the likeliest slip."""
    leased = ids(history, Kind.LEASE_TAKEN)
    hopeless = failed_for_good - ids(history, Kind.FINISHED)
    done = {e.delivery for e in history.of(Kind.FINISHED) if e.message in leased}
    found = []
    for place in history.where(*CALLS):
        call = history.events[place]
        if call.delivery in done and call.kind is not Kind.ACK:
            found.append(
                (place, "had returned under its lease", _slip_after_charge(history, place))
            )
        elif call.message in hopeless and call.kind is Kind.ACK:
            slip = (
                "Is `Permanent` answered with ack()? nack(requeue=False) says that it is given up."
            )
            found.append((place, "had raised `Permanent`", slip))
        elif call.kind is Kind.REQUEUE and _in_vain_for_good(history, place):
            slip = "Is `Permanent` caught before the other exceptions, so that it is given up?"
            found.append((place, "had raised `Permanent`", slip))
    return found


def _slip_after_charge(history: History, call: int) -> str:
    """What came between the end of the handler and the answer."""
    message = history.events[call].message
    since = [
        event
        for event in history.at(before(message_places(history, message), call))[-4:]
        if event.process == history.events[call].process
    ]
    if any(event.kind is Kind.LEASE_LOST for event in since):
        return (
            "Does the StoreGone of a release reach the `except` that gives back? The charge is done: put "
            "`with suppress(StoreGone)` around the release."
        )
    if any(event.kind is Kind.LEASE_RELEASED and event.detail == "no" for event in since):
        return "Is the answer made of what the release says? The charge is done, whoever holds the lease."
    return "Is a message given back, or given up, although its handler had returned?"


def _in_vain_for_good(history: History, call: int) -> bool:
    """Whether the handler of this delivery raised `Permanent`, and nothing else has gone wrong since.

    After a stop whatever is in hand may go back.
    """
    events, lives = history.events, read_lives(history)
    ends = before(delivery_places(history, events[call].delivery), call)
    last = next((place for place in reversed(ends) if events[place].kind in ENDS), None)
    if last is None or events[last].kind is not Kind.FAILED or events[last].detail != "permanent":
        return False
    if lives[events[call].process].stop_set < call:
        return False
    return not before(after(history.where(Kind.RAISED, Kind.COMMIT_LOST), last), call)
