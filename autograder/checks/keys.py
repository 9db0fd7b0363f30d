"""Keys beside each other: they run at the same time, and what one key waits for is its own matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autograder.checks.expectations import Expectation, read_expectations, stood_still
from autograder.checks.ledger import ENDS, before, ids
from autograder.checks.lines import lines
from autograder.checks.lives import NEVER, read_lives
from autograder.checks.pauses import Rest, rests
from autograder.checks.phrases import counted, moment, some, witness
from autograder.checks.registry import guarantee
from autograder.checks.room import too_little_room
from autograder.checks.standstill import failures_before
from autograder.model import History, Kind, Verdict, Wait, failed, inconclusive, passed

MANY_WORKERS = 8
"""With fewer, a pool whose keys share `workers` lanes may have bad luck with the keys of one test."""

TOOK_TIME_S = 0.001
"""A handler that took so long, or was held at a gate, could have had another one beside it."""


@guarantee
def keys_run_in_parallel(history: History) -> Verdict:
    """Messages of different keys are handled at the same time.

    At least a quarter of the `workers`, and two, have to be seen at work with different keys. A
    pool may give each key a lane that it shares with others, so no more is asked; how fast lanes
    are filled is not asked either. Judged for 8 workers and more, once `workers + 2` messages of
    different keys were in hand, or the pool stood with fewer although more were within its reach.
    Wrong, too, with any number of workers: a pool that has no room for `workers + 2` messages.
    """
    workers = history.workers
    enough = max(2, workers // 4)
    peaks = {process: _peak(history, process) for process in _processes(history)}
    full_too_soon = too_little_room(history)
    if any(peak >= enough for peak in peaks.values()):
        if full_too_soon is not None:
            return full_too_soon
        return passed(f"Up to {max(peaks.values())} keys were at work at the same time.")
    if workers < MANY_WORKERS:
        return full_too_soon or inconclusive("Too few workers to tell.")
    for each in stood_still(history):
        if _stands_alone(history, each, enough):
            return _one_by_one(history, each.place, peaks[each.process])
    for process, peak in peaks.items():
        place = _hands_full(history, process)
        if place < NEVER and _keys_with_time(history, process) >= workers + 2:
            return _one_by_one(history, place, peak)
    return full_too_soon or inconclusive("The pool never had enough different keys in hand.")


def _processes(history: History) -> list[int]:
    return list(dict.fromkeys(line.process for line in lines(history)))


def _peak(history: History, process: int) -> int:
    """The most keys that were at work at once."""
    steps = sorted(
        (place, step, line.key)
        for line in lines(history)
        if line.process == process
        for turn in line.turns
        for places, step in ((turn.started, 1), (turn.ended, -1))
        for place in places
    )
    running: dict[str, int] = {}
    peak = 0
    for _, step, key in steps:
        running[key] = running.get(key, 0) + step
        if running[key] <= 0:
            del running[key]
        peak = max(peak, len(running))
    return peak


def _hands_full(history: History, process: int) -> int:
    """Where `workers + 2` different keys were first in hand, none of them done."""
    in_hand: dict[int, str] = {}
    done = (*ENDS, Kind.SETTLED, Kind.SETTLE_FAILED)
    for place in history.where(Kind.TAKEN, *done):
        event = history.events[place]
        if event.process != process:
            continue
        if event.kind is Kind.TAKEN:
            in_hand[event.delivery] = event.key
            if len(set(in_hand.values())) >= history.workers + 2:
                return place
        else:
            in_hand.pop(event.delivery, None)
    return NEVER


def _keys_with_time(history: History, process: int) -> int:
    """Keys with a handler that took long enough to have had another one beside it."""
    events = history.events
    return sum(
        any(
            events[ended].at - events[started].at >= TOOK_TIME_S
            for turn in line.turns
            for started, ended in zip(turn.started, turn.ended, strict=False)
        )
        for line in lines(history)
        if line.process == process
    )


def _stands_alone(history: History, each: Expectation, enough: int) -> bool:
    """Whether the pool stood beside gates with its hands far from full, and would not take more."""
    return (
        each.wait == Wait.STALLED
        and 0 < each.held == each.busy < enough
        and each.in_hand < history.workers + 2
        and each.figures.get("buffered", 0) > 0
        and each.place < read_lives(history)[each.process].told
        and not failures_before(history, each.process, each.place)
        and len({event.key for event in history.of(Kind.CONFIRMED)}) >= history.workers + 2
    )


def _one_by_one(history: History, place: int, peak: int) -> Verdict:
    starts = before(history.where(Kind.TAKEN, Kind.STARTED), place + 1)
    if peak > 1:
        slip = "Does what you make of the key, its length, its first character, differ at all?"
    else:
        slip = "Is there one lock, or one loop that awaits the handler, for all keys together?"
    return failed(
        f"Never more than {counted(peak, 'key')} {'was' if peak == 1 else 'were'} at work at a time, "
        f"with {history.workers} workers and {len(ids(history, Kind.CONFIRMED))} messages of many "
        f"keys ({moment(history, place)}).",
        witness(history, [*starts[-6:], place]),
        slip,
    )


@guarantee
def slow_key_does_not_block_others(history: History) -> Verdict:
    """While the handler of one key takes long, most other keys go on.

    The scenario holds one key at a gate, with at most two messages of it in hand, and then
    publishes many others. Wrong when the pool stands before half of those are finished. Keys may
    share a lane: that some wait behind the slow one is right, that it stops the taking is not.
    In the simulation, whose clock is exact, a key that waits for its next try is such a key, too: wrong
    when fewer than half of the others are finished in a pause that leaves them half a second.
    Judged for 8 workers and more.
    """
    kept = False
    lives = read_lives(history)
    for rest in rests(history) if history.workers >= MANY_WORKERS else ():
        if rest.again < lives[rest.line.process].told:
            if 2 * rest.finished < rest.others:
                return _all_rest(history, rest)
            kept = True
    for each in read_expectations(history):
        look = _beside_one_key(history, each)
        if look is None or each.place > lives[each.process].told:
            continue
        if 2 * look.finished >= look.others:
            kept = kept or each.wait == Wait.MET
        elif each.wait == Wait.STALLED:
            return _blocked(history, each, look)
    if kept:
        return passed("At least half of the other keys went on beside the slow one.")
    return inconclusive("No key was held while many others waited.")


@dataclass(frozen=True)
class _Beside:
    """One key that is held, and what became of the messages published since."""

    key: str
    held: int  # where its handler came to the gate
    others: int
    finished: int


def _beside_one_key(history: History, each: Expectation) -> _Beside | None:
    if history.workers < MANY_WORKERS or failures_before(history, each.process, each.place):
        return None
    held = _held_at(history, each)
    in_hand = _in_hand_at(history, each)
    if len(set(held.values())) != 1:
        return None
    place, key = next(iter(held.items()))
    if sum(event_key == key for event_key in in_hand.values()) > 2:
        return None
    published = [p for p in history.places[Kind.CONFIRMED] if place < p < each.place]
    others = {history.events[p].message for p in published if history.events[p].key != key}
    finished = {
        history.events[p].message
        for p in before(history.places[Kind.FINISHED], each.place)
        if history.events[p].message in others
    }
    if len(others) < 2 * history.workers:
        return None
    return _Beside(key, place, len(others), len(finished))


def _held_at(history: History, each: Expectation) -> dict[int, str]:
    """Where handlers came to a gate that they still wait at, and their keys."""
    held: dict[int, tuple[int, str]] = {}
    for place in before(history.where(Kind.HELD, *ENDS), each.place):
        event = history.events[place]
        if event.process == each.process:
            if event.kind is Kind.HELD:
                held[event.delivery] = place, event.key
            else:
                held.pop(event.delivery, None)
    return dict(held.values())


def _in_hand_at(history: History, each: Expectation) -> dict[int, str]:
    """Deliveries that were taken and not done, and their keys."""
    return {
        turn.delivery: line.key
        for line in lines(history)
        if line.process == each.process
        for turn in line.turns
        if turn.taken < each.place < min([*turn.ended, turn.final, NEVER])
    }


def _blocked(history: History, each: Expectation, look: _Beside) -> Verdict:
    takes = before(history.places[Kind.TAKEN], each.place)
    if each.in_hand < history.workers + 2:
        slip = "Does the loop that takes messages wait for room in the queue of the one slow key?"
    else:
        slip = "Do most keys share their lane with the slow one?"
    return failed(
        f"While the handler of {look.key or 'the empty key'} was held, {look.finished} of "
        f"{look.others} other messages were finished, and then the pool stood "
        f"({moment(history, each.place)}) with {each.in_hand} in hand.",
        witness(history, [look.held, *takes[-4:], each.place]),
        slip,
    )


def _all_rest(history: History, rest: Rest) -> Verdict:
    takes = [p for p in history.places[Kind.TAKEN] if rest.failed < p < rest.again]
    return failed(
        f"While {rest.turn.message} of {rest.line.key or 'the empty key'} waited for its next try, "
        f"until {moment(history, rest.again)}, {rest.finished} of {rest.others} messages of other keys "
        "were finished.",
        witness(history, [rest.turn.taken, rest.failed, *takes[:4], rest.again]),
        "Does everybody wait for the pause of one key, behind a lock or in the loop that takes?",
    )


@guarantee
def same_key_same_route_across_restarts(history: History) -> Verdict:
    """Which keys wait for each other is the same in every process.

    The scenario holds the same keys in two processes that have different hash seeds, and looks
    which of the others go on. Wrong when a key waited behind held ones in one process, and went on
    in the other though each of those was in hand before it there as well. A pool in which no key
    waits for another one is right, too: then there is no route.
    """
    views = [view for each in read_expectations(history) if (view := _view(history, each))]
    for there in views:
        for here in views:
            if here.process == there.process:
                continue
            for key in there.waiting.keys() & here.begun.keys():
                if _passed_all(history, here, here.begun[key], there.held):
                    return _another_route(history, key, here, there)
    common = [
        (one, two) for one in views for two in views
        if one.process < two.process and (one.seen & two.seen)
    ]  # fmt: skip
    if common:
        return passed("The same keys waited, if any, in every process.")
    return inconclusive("No two processes were seen with the same keys held.")


@dataclass(frozen=True)
class _View:
    """One process beside its gates: which keys are held, which wait, which have gone on."""

    process: int
    place: int
    held: frozenset[str]
    waiting: Mapping[str, int]  # key -> where it was taken
    begun: Mapping[str, int]  # key -> where its handler began beside the gates

    @property
    def seen(self) -> frozenset[str]:
        """Keys of which it is known whether they wait."""
        return frozenset(self.waiting) | frozenset(self.begun)


def _view(history: History, each: Expectation) -> _View | None:
    """What can be said at this place; only a pool that stands shows who waits behind whom."""
    held = _held_at(history, each)
    told = read_lives(history)[each.process].told
    if not held or each.place > told or each.wait not in {Wait.MET, Wait.STALLED}:
        return None
    since = min(held)
    waiting: dict[str, int] = {}
    begun: dict[str, int] = {}
    stands = (
        each.wait == Wait.STALLED
        and each.busy == each.held
        and each.in_hand <= history.workers + 2
        and not failures_before(history, each.process, each.place)
    )
    gated = set(held.values())
    for line in lines(history):
        if line.process != each.process or line.key in gated:
            continue
        for turn in line.turns:
            starts = [place for place in turn.started if since < place < each.place]
            if starts:
                begun.setdefault(line.key, starts[0])
            elif stands and turn.taken < each.place and not turn.started[:1] < [each.place]:
                waiting.setdefault(line.key, turn.taken)
    return _View(each.process, each.place, frozenset(gated), waiting, begun)


def _passed_all(history: History, here: _View, begun: int, held: frozenset[str]) -> bool:
    """Whether this handler began while each of these keys was in hand here, taken before it."""
    return held <= set(_open_before(history, here.process, begun))


def _open_before(history: History, process: int, place: int) -> Iterator[str]:
    taken = next(
        turn.taken
        for line in lines(history)
        if line.process == process
        for turn in line.turns
        if place in turn.started
    )
    for line in lines(history):
        if line.process == process:
            for turn in line.turns:
                if turn.taken < taken and place < min([*turn.ended, NEVER]):
                    yield line.key


def _another_route(history: History, key: str, here: _View, there: _View) -> Verdict:
    name = key or "the empty key"
    return failed(
        f"In process {there.process}, {name} waited behind {some(sorted(there.held), 2)}; in process "
        f"{here.process} it went on beside the same keys.",
        witness(history, [here.begun[key], there.waiting[key], there.place]),
        "Is the key's worker found with hash(), which is another one in every process?",
    )
