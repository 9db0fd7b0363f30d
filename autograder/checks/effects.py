"""Effects: what the work has left in the database, counted by the examiner and by nobody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from autograder.checks.answers import wrong_answers
from autograder.checks.expectations import read_expectations, stood_still
from autograder.checks.ledger import CALLS, FINAL, after, before, ids
from autograder.checks.lives import NEVER, read_lives
from autograder.checks.phrases import counted, failure, message_places, moment, some, were, witness
from autograder.checks.registry import guarantee
from autograder.checks.settlement import settled_twice
from autograder.checks.slips import MY_OWN
from autograder.checks.storms import Endless, given_back_for_ever
from autograder.model import Event, History, Kind, Verdict, Wait, failed, inconclusive, passed

_UNSEEN = "Nobody looked into the database."


@guarantee
def effect_happens_once(history: History) -> Verdict:
    """A payment is booked once, however often its message comes.

    Wrong when the database holds more than one row for one payment: two deliveries of one message
    were both booked, one after the other, at the same time, or before and after a crash. Wrong, too,
    when it holds a payment that nobody published, or one whose every attempt ended with `Permanent`:
    nothing of an attempt that failed is booked.

    Two payments under one id with different amounts are the matter of `same_id_other_payload_is_refused`.
    A message that came once proves nothing, so some have to come again; whether a payment is there at
    all is judged by `distinct_messages_are_not_swallowed` and `failed_attempt_can_be_retried`.
    """
    if not history.places[Kind.COUNTED]:
        return inconclusive(_UNSEEN)
    rows = _rows(history)
    strangers = sorted({message for message, _ in rows} - ids(history, Kind.PUBLISHED))
    if strangers:
        return failed(
            f"{counted(len(strangers), 'payment')} {were(len(strangers))} booked that nobody "
            f"published: {some(strangers)}.",
            witness(history, _effect_places(history, strangers)),
            "Is the id of the row made up, or cut short?",
        )
    hopeless = _hopeless(history) - ids(history, Kind.FINISHED)
    half = sorted(message for message in {m for m, _ in rows} & hopeless)
    if half:
        return failed(
            f"{counted(len(half), 'payment')} {were(len(half))} booked although the handler had raised "
            f"`Permanent`: {some(half)}.",
            witness(history, _story(history, half[0])),
            "Is `Permanent` caught inside the transaction? Its block then ends well, and commits.",
        )
    twice = {message: times for (message, _), times in rows.items() if times > 1}
    if twice:
        return _twice(history, twice)
    takes = Counter(event.message for event in history.of(Kind.TAKEN))
    again = [message for message, _ in rows if takes[message] > 1]
    if not again:
        return inconclusive("No payment came twice and was booked.")
    return passed(f"{counted(len(again), 'payment')} came more than once; each is booked once.")


def _twice(history: History, twice: Mapping[str, int]) -> Verdict:
    first = min(twice, key=lambda message: message_places(history, message)[0])
    times = twice[first]
    others = f", and {counted(len(twice) - 1, 'other')} more than once" if len(twice) > 1 else ""
    return failed(
        f"{first} is booked {times} times{others}.",
        witness(history, _story(history, first)),
        _slip_of_twice(history, first),
    )


def _slip_of_twice(history: History, message: str) -> str:
    """How the attempts lay to one another."""
    attempts = [e for e in history.about(message) if e.kind in {Kind.STARTED, *_ENDS}]
    starts = [event for event in attempts if event.kind is Kind.STARTED]
    if any(event.kind is Kind.FAILED for event in attempts):
        return "Is the payment of an attempt that failed committed all the same?"
    if _in_two_processes_at_once(history, message):
        return (
            "Do two consumers look for the id before either has written it? Neither sees what the other "
            "keeps in memory, a lock or a set: let the database decide."
        )
    if len({event.process for event in starts}) > 1:
        return (
            "Is what was booked remembered in another transaction than the payment itself, or only "
            "in memory?"
        )
    running: set[int] = set()
    for event in attempts:
        if event.kind is Kind.STARTED:
            if running:
                return (
                    "Do two deliveries look for the id before either has written it? Let the "
                    "database decide: INSERT ... ON CONFLICT DO NOTHING."
                )
            running.add(event.delivery)
        else:
            running.discard(event.delivery)
    return "What tells the second delivery that the first was booked?"


def _in_two_processes_at_once(history: History, message: str) -> bool:
    """Whether a handler began while another process, which lived, was inside its own."""
    lives = read_lives(history)
    running: dict[int, int] = {}  # delivery -> process
    for place in message_places(history, message):
        event = history.events[place]
        if event.kind is Kind.STARTED:
            others = [lives[each] for each in running.values() if each != event.process]
            if any(min(each.killed, each.exited) > place for each in others):
                return True
            running[event.delivery] = event.process
        elif event.kind in _ENDS:
            running.pop(event.delivery, None)
    return False


@guarantee
def failed_attempt_can_be_retried(history: History) -> Verdict:
    """A payment whose first attempt failed is booked by a later one.

    Wrong when a payment was tried in vain (the handler raised something else than `Permanent`, was
    cancelled, or the process was killed that had it in hand) and is settled for good without being booked: an earlier
    attempt left a mark that says "done", or the failure was acked or given up. Wrong, too, when such a
    message comes again and again and is never tried again.

    Not judged: payments that still wait with the broker when the run ends, and those that failed with
    `Permanent`, which are given up.
    """
    if not history.places[Kind.COUNTED]:
        return inconclusive(_UNSEEN)
    booked = {message for message, _ in _rows(history)}
    tried = _tried_in_vain(history) - _hopeless(history)
    if not tried:
        return inconclusive("No attempt failed.")
    lost = sorted(tried - booked)
    settled = _settled_for_good(history)
    gone = [message for message in lost if message in settled]
    if gone:
        call = settled[gone[0]]
        word = "acked" if call.kind is Kind.ACK else "given up"
        return failed(
            f"{counted(len(gone), 'payment')} {were(len(gone))} tried in vain, then {word}, and "
            f"never booked: {some(gone)}.",
            witness(history, _story(history, gone[0])),
            _slip_of_lost_retry(history, gone[0], call),
        )
    if lost and _stands(history):
        return failed(
            f"{counted(len(lost), 'payment')} {were(len(lost))} tried in vain and never tried "
            f"again: {some(lost)}.",
            witness(history, _story(history, lost[0])),
            "Does the mark of a failed attempt stay, so that every later one is taken for a duplicate?",
        )
    done = len(tried & booked)
    if not done:
        return inconclusive("Nothing that was tried in vain was booked before the run ended.")
    return passed(f"{counted(done, 'payment')} failed first and {were(done)} booked later.")


def _slip_of_lost_retry(history: History, message: str, call: Event) -> str:
    if call.kind is Kind.GIVE_UP:
        return "Is every failure treated as permanent?"
    story = [each.kind for each in history.about(message) if each.delivery == call.delivery]
    if Kind.FAILED in story:
        return "Is a message acked although its handler raised?"
    return (
        "Is the message marked as done in another transaction than the payment, before it, or is its "
        "`attempt` taken for such a mark?"
    )


@guarantee
def distinct_messages_are_not_swallowed(history: History) -> Verdict:
    """Two messages are two payments, however much they look alike.

    Wrong when a message is acked, no attempt of it failed, and the database has no row for it: it was
    taken for another one that has the same body, customer or amount, or was taken for a repetition
    because of its `attempt`. The id alone says which message it is.

    Messages that were tried in vain first are the matter of `failed_attempt_can_be_retried`.
    """
    if not history.places[Kind.COUNTED]:
        return inconclusive(_UNSEEN)
    booked = {message for message, _ in _rows(history)}
    tried = _tried_in_vain(history)
    acked = [m for m, call in _settled_for_good(history).items() if call.kind is Kind.ACK]
    missing = sorted(message for message in acked if message not in booked | tried)
    if missing:
        return failed(
            f"{counted(len(missing), 'message')} of {len(acked)} acked {were(len(missing))} never "
            f"booked: {some(missing)}.",
            witness(history, _story(history, missing[0])),
            _slip_of_swallowed(history, missing[0]),
        )
    if len(booked) < 2:
        return inconclusive("Fewer than two payments were booked.")
    return passed(f"{counted(len(booked), 'different payment')}, each with a row of its own.")


def _slip_of_swallowed(history: History, message: str) -> str:
    if message in ids(history, Kind.STARTED):
        return "Is the message acked although its transaction was not committed?"
    if any(event.kind is Kind.REQUEUE for event in history.about(message)):
        return "Is the mark that says `done` committed before the payment, through `db` instead of `tx`?"
    return (
        "Is the key by which you know a message made of what two messages may share: the body, the "
        "customer, the attempt?"
    )


@guarantee
def same_id_other_payload_is_refused(history: History) -> Verdict:
    """A known id with another payload is given up, not booked.

    Wrong when the database has a row with the second amount: the id was used twice for two payments,
    and nobody noticed. Wrong when the second message is acked as if it were a repetition: the mistake
    of the producer then disappears. `nack(requeue=False)` puts it where somebody looks.

    Wrong when it is given back again and again instead: it comes again as it is.

    And wrong when a message is given up for which there is no other payload, and whose handler never raised
    `Permanent`: a repetition was taken for a mistake.
    """
    if not history.places[Kind.COUNTED]:
        return inconclusive(_UNSEEN)
    second = _second_payloads(history)
    harmless = [
        place
        for place in history.places[Kind.GIVE_UP]
        if history.events[place].message not in second.keys() | _hopeless(history)
        and history.events[place].message in ids(history, Kind.FINISHED)
    ]
    if harmless:
        first_one = history.events[harmless[0]].message
        names = sorted({history.events[place].message for place in harmless})
        return failed(
            f"{counted(len(names), 'message')} {were(len(names))} given up that came with one payload only: "
            f"{some(names)}.",
            witness(history, _story(history, first_one)),
            "Is a repetition given up? It is done, and is acked. Is a fingerprint another one each time?",
        )
    if not second:
        return inconclusive("No id was used for two payloads.")
    endless = given_back_for_ever(history, {m for m, _ in _rows(history) if m in second})
    if endless is not None:
        return _never_refused(history, second[endless.message][0], endless)
    refused = 0
    for message, (place, first) in second.items():
        others = [
            each
            for each in _effect_places(history, [message])
            if history.events[each].detail != first
        ]
        if others:
            return failed(
                f"{message} was published with two amounts, and the second one is booked, too.",
                witness(history, [place, *_story(history, message)[-6:], *others]),
                "Is the payload compared with that of the message that was booked under this id?",
            )
        late = [
            event
            for event in history.at(after(message_places(history, message), place))
            if event.kind in FINAL
        ]
        if any(event.kind is Kind.ACK for event in late):
            return failed(
                f"{message} was published with two amounts, and the second one was acked.",
                witness(history, [place, *_story(history, message)[-6:]]),
                "Is every known id acked, without a look at what came with it?",
            )
        refused += bool(late)
    if not refused:
        return inconclusive("What came under a known id was not settled before the run ended.")
    return passed(f"{counted(refused, 'message')} with a known id and another amount given up.")


def _never_refused(history: History, place: int, endless: Endless) -> Verdict:
    return failed(
        f"{endless.message} was published with two amounts, and then given back {endless.times} times "
        f"and never given up.{endless.said}",
        witness(history, [place, *endless.last]),
        MY_OWN
        if endless.said
        else "Is another payload given back? It comes again as it is: nack(requeue=False) puts it aside.",
    )


@guarantee
def ack_follows_commit(history: History) -> Verdict:
    """A message is acked only after its payment is committed.

    Wrong when `ack()` has been called for a message whose payment is not in the database at that
    moment: the examiner looks while the process stands still. If the process dies now, the broker has
    forgotten the message and the database has never heard of it.

    A message that was settled because an earlier delivery was booked is right, and so is one that is
    booked and not acked. Not judged here: messages of which an attempt failed, or died with its process,
    before the examiner looked.
    """
    looks = history.places[Kind.COUNTED]
    if not looks:
        return inconclusive(_UNSEEN)
    seen = 0
    for look in looks:
        tried = _tried_in_vain(history, look) | _hopeless(history)
        booked = {history.events[place].message for place in _found_by(history, look)}
        acks = history.at(before(history.places[Kind.ACK], look))
        early = [each for each in acks if each.message not in booked | tried]
        if early and _stood_at_ack(history, look, early):
            first = early[0].message
            names = {each.message for each in early}
            return failed(
                f"{counted(len(names), 'message')} {were(len(names))} acked at "
                f"{moment(history, look)} and not booked: {some(sorted(names))}.",
                witness(history, [*before(_story(history, first), look), look]),
                _slip_of_early_ack(history, early[0]),
            )
        seen += len({each.message for each in acks} & booked)
    if not seen:
        return inconclusive("Nothing that was acked was in the database when the examiner looked.")
    return passed(f"{counted(seen, 'acked payment')} found committed by the examiner.")


def _slip_of_early_ack(history: History, ack: Event) -> str:
    if ack.delivery in {event.delivery for event in history.of(Kind.STARTED)}:
        return "Does ack() come before the end of the `async with db.transaction()` block?"
    return "Is a message taken for a repetition, and acked, before its payment is committed?"


def _stood_at_ack(history: History, look: int, early: Sequence[Event]) -> bool:
    """Whether the missing payment is one of work, and not of a message taken for a repetition."""
    stood = [history.events[p].detail for p in before(history.places[Kind.BREAK], look)][-1:]
    started = ids(history, Kind.STARTED)
    return stood == [str(Kind.ACK)] or any(each.message in started for each in early)


@guarantee
def every_delivery_is_settled(history: History) -> Verdict:
    """Every delivery is settled before run() returns, a repetition too.

    Wrong when run() came back with a delivery that nobody had acked, given back or given up. A repetition
    needs no work and still needs an answer: until then it fills the consumer's window, and the broker
    delivers it again to the next one. Wrong, too, when the answer is another one than the
    work's: anything but `ack()` after a handler that returned under a lease, for nothing undoes it and no
    commit is to follow; `ack()` for a message of which every attempt has raised `Permanent`, or giving it
    back for that; and giving back the repetitions of a payment that is booked, again and again.

    Settling one twice is wrong at any time (the port raises `AlreadySettled`). Else not judged: processes that
    were killed, or whose run() was cancelled or raised.
    """
    twice = settled_twice(history)
    if twice is not None:
        return twice
    lives = read_lives(history)
    homes = [each for each in lives.values() if each.returned < min(each.killed, each.cancelled)]
    answered = {event.delivery for event in history.of(*CALLS)}
    ended = {each.process for each in homes}
    takes = [p for p in history.places[Kind.TAKEN] if history.events[p].process in ended]
    open_ones = [place for place in takes if history.events[place].delivery not in answered]
    if open_ones:
        first = history.events[open_ones[0]]
        home = lives[first.process].returned
        story = before(message_places(history, first.message), home)
        return failed(
            f"{len(open_ones)} of {len(takes)} deliveries {were(len(open_ones))} never settled: "
            f"{some(history.events[place].message for place in open_ones)}.",
            witness(history, [*story[-6:], home]),
            "Does a message that was booked before leave your code without an ack?",
        )
    wrong = wrong_answers(history, _hopeless(history))
    if wrong:
        place, was, slip = wrong[0]
        call = history.events[place]
        said = {Kind.ACK: "acked", Kind.REQUEUE: "given back"}.get(call.kind, "given up")
        return failed(
            f"The handler of {call.message} {was}, and the message was then {said}.",
            witness(history, before(message_places(history, call.message), place + 1)[-6:]),
            slip,
        )
    second = _second_payloads(history)
    endless = given_back_for_ever(history, {m for m, _ in _rows(history) if m not in second})
    if endless is not None:
        return failed(
            f"{endless.message} is booked, and its repetition was then given back {endless.times} "
            f"times.{endless.said}",
            witness(history, endless.last),
            MY_OWN if endless.said else "Is a repetition given back? It is done, and is acked.",
        )
    if not takes:
        return inconclusive("No run() that had taken a message came back.")
    return passed(f"All {len(takes)} deliveries were settled.")


# -- what the examiner found

_DULL = frozenset({Kind.PUBLISHED, Kind.CONFIRMED, Kind.HELD, Kind.SETTLED})
_ENDS = (Kind.FINISHED, Kind.FAILED, Kind.CANCELLED)


def _rows(history: History) -> Counter[tuple[str, str]]:
    """How many rows there are for each payment: its message, and what the row says."""
    return Counter((event.message, event.detail) for event in history.of(Kind.EFFECT))


def _effect_places(history: History, messages: Iterable[str]) -> list[int]:
    wanted = set(messages)
    return [p for p in history.places[Kind.EFFECT] if history.events[p].message in wanted]


def _found_by(history: History, look: int) -> list[int]:
    """Where the effects stand that one look, or an earlier one, found."""
    following = after(history.places[Kind.COUNTED], look)
    end = following[0] if following else NEVER
    return [place for place in history.places[Kind.EFFECT] if place < end]


def _story(history: History, message: str) -> list[int]:
    """What became of a message, and what ended the processes that had it; no step that goes without saying."""
    begun = {event.delivery for event in history.about(message) if event.kind is Kind.STARTED}
    places = [
        place
        for place in message_places(history, message)
        if history.events[place].kind not in _DULL
        and not (
            history.events[place].kind is Kind.TAKEN and history.events[place].delivery in begun
        )
    ]
    lives = read_lives(history)
    processes = {history.events[place].process for place in places}
    kills = [lives[process].killed for process in processes]
    return sorted([*places, *(kill for kill in kills if kill < places[-1])] if places else [])


def _tried_in_vain(history: History, until: int = NEVER) -> set[str]:
    """Messages with an attempt that failed, was cancelled, or died with the process that had it."""
    ends = history.at(before(history.where(Kind.FAILED, Kind.CANCELLED), until))
    tried = {event.message for event in ends if failure(event.detail) != "permanent"}
    lives = read_lives(history)
    settled = {event.delivery for event in history.of(Kind.SETTLED)}
    killed = {number for number, life in lives.items() if life.killed < until}
    return tried | {
        event.message
        for event in history.of(Kind.TAKEN)
        if event.process in killed and event.delivery not in settled
    }


def _hopeless(history: History) -> set[str]:
    return {event.message for event in history.of(Kind.FAILED) if event.detail == "permanent"}


def _settled_for_good(history: History) -> dict[str, Event]:
    """Message -> its first ack or give-up that returned."""
    settled = {event.delivery for event in history.of(Kind.SETTLED)}
    calls: dict[str, Event] = {}
    for event in history.of(*FINAL):
        if event.delivery in settled:
            calls.setdefault(event.message, event)
    return calls


def _second_payloads(history: History) -> dict[str, tuple[int, str]]:
    """Message -> where it was published with another payload, and what the first one said."""
    first: dict[str, str] = {}
    second: dict[str, tuple[int, str]] = {}
    for place in history.places[Kind.PUBLISHED]:
        event = history.events[place]
        if event.detail != first.setdefault(event.message, event.detail):
            second.setdefault(event.message, (place, first[event.message]))
    return second


def _stands(history: History) -> bool:
    """Whether the run ended because nothing, or always the same, happened any more."""
    return bool(stood_still(history)) or any(
        each.wait == Wait.STORM for each in read_expectations(history)
    )
