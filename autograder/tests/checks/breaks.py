"""The table of single breaks: for each guarantee, ways to break it and nothing else.

`also` names promises that this mistake breaks as well, by its nature: a failed message that is
acked is lost, too. No check outside `own` and `also` may accuse.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from autograder.model import Event, History, Kind

Edit = Callable[[History, random.Random], History | None]

STOPPED = (
    ("publish", "begin", "work", "stop"),
    ("publish", "begin", "work", "probe", "work", "stop"),
    ("publish", "begin", "work", "kill", "restart", "work", "stop"),
)
DONE = (
    ("publish", "begin", "work", "finish"),
    ("publish", "begin", "probe", "work", "finish", "stop"),
    ("publish", "begin", "work", "kill", "restart", "work", "finish", "stop"),
    ("publish", "begin", "work", "cut", "work", "finish"),
)
PROBED = (
    ("publish", "begin", "probe", "release_one", "probe", "work", "finish"),
    ("publish", "begin", "work", "probe", "release_one", "probe", "finish", "stop"),
)
CALM = (("publish", "begin", "work", "finish"), ("publish", "begin", "finish"))
CANCELLED = (("publish", "begin", "work", "cancel"), ("publish", "begin", "probe", "cancel"))


@dataclass(frozen=True)
class Break:
    """One mistake: a slip of the simulated pool, or an edit of a correct history."""

    slip: str
    own: str
    also: frozenset[str] = frozenset()
    scripts: tuple[tuple[str, ...], ...] = DONE
    ways: tuple[str, ...] = ("transient", "error", "cancelled", "permanent")  # of failing
    edit: Edit | None = None
    window: Callable[[int], int] | None = None  # workers -> messages it takes at most
    fewest_workers: int = 1


def _after_final_ack(history: History) -> list[tuple[int, int, int, int]]:
    """Places of TAKEN, FINISHED, ACK and SETTLED of deliveries that went well."""
    wanted = (Kind.TAKEN, Kind.FINISHED, Kind.ACK, Kind.SETTLED)
    found: dict[int, dict[Kind, int]] = {}
    for place in history.where(*wanted):
        event = history.events[place]
        found.setdefault(event.delivery, {})[event.kind] = place
    return [
        (each[Kind.TAKEN], each[Kind.FINISHED], each[Kind.ACK], each[Kind.SETTLED])
        for each in found.values()
        if len(each) == len(wanted)
    ]


def _move(history: History, places: list[int], target: int) -> History:
    """Put the events at `places` right before the one at `target`; times stay in order."""
    moved = [history.events[place] for place in places]
    rest = [event for place, event in enumerate(history.events) if place not in places]
    target -= sum(place < target for place in places)
    order = [*rest[:target], *moved, *rest[target:]]
    times = sorted(event.at for event in order)
    return _with(history, [replace(e, at=at) for e, at in zip(order, times, strict=True)])


def _with(history: History, events: list[Event]) -> History:
    return History(tuple(events), history.workers, broker=history.broker)


def ack_beside_the_work(history: History, rng: random.Random) -> History | None:
    candidates = _after_final_ack(history)
    if not candidates:
        return None
    _, finished, ack, settled = rng.choice(candidates)
    return _move(history, [ack, settled], finished)


def ack_on_receipt(history: History, rng: random.Random) -> History | None:
    candidates = _after_final_ack(history)
    if not candidates:
        return None
    taken, _, ack, settled = rng.choice(candidates)
    return _move(history, [ack, settled], taken + 1)


def nobody_published_it(history: History, rng: random.Random) -> History | None:
    started = [event.message for event in history.of(Kind.STARTED)]
    if len(set(started)) < 2:
        return None
    ghost = rng.choice(started)
    known = {Kind.PUBLISHED, Kind.CONFIRMED}
    return _with(
        history, [e for e in history.events if not (e.message == ghost and e.kind in known)]
    )


def it_never_arrived(history: History, rng: random.Random) -> History | None:
    """A confirmed message that is nowhere in the end, and was never seen by the pool."""
    ids = [event.message for event in history.of(Kind.CONFIRMED)]
    if history.broker.waiting or len(ids) < 2:
        return None
    gone = rng.choice(ids)
    kept = {Kind.PUBLISHED, Kind.CONFIRMED}
    return _with(history, [e for e in history.events if e.message != gone or e.kind in kept])


def acked_unhandled_and_given_up(history: History, rng: random.Random) -> History | None:
    """Taken and given up, though its handler never ran."""
    ids = sorted({event.message for event in history.of(Kind.TAKEN)})
    gone = rng.choice(ids) if ids else ""
    story = [event for event in history.events if event.message == gone]
    if sum(event.kind is Kind.TAKEN for event in story) != 1 or story[-1].kind is not Kind.SETTLED:
        return None
    skipped = {Kind.STARTED, Kind.FINISHED, Kind.FAILED}
    events = [e for e in history.events if not (e.message == gone and e.kind in skipped)]
    calls = {Kind.ACK, Kind.REQUEUE}
    return _with(
        history,
        [
            replace(e, kind=Kind.GIVE_UP) if e.message == gone and e.kind in calls else e
            for e in events
        ],
    )


def given_back_when_done(history: History, rng: random.Random) -> History | None:
    """Work that was done, and then its message was given back; the broker brought it again."""
    candidates = _after_final_ack(history)
    if not candidates:
        return None
    _, _, ack, _ = rng.choice(candidates)
    events = list(history.events)
    events[ack] = replace(events[ack], kind=Kind.REQUEUE)
    return _with(history, events)


LOSS = frozenset({"no_message_is_lost"})
FAILURE = frozenset({"one_failure_is_one_failure"})
WORK = frozenset({"ack_follows_work"})
HEALING = ("transient", "error", "cancelled")

BREAKS = (
    Break("it never arrived", "no_message_is_lost", scripts=CALM, ways=(), edit=it_never_arrived),
    Break("invent", "no_message_is_lost", edit=nobody_published_it),
    Break(
        "give up the unhandled", "no_message_is_lost", also=WORK,
        scripts=CALM, ways=(), edit=acked_unhandled_and_given_up,
    ),
    Break("swallow", "no_message_is_lost", also=FAILURE, scripts=CALM, window=lambda n: n + 2),
    Break(
        "return early", "no_message_is_lost",
        also=FAILURE, scripts=(("publish", "begin", "work", "source_ends"),),
    ),
    Break("ack beside", "ack_follows_work", ways=HEALING, edit=ack_beside_the_work),
    Break("ack first", "ack_follows_work", ways=HEALING, edit=ack_on_receipt),
    Break("give back the done", "ack_follows_work", ways=HEALING, edit=given_back_when_done),
    Break("ack the failed", "failed_work_is_not_acked", also=LOSS, ways=HEALING),
    Break("give up the failed", "failed_work_is_not_acked", also=LOSS, ways=HEALING),
    Break("ack the permanent", "failed_work_is_not_acked", ways=("permanent",)),
    Break("requeue the permanent", "failed_work_is_not_acked", ways=("permanent",)),
    Break("settle twice", "failed_work_is_not_acked"),
    Break("settle after cancel", "failed_work_is_not_acked", also=LOSS, scripts=CANCELLED),
    Break(
        "forget the failed", "failed_work_is_not_acked",
        also=LOSS | FAILURE, scripts=CALM, ways=HEALING, window=lambda n: 2 * n + 2,
    ),
    Break("unbounded", "concurrency_is_bounded", window=lambda n: 2 * n + 2),
    Break("slots", "pool_is_used", scripts=PROBED, ways=(), fewest_workers=2),
    Break(
        "batch", "pool_is_used",
        scripts=PROBED, ways=(), window=lambda n: n, fewest_workers=2,
    ),
    Break("window", "backpressure_holds", window=lambda n: 2 * n + 5),
    Break("shrink", "one_failure_is_one_failure", also=LOSS, scripts=PROBED),
    Break("cancel the others", "one_failure_is_one_failure", fewest_workers=2),
    Break("task group", "one_failure_is_one_failure", also=LOSS, fewest_workers=2),
    Break(
        "a lost connection ends the pool", "one_failure_is_one_failure", also=LOSS,
        scripts=(("publish", "begin", "work", "cut", "work", "finish"),),
    ),
    Break("take after stop", "stop_means_no_new_work", scripts=STOPPED, window=lambda n: n + 1),
    Break("cancel at stop", "shutdown_drains_in_flight", scripts=STOPPED),
    Break(
        "cancel and ack at stop", "shutdown_drains_in_flight",
        also=LOSS | {"failed_work_is_not_acked"}, scripts=STOPPED,
    ),
    Break("give up at stop", "shutdown_drains_in_flight", also=LOSS | WORK, scripts=STOPPED),
    Break(
        "leave in hand", "shutdown_drains_in_flight",
        also=frozenset({"failed_work_is_not_acked"}), scripts=STOPPED,
    ),
    Break("leave tasks when cancelled", "shutdown_drains_in_flight", scripts=CANCELLED),
    Break("swallow the cancel", "shutdown_drains_in_flight", scripts=CANCELLED),
    Break("hang in the end", "shutdown_drains_in_flight", scripts=STOPPED),
    Break("raise in the end", "shutdown_drains_in_flight", scripts=STOPPED),
    Break("return late", "shutdown_drains_in_flight", scripts=STOPPED),
    Break("leave tasks", "shutdown_drains_in_flight", scripts=STOPPED),
    Break("die by a signal", "shutdown_drains_in_flight", scripts=STOPPED),
)  # fmt: skip
