"""Where everything goes in a picture of a run: lanes, rows, bars. Pure geometry, no medium.

Time runs downward and is compressed to event order: one event is one row, and the row says its
real time, so that two events a microsecond apart are as easy to tell apart as two a minute apart.
The terminal, the page and lessons draw the same `Layout`.

A lane is not a worker: workers are the student's affair and have no name an examiner could see.
A *slot* is a place in hand. Deliveries are packed into as few slots as their lifetimes (taken to
settled) allow, per process, so that as many slots are side by side as messages were in hand.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from autograder.model import Event, Kind
from autograder.report.words import event_about, event_detail, event_word, seconds


class Role(StrEnum):
    """What a lane stands for."""

    PUBLISHER = "publisher"
    BROKER = "broker"
    SLOT = "slot"
    RUN = "run()"
    EXAMINER = "examiner"


class Ending(StrEnum):
    """How the handler behind a bar ended, as far as the picture reaches."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CUT = "cut off"  # its process ended first
    OPEN = "still running"


@dataclass(frozen=True, slots=True)
class Lane:
    """One column. `short` is for narrow pictures: three characters where there are few lanes."""

    role: Role
    name: str
    short: str
    process: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One event, or (`event` is None) the number of events left out at this place.

    `towards` is the lane an arrow points to from `lane`, if something travelled. `rule` says that
    the event concerns every lane: a kill, a stop.
    """

    event: Event | None
    lane: int = 0
    towards: int | None = None
    time: str = ""
    word: str = ""
    about: str = ""
    detail: str = ""
    witness: bool = False
    rule: bool = False
    left_out: int = 0

    @property
    def caption(self) -> str:
        """What happened to what, and the rest of it; for a gap, how much is missing."""
        if self.event is None:
            return f"{self.left_out:,} {'event' if self.left_out == 1 else 'events'} left out"
        return f"{self.word} {self.about}".strip() + self.remark

    @property
    def remark(self) -> str:
        """The detail with its punctuation: in brackets after a message, as a sentence otherwise."""
        if not self.detail:
            return ""
        if self.about:
            return f" ({self.detail})"
        return f" {self.detail}" if self.word.endswith(" for") else f": {self.detail}"


@dataclass(frozen=True, slots=True)
class Bar:
    """A message in hand, or (`work`) its handler running, from row `first` to row `last`.

    A bar that began above the picture has `first` -1; one that goes on below has `last` equal to
    the number of rows.
    """

    lane: int
    first: int
    last: int
    work: bool
    ending: Ending
    delivery: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A finished picture, still without a medium."""

    lanes: tuple[Lane, ...]
    rows: tuple[Row, ...]
    bars: tuple[Bar, ...]

    def describe(self) -> str:
        """The picture in words, for those who do not see it."""
        said = [
            f"{row.time}, {self.lanes[row.lane].name}: {row.caption}" if row.event else row.caption
            for row in self.rows
        ]
        return f"Time runs downward. {'; '.join(said)}."


def lay_out(
    events: Sequence[Event],
    *,
    show: Iterable[int] | None = None,
    witness: Collection[int] = (),
) -> Layout:
    """Arrange a run (in time order) into a picture of the events at the indices `show`.

    Without `show` all of them get a row. Bars begin and end where they really did, also at events
    without a row, and gaps are counted. `witness` holds the indices to emphasise.
    """
    shown = list(range(len(events))) if show is None else sorted(set(show))
    numbering = _Numbering.of(shown)
    lives = _lives(events, {events[index].delivery for index in shown}, numbering)
    lanes, slots = _lanes([events[index] for index in shown], lives, _function(events))
    keys = _keys_matter(events[index] for index in shown)
    rows = tuple(
        _row(events[index], lanes, slots, witness=index in witness, keys=keys)
        if not left_out
        else Row(None, left_out=left_out)
        for index, left_out in numbering.rows
    )
    return Layout(lanes, rows, tuple(bar for life in lives for bar in life.bars(slots)))


@dataclass(frozen=True)
class _Numbering:
    """Rows for indices. A gap has a row of its own, so every index in between has one too."""

    shown: Sequence[int]
    rows: Sequence[tuple[int, int]]  # index of the event, events left out (0: the event itself)
    row_of: Mapping[int, int]

    @classmethod
    def of(cls, shown: Sequence[int]) -> _Numbering:
        rows: list[tuple[int, int]] = []
        row_of: dict[int, int] = {}
        for position, index in enumerate(shown):
            left_out = index - shown[position - 1] - 1 if position else 0
            if left_out:
                rows.append((index, left_out))
            row_of[index] = len(rows)
            rows.append((index, 0))
        return cls(shown, rows, row_of)

    def row(self, index: int | None) -> int:
        """The row of an event; -1 above the picture, the number of rows below it or for None."""
        if index is None:
            return len(self.rows)
        if index in self.row_of:
            return self.row_of[index]
        position = bisect_left(self.shown, index)
        if position == 0:
            return -1
        if position == len(self.shown):
            return len(self.rows)
        return self.row_of[self.shown[position]] - 1


_ENDS = {
    Kind.FINISHED: Ending.FINISHED,
    Kind.FAILED: Ending.FAILED,
    Kind.CANCELLED: Ending.CANCELLED,
}
_DEATHS = frozenset({Kind.EXITED, Kind.FAULT})
_SETTLING = frozenset(
    {Kind.ACK, Kind.REQUEUE, Kind.GIVE_UP, Kind.SETTLED, Kind.SETTLE_FAILED, Kind.SETTLED_TWICE}
)


@dataclass(slots=True)
class _Life:
    """One delivery's way from `begins` to `ends`: in hand till `let_go`, handled while `started`.

    Both are over at the same time, or the handler is first. A message that is settled before its
    handler has ended is the exception, and the mistake to be seen.
    """

    delivery: int
    process: int
    begins: int = -1
    ends: int = -1
    let_go: int = -1
    started: int | None = None
    ended: int | None = None
    ending: Ending = Ending.OPEN

    def bars(self, slots: Mapping[int, int]) -> list[Bar]:
        lane = slots[self.delivery]
        hand = Bar(
            lane, self.begins, self.let_go, work=False, ending=self.ending, delivery=self.delivery
        )
        if self.started is None or self.ended is None:  # not handled as far as the picture reaches
            return [hand]
        work = Bar(
            lane, self.started, self.ended, work=True, ending=self.ending, delivery=self.delivery
        )
        return [hand, work]


def _lives(events: Sequence[Event], wanted: Collection[int], numbering: _Numbering) -> list[_Life]:
    """The life of every wanted delivery, by process and time."""
    indices: dict[int, list[int]] = {delivery: [] for delivery in wanted if delivery}
    deaths: list[int] = []
    for index, event in enumerate(events):
        if event.delivery in indices:
            indices[event.delivery].append(index)
        elif event.kind in _DEATHS and _is_death(event):
            deaths.append(index)
    lives = [_life(events, own, deaths, numbering) for own in indices.values()]
    return sorted(lives, key=lambda life: (life.process, life.begins, life.delivery))


def _is_death(event: Event) -> bool:
    """Whether a process ends here; a kill may be seen before the exit it causes."""
    return event.kind is Kind.EXITED or (
        event.kind is Kind.FAULT and event.detail.partition(" ")[0] == "kill"
    )


def _life(
    events: Sequence[Event], own: Sequence[int], deaths: Sequence[int], numbering: _Numbering
) -> _Life:
    first = events[own[0]]
    life = _Life(first.delivery, first.process)
    started = ended = settled = None
    for index in own:
        kind = events[index].kind
        if kind is Kind.STARTED:
            started = index
        elif kind in _ENDS:
            ended, life.ending = index, _ENDS[kind]
        elif kind in _SETTLING:
            settled = index
    death = next(
        (at for at in deaths if at > own[0] and events[at].process in {0, first.process}), None
    )
    known_start = first.kind in {Kind.TAKEN, Kind.STARTED}
    life.begins = numbering.row(own[0]) if known_start else -1
    if started is not None:
        life.started = numbering.row(started)
    elif ended is not None:
        life.started = -1
    if ended is None and started is not None and death is not None:
        ended, life.ending = death, Ending.CUT
    if life.started is not None:
        life.ended = numbering.row(ended)
        if life.started >= len(numbering.rows) or life.ended < 0:
            life.started = life.ended = None
    over = settled if started is None or ended is None else max(settled or -1, ended)
    if settled is None or (started is not None and ended is None):
        over = death
    life.ends = max(numbering.row(over), numbering.row(own[-1]))
    life.let_go = life.ends if settled is None else min(life.ends, numbering.row(settled))
    return life


def _function(events: Iterable[Event]) -> str:
    """The name of the function that was called: `run`, unless the run says otherwise."""
    calls = (event.detail for event in events if event.kind is Kind.RUN_STARTED and event.detail)
    return next(calls, "run").split()[0]


def _lanes(
    shown: Sequence[Event], lives: Sequence[_Life], function: str
) -> tuple[tuple[Lane, ...], dict[int, int]]:
    """The lanes that are used, and the lane of each delivery."""
    roles = {_role(event) for event in shown}
    lanes: list[Lane] = []
    if Role.PUBLISHER in roles:
        lanes.append(Lane(Role.PUBLISHER, "publisher", "pub"))
    if Role.PUBLISHER in roles or any(event.kind in _AT_BROKER for event in shown):
        lanes.append(Lane(Role.BROKER, "broker", "brk"))
    several = len({life.process for life in lives}) > 1
    slots: dict[int, int] = {}
    free_from: dict[int, int] = {}  # lane -> the row from which on it is free
    for life in lives:
        own = [
            at
            for at, lane in enumerate(lanes)
            if lane.role is Role.SLOT and lane.process == life.process
        ]
        lane = next((at for at in own if free_from[at] <= life.begins), None)
        if lane is None:
            lane, number = len(lanes), len(own) + 1
            name = f"p{life.process} slot {number}" if several else f"slot {number}"
            short = f"{life.process}.{number}" if several else str(number)
            lanes.append(Lane(Role.SLOT, name, short, life.process))
        slots[life.delivery] = lane
        free_from[lane] = life.ends + 1
    if Role.RUN in roles:
        lanes.append(Lane(Role.RUN, f"{function}()", function[:4]))
    if Role.EXAMINER in roles:
        lanes.append(Lane(Role.EXAMINER, "examiner", "exm"))
    return tuple(lanes), slots


_EXAMINING = frozenset(
    {
        Kind.FAULT,
        Kind.RELEASED,
        Kind.BREAK,
        Kind.EXPECTED,
        Kind.COUNTED,
        Kind.BROKER,
        Kind.LEASE_SEEN,
    }
)
_TO_BROKER = frozenset({Kind.PUBLISHED, Kind.ACK, Kind.REQUEUE, Kind.GIVE_UP})
_FROM_BROKER = frozenset({Kind.TAKEN, Kind.CONFIRMED, Kind.SETTLE_FAILED})
_AT_BROKER = _TO_BROKER | _FROM_BROKER
_RULES = frozenset({Kind.STOP_SET, Kind.STOP_IN_FORCE, Kind.EXITED, Kind.RUN_RAISED})
_RULING_FAULTS = frozenset({"kill", "terminate", "interrupt", "pause", "cut", "cancel"})


def _role(event: Event) -> Role:
    if event.kind in {Kind.PUBLISHED, Kind.CONFIRMED}:
        return Role.PUBLISHER
    if event.kind in _EXAMINING:
        return Role.EXAMINER
    return Role.SLOT if event.delivery else Role.RUN


def _keys_matter(shown: Iterable[Event]) -> bool:
    """Whether two messages of one key are to be seen; otherwise keys would only be noise."""
    first: dict[str, str] = {}
    return any(
        first.setdefault(event.key, event.message) != event.message
        for event in shown
        if event.key and event.message
    )


def _row(
    event: Event,
    lanes: Sequence[Lane],
    slots: Mapping[int, int],
    *,
    witness: bool,
    keys: bool,
) -> Row:
    role = _role(event)
    at = {lane.role: index for index, lane in enumerate(lanes) if lane.role is not Role.SLOT}
    lane = slots[event.delivery] if role is Role.SLOT else at[role]
    towards = None
    if event.kind in _AT_BROKER and Role.BROKER in at and role is not Role.RUN:
        towards = at[Role.BROKER]
        if event.kind in _FROM_BROKER:
            lane, towards = towards, lane
    rule = event.kind in _RULES or (
        event.kind is Kind.FAULT and event.detail.partition(" ")[0] in _RULING_FAULTS
    )
    return Row(
        event,
        lane,
        towards,
        seconds(event.at),
        event_word(event),
        event_about(event),
        event_detail(event, keys=keys),
        witness=witness,
        rule=rule,
    )
