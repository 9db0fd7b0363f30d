"""Loss and invention: every message is handled or still there, and no other is."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from autograder.checks.expectations import Expectation, read_expectations, stood_still
from autograder.checks.ledger import (
    CALLS,
    ENDS,
    FINAL,
    LONGEST_DELAY_S,
    after,
    before,
    delay_s,
    ids,
    messages,
    unfinished,
)
from autograder.checks.lives import Life, read_lives
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
from autograder.checks.slips import MY_OWN, not_written, settled_again
from autograder.checks.standstill import startable
from autograder.checks.storms import MANY, is_outage, raised_lately, storm
from autograder.model import Event, History, Kind, Verdict, Wait, failed, inconclusive, passed

_SETTLED_TWICE = "AlreadySettled"  # what `run()` raised


@guarantee
def no_message_is_lost(history: History) -> Verdict:
    """Every confirmed message is handled or still waits with the broker.

    Wrong when a message was settled for good (acked, or given up) and no handler ever finished it;
    when the broker has nothing left of a message that was never finished; when messages were left
    waiting by a pool that stood still, or that ended although nobody had asked it to; when a
    message is given back again and again and never handled; when a handler is called with a message
    that nobody published.

    Tolerated: handling a message twice (the broker promises at least once); giving one up after
    `Permanent`, where there are no dead letters, and else its lying among them; messages that wait with the broker after a stop, a kill or a cancelled run; a
    message published and never confirmed may appear or not. A message acked unfinished that the
    broker still counts as its own is not lost yet: Kafka commits after `ack()` returned, and what
    lies above the committed offset is delivered again. Time that ran out is no loss.
    """
    confirmed = messages(history)
    strangers = ids(history, Kind.STARTED) - confirmed - {""}
    if strangers and (invented := strangers - ids(history, Kind.PUBLISHED)):
        return _invented(history, invented)
    if not confirmed:
        return inconclusive("No message was confirmed by the broker.")
    undone = unfinished(history)
    if undone:
        return (
            _lost(history, confirmed, undone)
            or _left_waiting(history, confirmed, undone)
            or _passed_on(history, undone)
            or _still_there(history, confirmed, undone)
        )
    if history.truncated:
        return inconclusive("Time ran out before the run was complete.")
    return passed(
        f"All {counted(len(confirmed), 'confirmed message')} reached the end of the work."
    )


def _invented(history: History, invented: frozenset[str]) -> Verdict:
    first = min(
        place for place in history.places[Kind.STARTED] if history.events[place].message in invented
    )
    name = history.events[first].message
    return failed(
        f"The handler was called with {counted(len(invented), 'message')} that nobody published: "
        f"{some(sorted(invented))}.",
        witness(history, message_places(history, name)),
        "Is a message made up, or changed, between the source and the handler?",
    )


def _lost(history: History, confirmed: frozenset[str], undone: frozenset[str]) -> Verdict | None:
    number, suspects = _gone_for_good(history, confirmed, undone)
    if not number:
        return None
    known = history.of(Kind.CONFIRMED, Kind.LETTER_PUT)
    order = [event.message for event in known if event.message in suspects]
    story = message_places(history, order[0])
    where = _where(history, confirmed, suspects) if number == len(suspects) else ", out of these"
    return failed(
        f"{number} of {counted(len(confirmed), 'confirmed message')} {were(number)} never finished "
        f"and will not come back{where}: {some(order)}.",
        witness(history, [*story, *_killed_in_hand(history, suspects)]),
        _slip_of_loss(history, history.at(story)),
    )


def _gone_for_good(
    history: History, confirmed: frozenset[str], undone: frozenset[str]
) -> tuple[int, frozenset[str]]:
    """How many are lost, and which they may be: the broker's counters decide where it has them.

    A message that was finished, and that nobody acked or gave up, must still be there as well.
    Without counters the calls decide: those that returned.
    """
    settled = _settled_for_good(history) & undone
    waiting, unsettled = history.broker.waiting, history.broker.unsettled
    if waiting < 0:
        drained = any(each.wait == Wait.DRAINED for each in stood_still(history))
        lost = undone if drained else settled
        return len(lost), lost
    called = ids(history, Kind.ACK) | ids(history, Kind.GIVE_UP)
    left = waiting + max(unsettled, 0)  # Kafka knows no delivery: all it has not committed waits
    gone = len(undone | (confirmed - called)) - left
    suspects = settled or (undone & called) or undone
    return max(0, min(gone, len(suspects))), suspects


def _settled_for_good(history: History) -> frozenset[str]:
    """Messages with an ack() or nack(requeue=False) that returned."""
    events = history.events
    calls = {events[p].delivery: events[p].message for p in history.where(*FINAL)}
    settled = {events[p].delivery for p in history.places[Kind.SETTLED]}
    return frozenset(text for delivery, text in calls.items() if delivery in settled)


def _killed_in_hand(history: History, lost: frozenset[str]) -> list[int]:
    """The faults that ended processes while they had lost messages in hand."""
    lives = read_lives(history)
    processes = {e.process for e in history.of(Kind.TAKEN) if e.message in lost}
    kills = [lives[process].killed for process in processes]
    return [place for place in kills if place < len(history.events)]


def _where(history: History, confirmed: frozenset[str], lost: frozenset[str]) -> str:
    """Which part of the stream is missing, if it is a part that tells something."""
    if len(lost) == len(confirmed) or len(lost) == 1:
        return ""
    order = list(dict.fromkeys(event.message for event in history.of(Kind.CONFIRMED)))
    if set(order[: len(lost)]) == lost:
        return f" (the first {len(lost)})"
    if set(order[-len(lost) :]) == lost:
        return f" (the last {len(lost)})"
    return ""


def _slip_of_loss(history: History, story: tuple[Event, ...]) -> str:
    """What had become of the handler when the message was settled."""
    kinds = {event.kind for event in story}
    if Kind.LETTER_TAKEN in kinds:
        return "Is a letter acked before its message is confirmed, and the process killed between?"
    if Kind.DEAD_LETTER in kinds:
        return "Is a message acked although its letter was not confirmed?"
    state, call, lease, takes = "", Kind.TAKEN, None, 0
    for event in story:
        takes += event.kind is Kind.TAKEN
        if event.kind in CALLS:
            call = event.kind
            if event.kind in FINAL:
                break
        elif event.kind in {Kind.LEASE_TAKEN, Kind.LEASE_REFUSED}:
            lease = event.kind
        elif event.kind in {Kind.TAKEN, Kind.STARTED, *ENDS}:
            state = event.kind
    acked: dict[str, str] = {
        Kind.TAKEN: "Is a message acked when it is taken, before its handler has run?",
        Kind.STARTED: "Does ack() run beside the handler instead of after it?",
        Kind.FAILED: "Does ack() sit in a `finally`, where it follows a failure too?",
        Kind.CANCELLED: "Is a message acked although its handler was cancelled?",
    }
    given_up: dict[str, str] = {
        Kind.TAKEN: "Are messages that never started given up instead of given back?",
        Kind.FAILED: "Is every failure treated as permanent, the transient ones too?",
        Kind.CANCELLED: "Is a cancelled handler treated as a permanent failure?",
    }
    if lease is Kind.LEASE_REFUSED and state is Kind.TAKEN and call in FINAL:
        return (
            "Is a message whose lease somebody else holds settled for good, instead of given back?"
        )
    if call is Kind.ACK and state is Kind.TAKEN and takes > 1 and history.places[Kind.COMMITTED]:
        return "Is a mark that says `done` committed in another transaction than the work?"
    slips = {Kind.ACK: acked, Kind.GIVE_UP: given_up}.get(call, {})
    return slips.get(state, "Is a message taken from the source and then forgotten?")


def _left_waiting(
    history: History, confirmed: frozenset[str], undone: frozenset[str]
) -> Verdict | None:
    """Messages nobody touched, because the pool stood still or went away unasked."""
    lives = read_lives(history)
    count = (
        f"{len(undone)} of {counted(len(confirmed), 'confirmed message')} {were(len(undone))} "
        "left waiting"
    )
    for each in stood_still(history):
        if each.place < lives[each.process].told and not each.held:
            words = "its event loop was blocked" if each.wait == Wait.BLOCKED else "the pool stood"
            return failed(
                f"{count}: {words} from about {moment(history, each.place)} on, with "
                f"{each.in_hand} in hand and {counted(each.busy, 'handler')} at work.",
                witness(history, _why_waiting(history, undone, each.place)),
                _slip_of_standing(history, each, undone),
            )
    last = lives.last
    if last is not None and last.over < last.told:
        return failed(
            f"{count}: {_how_it_ended(history, last)} at {moment(history, last.over)}, although "
            "nobody had asked it to stop.",
            witness(history, _why_ended(history, undone, last.over)),
            _slip_of_ending(history, last),
        )
    return None


def _passed_on(history: History, undone: frozenset[str]) -> Verdict | None:
    """A message that went back and forth between pool and broker until the run was ended for it."""
    if storm(history) is None:
        return None
    untried = undone - ids(history, Kind.STARTED)
    takes = Counter(e.message for e in history.of(Kind.TAKEN) if e.message in untried)
    for message, times in takes.most_common(1):
        last = raised_lately(history, message)
        if times <= MANY or is_outage(history, last):
            return None
        said = f" The last exception: {history.events[last].detail}." if last is not None else ""
        story = message_places(history, message)
        first = [] if last is None else after(history.places[Kind.RAISED], story[0])[:1]
        return failed(
            f"{message} was taken {times} times and never handled.{said}",
            witness(history, [*story[:7], *first]),
            _slip_of_a_storm(history, message, raised=last is not None),
        )
    return None


def _slip_of_a_storm(history: History, message: str, *, raised: bool) -> str:
    if message in ids(history, Kind.LEASE_REFUSED):
        return "Is a message given back without a `delay_s` while somebody else holds its lease?"
    if raised:
        return MY_OWN
    if not history.places[Kind.STARTED]:
        return "Is the message given back before `handle` is called at all?"
    return "Is a message given back because no worker is free for it, instead of kept in hand?"


def _why_waiting(history: History, undone: frozenset[str], place: int) -> list[int]:
    """The story of a message that is stuck in the pool's hands; else the pool's last signs of life."""
    events = history.events
    takes = before(history.places[Kind.TAKEN], place)
    stuck = (events[take] for take in takes if events[take].message in undone)
    for event in islice(stuck, 20):  # looking at more of them would tell no more
        story = before(delivery_places(history, event.delivery), place)
        if not any(events[each].kind is Kind.SETTLED for each in story):
            return [*story[-6:], place]
    return _last_signs(history, place)


def _why_ended(history: History, undone: frozenset[str], end: int) -> list[int]:
    """The same; of a message that was settled twice, its story, for that is what ended the run."""
    if history.events[end].detail.startswith(_SETTLED_TWICE):
        return [*_settled_twice(history, end)[-6:], end]
    return _why_waiting(history, undone, end)


def _settled_twice(history: History, end: int) -> list[int]:
    """The story of the last delivery that was settled a second time before this place."""
    twice = before(history.places[Kind.SETTLED_TWICE], end)
    return [
        place
        for last in twice[-1:]
        for place in before(delivery_places(history, history.events[last].delivery), end)
    ]


def _last_signs(history: History, place: int) -> list[int]:
    """The last few things the pool did before this place, what failed first, and the place."""
    signs = before(history.where(Kind.TAKEN, Kind.STARTED, *ENDS, *CALLS), place)
    failures = before(history.places[Kind.FAILED], place)
    return [*failures[:1], *signs[-6:], place]


def _slip_of_standing(history: History, each: Expectation, undone: frozenset[str]) -> str:
    if each.wait == Wait.BLOCKED:
        return "Is there a call that blocks the thread (time.sleep, a lock, a loop without await)?"
    delays = [delay_s(e) for e in history.of(Kind.REQUEUE) if e.message in undone]
    if delays and max(delays) > LONGEST_DELAY_S and not each.in_hand:
        return f"Is a message given back with a delay of {max(delays):g} s? It waits that long."
    if startable(history, each) > each.figures.get("buffered", 0):
        return "Is a message taken and put where no living worker will ever get it?"
    if each.in_hand > each.busy:
        return "Is a message whose handler failed neither acked nor nacked?"
    return "Has the loop that takes messages ended, or does it wait for a slot nobody gives back?"


def _slip_of_ending(history: History, life: Life) -> str:
    if life.raised == life.over:
        event = history.events[life.over]
        if event.detail.startswith(_SETTLED_TWICE) and (
            story := _settled_twice(history, life.over)
        ):
            return settled_again(history.at(story))
        if slip := not_written(event):
            return slip
        return "Can an exception, of a handler or of your own code, leave run()?"
    if life.returned == life.over:
        return "Does run() return when there is nothing to take for a moment?"
    return "Does something end the process: sys.exit, os._exit?"


def _how_it_ended(history: History, life: Life) -> str:
    event = history.events[life.over]
    if event.kind is Kind.RUN_RAISED:
        return f"run() raised {first_line(event.detail, 'an exception')}"
    if event.kind is Kind.RUN_RETURNED:
        return "run() returned"
    return f"the process ended ({event.detail or 'no status'})"


def _still_there(history: History, confirmed: frozenset[str], undone: frozenset[str]) -> Verdict:
    """Undone, and nothing says that the student is to blame: still the broker's, or unknown."""
    if history.truncated or any(e.wait != Wait.MET for e in read_expectations(history)):
        return inconclusive(
            f"{counted(len(undone), 'message')} of {len(confirmed)} still waited when the run ended."
        )
    finished = len(confirmed) - len(undone)
    if not finished and history.broker.waiting < 0:
        return inconclusive("No message was finished, and the broker cannot tell what it has left.")
    return passed(f"{finished} were finished; {len(undone)} still wait with the broker.")
