"""A connection's end: closed by its owner, after the work, with nothing kept back."""

from __future__ import annotations

from collections.abc import Mapping

from autograder.checks.ledger import after, before, ids, of_process
from autograder.checks.lives import NEVER, Life, Lives, read_lives
from autograder.checks.phrases import counted, delivery_places, moment, some, were, witness
from autograder.checks.registry import guarantee
from autograder.model import Event, History, Kind, Verdict, failed, inconclusive, passed


@guarantee
def connection_closed_cleanly(history: History) -> Verdict:
    """The connection is closed after the last settlement, before the end.

    Judged by what the process did and by what the broker then says. Wrong when a process that was
    sent a signal ends with its connection open, or in the middle of `close()`; when a handler finishes,
    or a settlement fails, after `close()` was called, for a closed connection settles nothing; when the
    broker goes on counting the process as a consumer (a Kafka group does so until the session of a
    member that never said goodbye runs out).

    Tolerated: handlers that are cancelled while the connection closes, at the deadline; ending at
    a second signal without coming back from main, by the signal itself or by `os._exit` in its
    handler; anything once the process was killed.
    """
    lives = read_lives(history)
    closed = 0
    for life in lives.values():
        if not life.signals or not life.connected < life.exited < life.killed:
            continue
        if len(life.signals) > 1 and life.exited < min(life.returned, life.raised):
            continue  # a second signal may end a process just so
        verdict = _not_closed(history, life) or _closed_early(history, life)
        verdict = verdict or _still_counted(history, lives, life)
        if verdict is not None:
            return verdict
        closed += 1
    if not closed:
        return inconclusive("No process was seen to end after a signal.")
    return passed("The connection was closed when all was settled, and before the process ended.")


def _not_closed(history: History, life: Life) -> Verdict | None:
    if life.disconnected < life.exited:
        return None
    what = (
        "in the middle of close()"
        if life.disconnecting < life.exited
        else "with its connection open"
    )
    slip = "Is close() reached on every way out of main, say in a `finally`? And is it awaited?"
    if life.end.startswith("signal"):
        slip = "Is there a handler for this signal? Without one nothing of your code runs any more."
    return failed(
        f"The process ended ({life.end}) at {moment(history, life.exited)} {what}.",
        witness(
            history,
            [life.connected, life.signals[0], life.disconnecting, life.returned, life.exited],
        ),
        slip,
    )


def _closed_early(history: History, life: Life) -> Verdict | None:
    late = after(history.where(Kind.FINISHED, Kind.SETTLE_FAILED), life.disconnecting)
    places = of_process(history, late, life.process)
    if not places:
        return None
    first = history.events[places[0]]
    names = some(history.events[place].message for place in places)
    return failed(
        f"close() was called at {moment(history, life.disconnecting)} while work was in hand that "
        f"could be settled no more: {names}.",
        witness(
            history,
            [*delivery_places(history, first.delivery)[:6], life.signals[0], life.disconnecting],
        ),
        "Is the connection closed to stop receiving? stop_receiving() does that, and keeps it open.",
    )


def _still_counted(history: History, lives: Lives, life: Life) -> Verdict | None:
    said = _broker_after(history, lives, life)
    if said is None or not figures(history.events[said]).get("consumers", 0) > 0:
        return None
    return failed(
        f"The process had ended at {moment(history, life.exited)}, and at {moment(history, said)} the "
        "broker still counted it as a consumer.",
        witness(history, [life.disconnecting, life.disconnected, life.exited, said]),
        "Is close() awaited to its end?",
    )


@guarantee
def buffered_messages_are_returned(history: History) -> Verdict:
    """Once it has ended, the broker has every unfinished message back.

    So the next process can begin with them at once. The client receives ahead of you: at any moment
    it holds messages that you have not taken, and perhaps some that you have taken and not begun.
    Judged by the broker's own counts, as soon as the process is gone. Wrong when messages are still
    out with the dead process, waiting for a lease to run out (JetStream's `ack_wait`, a session on
    Kafka), or when fewer wait than were left unfinished: some were settled for good unread.
    """
    lives = read_lives(history)
    seen = ""
    for life in lives.values():
        said = _broker_after(history, lives, life)
        if not life.signals or said is None or not life.exited < life.killed:
            continue
        left = _unfinished_by(history, said)
        counts = figures(history.events[said])
        waiting = counts.get("waiting", -1)
        if not left or waiting < 0:
            continue
        verdict = _kept_back(history, life, said, counts, left)
        if verdict is not None:
            return verdict
        seen = (
            f"{counted(len(left), 'message')} nobody had finished waited with the broker at once."
        )
    return (
        passed(seen) if seen else inconclusive("No process was seen to leave messages unfinished.")
    )


def _kept_back(
    history: History, life: Life, said: int, counts: Mapping[str, int], left: frozenset[str]
) -> Verdict | None:
    still_out = max(counts.get("unsettled", 0), 0)
    if still_out or counts.get("consumers", 0) > 0:
        what = f"{counted(still_out, 'message')} {were(still_out)} still out with it"
        if not still_out:
            what = "its partitions were still its own"
        return failed(
            f"The process had ended at {moment(history, life.exited)}; at {moment(history, said)} {what}, "
            "and nobody else gets them before a lease runs out.",
            witness(
                history, [life.signals[0], life.disconnecting, life.disconnected, life.exited, said]
            ),
            "Is close() awaited on every way out? It gives back what was received and not settled.",
        )
    waiting = counts["waiting"]
    if waiting < len(left):
        gone = [
            place
            for place in of_process(history, history.where(Kind.ACK, Kind.GIVE_UP), life.process)
            if history.events[place].message in left
        ]
        return failed(
            f"{counted(len(left), 'message')} {were(len(left))} not finished when the process had ended, "
            f"and only {waiting} of them {were(waiting)} with the broker: {some(sorted(left))}.",
            witness(history, [life.signals[0], *gone[:4], life.exited, said]),
            "At the end, is what nobody has begun acked or given up, instead of given back?",
        )
    return None


def _broker_after(history: History, lives: Lives, life: Life) -> int | None:
    """What the broker said when this process was gone and the next had not begun."""
    if life.exited == NEVER:
        return None
    following = [other.began for other in lives.values() if other.began > life.exited]
    said = before(after(history.places[Kind.BROKER], life.exited), min(following, default=NEVER))
    return said[0] if said else None


def figures(event: Event) -> dict[str, int]:
    """The counts of a `BROKER` event: `waiting=3 unsettled=0 consumers=0`; -1: it cannot tell."""
    pairs = (word.partition("=") for word in event.detail.split())
    return {name: int(text) for name, _, text in pairs if text.lstrip("-").isdigit()}


def _unfinished_by(history: History, place: int) -> frozenset[str]:
    """Messages confirmed by then that nobody had finished, nor failed for good."""
    events = history.events
    confirmed = {events[p].message for p in before(history.places[Kind.CONFIRMED], place)}
    finished = {events[p].message for p in before(history.places[Kind.FINISHED], place)}
    hopeless = {
        events[p].message
        for p in before(history.places[Kind.FAILED], place)
        if events[p].detail == "permanent"
    }
    return frozenset(confirmed & ids(history, Kind.CONFIRMED)) - finished - hopeless
