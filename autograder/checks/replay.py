"""Replaying dead letters: how many, which, and in what order things are said."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from autograder.checks.expectations import stood_still
from autograder.checks.letterbook import between, tasks
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
from autograder.model import Event, History, Kind, Verdict, failed, inconclusive, passed

MANY_TAKES = 50  # of one letter: who gives one back to try it again waits for a broker in between
_NO_ANSWER = re.compile(r"\b(Connection\w*|Timeout)Error\b")  # in an exception, or a traceback


def _replays(history: History) -> list[Life]:
    """The processes that were to replay."""
    lives = read_lives(history)
    known = tasks(history)
    return [life for life in lives.values() if known[life.process].number("limit") < NEVER]


def _of(history: History, life: Life, *kinds: Kind) -> list[int]:
    return [place for place in history.where(*kinds) if history.events[place].process == life.process]  # fmt: skip


@guarantee
def replay_is_bounded(history: History) -> Verdict:
    """A replay moves what it was asked for, no letter twice, and ends.

    That is the `limit` oldest letters, or all that were there when it began. Wrong when more are
    published; when a letter that comes back meanwhile is replayed a second time, so that a message
    which still cannot be handled goes round for ever; when fewer are published, or others than the
    oldest, though none failed; when one is given back and taken again without end; when replay() does
    not return, or raises though nothing failed.

    Tolerated: a second call for a letter after one that the broker did not confirm; anything that a
    kill cut short.
    """
    replays = _replays(history)
    for life in replays:
        for look in (_too_many, _again, _round, _too_few, _not_the_oldest, _broke, _no_end):
            verdict = look(history, life)
            if verdict is not None:
                return verdict
    if not any(_of(history, life, Kind.REPUBLISHED) for life in replays):
        return inconclusive("Nothing was replayed.")
    if not any(life.returned < life.killed for life in replays):
        return inconclusive("No replay came to its end.")
    return passed("Each replay moved what it was asked for, and ended.")


def _sent(history: History, life: Life) -> Counter[str]:
    """How often each message was published, without calls that failed."""
    sent = Counter(history.events[p].message for p in _of(history, life, Kind.REPUBLISH))
    for place in _of(history, life, Kind.PUBLISH_FAILED):
        sent[history.events[place].message] -= 1
    return sent


def _there(history: History, life: Life, *, at_most: bool) -> Counter[str]:
    """The letters that lay there when this process began, by message.

    Nobody knows whether one arrived that was not confirmed, or was taken away without an answer: there
    are that many at most, and without them at least.
    """
    counts: dict[Kind, int] = {Kind.LETTER_PUT: 1, Kind.DEAD_LETTERED: 1}
    counts |= (
        {Kind.PUBLISH_FAILED: 1, Kind.LETTER_SETTLED: -1} if at_most else {Kind.LETTER_ACK: -1}
    )
    there: Counter[str] = Counter()
    for place in history.where(*counts):
        event = history.events[place]
        if place < life.began and event.detail != Kind.REPUBLISH:
            there[event.message] += counts[event.kind]
    return there


def _too_many(history: History, life: Life) -> Verdict | None:
    limit = tasks(history)[life.process].number("limit")
    count = _sent(history, life).total()
    if count <= limit:
        return None
    calls = _of(history, life, Kind.REPUBLISH)
    return failed(
        f"{counted(count, 'message')} {were(count)} published by a replay with limit={limit}.",
        witness(history, [life.began, *calls[:2], *calls[-4:]]),
        "Is `limit` looked at after each letter?",
    )


def _again(history: History, life: Life) -> Verdict | None:
    there = _there(history, life, at_most=True)
    rounds = [name for name, times in _sent(history, life).items() if times > max(1, there[name])]
    if not rounds:
        return None
    story = [p for p in message_places(history, rounds[0]) if p >= life.began]
    return failed(
        f"{counted(len(rounds), 'letter')} that came back during the replay {were(len(rounds))} "
        f"replayed again: {some(rounds)}.",
        witness(history, story[:8]),
        "Does the replay go on until nothing is left, instead of for the letters it found?",
    )


def _round(history: History, life: Life) -> Verdict | None:
    """A letter that is given back and taken again for ever: what was given back is there still."""
    takes = Counter(
        history.events[place].message for place in _of(history, life, Kind.LETTER_TAKEN)
    )
    for name, times in takes.most_common(1):
        if times > MANY_TAKES:
            return failed(
                f"The letter of {name} was taken {times} times by one replay, and given back each time.",
                witness(history, [p for p in message_places(history, name) if p >= life.began][:7]),
                "Does the loop give back what it does not want, and go on until nothing is left?",
            )
    return None


def _too_few(history: History, life: Life) -> Verdict | None:
    if life.returned > life.killed or _of(history, life, Kind.PUBLISH_FAILED, Kind.SETTLE_FAILED):
        return None
    wanted = min(
        tasks(history)[life.process].number("limit"), _there(history, life, at_most=False).total()
    )
    count = len(_of(history, life, Kind.REPUBLISHED))
    if life.returned == NEVER or count >= wanted:
        return None
    return failed(
        f"replay() returned with {count} of {counted(wanted, 'message')} published.",
        witness(history, [*_of(history, life, Kind.LETTER_TAKEN, Kind.REPUBLISHED)[-5:], life.returned]),
        "Does the loop end too early, or are letters left out?",
    )  # fmt: skip


def _not_the_oldest(history: History, life: Life) -> Verdict | None:
    """Asked only where the order is beyond doubt: letters of ours, and no one that was taken before."""
    events = history.events
    if not life.returned < life.killed or _of(
        history, life, Kind.PUBLISH_FAILED, Kind.SETTLE_FAILED
    ):
        return None
    written = [p for p in history.places[Kind.DEAD_LETTERED] if p < life.began]
    taken = history.places[Kind.LETTER_TAKEN]
    back = min(history.places[Kind.LETTER_BACK], default=NEVER)
    if written or any(place < life.began or place > back for place in taken):
        return None
    put = [events[p].message for p in history.places[Kind.LETTER_PUT] if p < life.began]
    sent = {events[p].message for p in _of(history, life, Kind.REPUBLISHED)}
    oldest = put[: len(sent)]
    if sent == set(oldest) or len(put) > len(set(put)):
        return None
    left = [name for name in oldest if name not in sent]
    return failed(
        f"{some(left)} {were(len(left))} left among the dead letters, though younger ones were replayed.",
        witness(history, [*message_places(history, left[0])[:3], *_of(history, life, Kind.REPUBLISHED)[-4:]]),
        "Are letters replayed in the order in which they come?",
    )  # fmt: skip


def _broke(history: History, life: Life) -> Verdict | None:
    """An exception that nothing of the broker's explains: where nobody answers, one may come out."""
    if life.raised == NEVER or life.raised != life.over:
        return None
    told = history.events[life.raised].detail
    excused = _of(history, life, Kind.PUBLISH_FAILED, Kind.SETTLE_FAILED)
    if excused or _NO_ANSWER.search(told):
        return None
    return failed(
        f"replay() raised {first_line(told, 'an exception')}, though nothing had failed.",
        witness(history, [*_of(history, life, Kind.LETTER_TAKEN, Kind.REPUBLISHED)[-5:], life.raised]),
        "Can an exception come out of replay() when no letter is left, or of reading a body or a header?",
    )  # fmt: skip


def _no_end(history: History, life: Life) -> Verdict | None:
    for each in stood_still(history):
        if (
            each.process == life.process
            and each.about_the_end
            and each.place < life.over
            and not each.held
        ):
            return failed(
                f"replay() had not returned at {moment(history, each.place)}, when nothing moved any more.",
                witness(history, [*_of(history, life, Kind.LETTER_TAKEN, Kind.LETTER_ACK)[-5:], each.place]),
                "Does it wait for letters that will never come?",
            )  # fmt: skip
    return None


@guarantee
def replay_publishes_first(history: History) -> Verdict:
    """A letter leaves only once its message is confirmed in the queue.

    Wrong when a letter is acked, or given up, though `publish` has not returned for it in this replay;
    when a letter whose message was confirmed is not taken away by a replay that returned: it would be
    replayed again.

    Tolerated: a letter given back, or in hand, without having been published; a kill between `publish`
    and `ack`, after which a message is published twice.
    """
    replays = _replays(history)
    moved = 0
    for life in replays:
        acks = _of(history, life, Kind.LETTER_ACK)
        early = [place for place in acks if not _published_before(history, place)]
        if early:
            return _early(history, early)
        left = _left_behind(history, life)
        if left:
            return _left(history, life, left)
        moved += len(acks)
    if not moved:
        return inconclusive("No letter was taken away.")
    return passed(f"{counted(moved, 'letter')}, each taken away after its message was confirmed.")


def _published_before(history: History, ack: int) -> list[int]:
    event = history.events[ack]
    taken = [p for p in delivery_places(history, event.delivery) if p < ack]
    return between(
        history, event.message, min(taken, default=0), ack, Kind.REPUBLISHED, process=event.process
    )


def _early(history: History, early: Sequence[int]) -> Verdict:
    event = history.events[early[0]]
    calls = between(history, event.message, 0, NEVER, Kind.REPUBLISH, process=event.process)
    begun = any(place < early[0] for place in calls)
    return failed(
        f"{counted(len(early), 'letter')} {were(len(early))} taken away before the message was "
        f"confirmed: {some(history.events[p].message for p in early)}.",
        witness(history, [*delivery_places(history, event.delivery), *calls[:1]]),
        "Is `publish` not awaited, or does its failure not stop the ack?"
        if begun
        else "Is the letter acked first, and published second?",
    )


def _left_behind(history: History, life: Life) -> list[Event]:
    """Letters whose message was confirmed, and that a replay which returned did not take away."""
    if not life.returned < life.killed or life.returned != life.over:
        return []
    taken = _of(history, life, Kind.LETTER_TAKEN)
    settled = {history.events[p].delivery for p in _of(history, life, Kind.LETTER_ACK)}
    last = {
        history.events[p].message: p for p in taken
    }  # a letter that came twice is one each time
    return [
        history.events[place]
        for name, place in last.items()
        if history.events[place].delivery not in settled
        and between(history, name, place, NEVER, Kind.REPUBLISHED, process=life.process)
    ]


def _left(history: History, life: Life, left: Sequence[Event]) -> Verdict:
    return failed(
        f"{counted(len(left), 'letter')} {were(len(left))} replayed and left among the dead letters: "
        f"{some(event.message for event in left)}.",
        witness(history, [*message_places(history, left[0].message)[-6:], life.over]),
        "Is each letter acked once `publish` has returned?",
    )
