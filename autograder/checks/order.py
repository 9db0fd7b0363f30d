"""Order: the messages of one key are handled one after the other, in the order of their takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from autograder.checks.expectations import stood_still
from autograder.checks.ledger import unfinished
from autograder.checks.lines import Line, Turn, cut_between, keys_of, lines
from autograder.checks.lives import NEVER, read_lives
from autograder.checks.pauses import endless_pause, hurried_pause
from autograder.checks.phrases import counted, failure, moment, some, were, witness
from autograder.checks.registry import guarantee
from autograder.model import History, Kind, Verdict, failed, inconclusive, passed

_NO_KEY = "Is the empty key treated as no key, in an `if message.key`?"


class Overtaking(NamedTuple):
    """Two turns of a line in the wrong order, and where it shows."""

    line: Line
    first: Turn
    second: Turn
    place: int


@guarantee
def order_is_kept_per_key(history: History) -> Verdict:
    """Messages of one key are finished in the order they were taken.

    Judged by first completion (the handler returned, or raised `Permanent`), within one process.
    Wrong when a message is completed while another one of its key that was taken before it is not.

    Tolerated: whatever order the broker brings messages in, also when it brings them back; repeats;
    any order between keys; dropping what a broken connection had delivered. A message that was
    overtaken while it waited to be tried again is judged by `order_survives_a_retry`, messages
    without a key by `empty_key_is_handled`. A pass needs two messages of one key in one process.
    """
    keyed = [line for line in lines(history) if line.key]
    found = next((each for line in keyed for each in _overtakings(history, line)), None)
    if found is not None:
        return _overtaken(history, found, f"of {found.line.key}")
    most = max((len(line.done) for line in keyed), default=0)
    if most < 2:
        return inconclusive("No two messages of one key were handled in one process.")
    return passed(f"{counted(len(keyed), 'key')}, up to {most} messages of one, all in order.")


def _overtakings(history: History, line: Line) -> Iterator[Overtaking]:
    """Completions that came too early."""
    arrivals = line.arrivals
    number = {turn.message: place for place, turn in enumerate(arrivals)}
    undone = dict(enumerate(arrivals))  # the messages that have not been completed, by arrival
    for message, place in sorted(line.done.items(), key=lambda item: item[1]):
        mine = number[message]
        del undone[mine]
        for other, first in undone.items():
            if other > mine:
                break
            second = arrivals[mine]
            if not _excused(history, first, second, place):
                yield Overtaking(line, first, second, place)


def _excused(history: History, first: Turn, second: Turn, place: int) -> bool:
    """Whether something else than the order explains it, which other checks judge."""
    begun = second.started[0] if second.started else place
    tried = any(each < begun for each in first.failed)
    gone = min(first.final, first.dropped) < place
    return tried or gone or cut_between(history, first.taken, place)


def _overtaken(history: History, found: Overtaking, of_key: str) -> Verdict:
    _, first, second, place = found
    begun = [each for each in first.started if each < place]
    where = "was still being handled" if begun else "had not been begun"
    slip = (
        "Can two workers have messages of one key at the same time?"
        if begun
        else "Can a message that has just been taken get ahead of one that waits for its key?"
    )
    return failed(
        f"{second.message} {of_key} was finished at {moment(history, place)}, while "
        f"{first.message}, taken before it, {where}.",
        witness(history, [first.taken, second.taken, *begun[:1], *second.started[:1], place]),
        slip,
    )


@guarantee
def one_at_a_time_per_key(history: History) -> Verdict:
    """Of one key, one message is handled at a time.

    Wrong when a handler is called with a message while another handler of the same process still
    runs with one of the same key: also with another delivery of the same message, also when both
    would end in the right order. The death of a process ends its handlers. Messages without a key
    are judged by `empty_key_is_handled`. A pass needs two messages of one key in one process.
    """
    keyed = [line for line in lines(history) if line.key]
    found = next((each for line in keyed for each in _overlaps(line)), None)
    if found is not None:
        return _overlapping(history, found, f"of {found.line.key}")
    most = max((sum(bool(turn.started) for turn in line.turns) for line in keyed), default=0)
    if most < 2:
        return inconclusive("No two messages of one key were handled in one process.")
    return passed(f"{counted(len(keyed), 'key')}, one handler at a time for each.")


def _overlaps(line: Line) -> Iterator[Overtaking]:
    """Handlers that began while another one of the line ran."""
    tries = sorted(
        (started, turn.ended[number] if number < len(turn.ended) else NEVER, turn)
        for turn in line.turns
        for number, started in enumerate(turn.started)
    ) if any(turn.started for turn in line.turns) else []  # fmt: skip
    for (_, ended, first), (started, _, second) in pairwise(tries):
        if started < ended:
            yield Overtaking(line, first, second, started)


def _overlaps_of_keys(history: History) -> Iterator[Overtaking]:
    return (each for line in lines(history) if line.key for each in _overlaps(line))


def _overlapping(history: History, found: Overtaking, of_key: str) -> Verdict:
    _, first, second, place = found
    ends = [each for each in (*first.ended, *second.ended) if each > place]
    slip = "Do the workers share one queue, with nothing that keeps the messages of a key together?"
    if not found.line.key and not any(_overlaps_of_keys(history)):
        slip = _NO_KEY
    return failed(
        f"The handler was called with {second.message} {of_key} at {moment(history, place)}, while "
        f"it ran with {first.message}.",
        witness(history, [first.taken, second.taken, first.started[0], place, *sorted(ends)[:2]]),
        slip,
    )


@guarantee
def order_survives_a_retry(history: History) -> Verdict:
    """A failed message is tried again before the next one of its key.

    After any failure but `Permanent`, the next message of that key that a handler is called with
    is the same one, until it is finished or fails for good. Wrong when a later message of the key
    is begun before. In the simulation, whose clock is exact, the pauses count as well: 50 ms after
    the first failure, twice as long after each further one, 1 s at most. Timers may be late: too long
    are only a pause of more than 1.5 s and then one of more than 3 s, or one in which the pool is
    seen to stand, with nothing else at work.

    Tolerated: giving the message back once `stop` is set, if nothing of its key is begun any more;
    a failed message that is settled for good, which `failed_work_is_not_acked` judges. A pass needs
    a failure with another message of its key behind it.
    """
    hurried = None
    tempted = 0
    for line in lines(history):
        for turn in line.turns:
            later = _later(history, line, turn)
            early = _begun_too_early(history, line, turn, later)
            if early is not None:
                return _not_in_its_place(history, early)
            tempted += bool(turn.failed and _had_company(history, line, turn, later))
            hurried = hurried or hurried_pause(history, turn) or endless_pause(history, turn)
    if hurried is not None:
        return hurried
    if not tempted:
        return inconclusive("Nothing failed that had another message of its key behind it.")
    return passed(f"{counted(tempted, 'failed message')}, and what followed waited.")


def _later(history: History, line: Line, turn: Turn) -> list[Turn]:
    """The messages of the line that came after this one, and are others."""
    if not turn.failed:
        return []
    before = {each.message for each in line.turns if each.taken < turn.taken}
    return [
        each
        for each in line.turns
        if each.taken > turn.taken and each.message not in before | {turn.message}
    ]


def _begun_too_early(
    history: History, line: Line, turn: Turn, later: Sequence[Turn]
) -> Overtaking | None:
    until = min(line.done.get(turn.message, NEVER), turn.final, turn.dropped)
    for other in later:
        for started in other.started:
            after_failure = turn.failed[0] < started < until
            if after_failure and not cut_between(history, turn.taken, started):
                return Overtaking(line, turn, other, started)
    return None


def _had_company(history: History, line: Line, turn: Turn, later: Sequence[Turn]) -> bool:
    """Whether a message of the key could have been begun with instead."""
    until = line.done.get(turn.message, NEVER)
    if any(each.taken < until for each in later):
        return True
    keys = keys_of(history)
    return any(
        event.message != turn.message and keys[event.message] == line.key
        for place in history.places[Kind.CONFIRMED]
        if place < until and (event := history.events[place]).message not in line.done
    )


def _not_in_its_place(history: History, found: Overtaking) -> Verdict:
    _, first, second, place = found
    fail = max(each for each in first.failed if each < place)
    event = history.events[fail]
    story = [p for p in range(fail, place) if history.events[p].delivery == first.delivery]
    given_back = [p for p in story if history.events[p].kind is Kind.REQUEUE]
    if given_back and read_lives(history)[event.process].told < given_back[0]:
        slip = (
            "At stop the failed message goes back. Does what is behind it in its key go back, too, "
            "or is it still begun?"
        )
    elif given_back:
        slip = (
            "Is a failed message given back to the broker, and does the next one of its key go on?"
        )
    else:
        slip = "Is a failed message put behind the others of its key, or left for later?"
    key = f"of {found.line.key}" if found.line.key else "without a key"
    return failed(
        f"{first.message} {key} failed ({failure(event.detail)}) at {moment(history, fail)}, and "
        f"{second.message}, which came after it, was begun at {moment(history, place)} before "
        f"{first.message} was done.",
        witness(history, [first.taken, second.taken, *story[:4], place]),
        slip,
    )


@guarantee
def empty_key_is_handled(history: History) -> Verdict:
    """The empty key is a key like others.

    Its messages are handled, one at a time and in the order of their takes. Wrong when two of them
    run at once; when one overtakes another; when they are given up without having been handled; when the pool stands or ends, unasked, with nothing left but messages without a key, or
    right after it took one. Everything that is tolerated for keys is tolerated here. A pass needs two
    messages without a key that were handled.
    """
    line_of = [line for line in lines(history) if not line.key]
    for line in line_of:
        for overlap in _overlaps(line):
            return _overlapping(history, overlap, "without a key")
        for overtaking in _overtakings(history, line):
            return _overtaken(history, overtaking, "without a key")
        thrown_away = [turn for turn in line.turns if _is_thrown_away(history, turn)]
        if thrown_away:
            return _unhandled(history, thrown_away)
    left = frozenset(name for name, key in keys_of(history).items() if not key)
    left &= unfinished(history)
    place = _left_at(history)
    if (
        left
        and place is not None
        and (left == unfinished(history) or _was_the_last(history, place))
    ):
        return failed(
            f"{counted(len(left), 'message')} without a key {were(len(left))} left at "
            f"{moment(history, place)}: {some(sorted(left))}.",
            witness(history, [*_first_takes(history, left), place]),
            f"{_NO_KEY[:-1]}, or asked for its first character?",
        )
    handled = {name for line in line_of for name in line.done}
    if len(handled) < 2:
        return inconclusive("No two messages without a key were handled.")
    return passed(f"{counted(len(handled), 'message')} without a key, handled in order.")


def _is_thrown_away(history: History, turn: Turn) -> bool:
    """Given up with no handler called; what is acked so early, `ack_follows_work` judges."""
    final = turn.final
    return not turn.started and final < NEVER and history.events[final].kind is Kind.GIVE_UP


def _unhandled(history: History, turns: Sequence[Turn]) -> Verdict:
    count, turn = len(turns), turns[0]
    return failed(
        f"{counted(count, 'message')} without a key {were(count)} given up though no handler "
        f"was called: {turn.message}.",
        witness(history, [turn.taken, turn.final]),
        _NO_KEY,
    )


def _left_at(history: History) -> int | None:
    """Where the pool stood, or ended, though nobody had asked it to."""
    lives = read_lives(history)
    for each in stood_still(history):
        if each.place < lives[each.process].told and not each.held:
            return each.place
    last = lives.last
    if last is not None and last.over < min(last.told, NEVER):
        return last.over
    return None


def _was_the_last(history: History, place: int) -> bool:
    """Whether a message without a key was the last that was taken, and nothing came of it."""
    taken = [each for each in history.places[Kind.TAKEN] if each < place]
    last = history.events[taken[-1]] if taken else None
    return last is not None and not last.key and not any(
        last.delivery == history.events[each].delivery for each in history.places[Kind.STARTED]
    )  # fmt: skip


def _first_takes(history: History, messages: frozenset[str]) -> list[int]:
    return [p for p in history.places[Kind.TAKEN] if history.events[p].message in messages][:4]
