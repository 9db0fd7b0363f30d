"""The recorder: stamps events as they arrive and keeps the counters that scenarios wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from autograder.model import DIED_AT_WORK, Event, Kind, Wait
from autograder.subject import tally

_OURS = {
    Kind.PUBLISHED, Kind.CONFIRMED, Kind.SPAWNED, Kind.EXITED, Kind.RELEASED, Kind.EXPECTED,
    Kind.LETTER_PUT, Kind.LETTER_FOUND, Kind.MESSAGE_FOUND,
    Kind.COUNTED, Kind.EFFECT, Kind.LEASE_SEEN, Kind.BROKER,
}  # fmt: skip
_SUBJECT_KINDS = {str(kind): kind for kind in Kind if kind not in _OURS}
MOST_EVENTS = 1_000_000  # of one run: the examiner's memory is bounded, too
_SHAPE = (str, str, str, int, int, str)


@dataclass
class Beat:
    """What the subject's last heartbeat said, and how many came since anything moved."""

    buffered: int = 0
    in_hand: int = 0
    busy: int = 0
    held: int = 0
    settling: int = 0
    connections: int = 0
    still: int = 0  # heartbeats since the last event
    at: float = 0.0  # when it came, monotonic seconds


@dataclass
class Life(tally.Life):
    """One subject process, and the event of its end."""

    exited: asyncio.Event = field(default_factory=asyncio.Event)
    beats: int = 0  # heartbeats so far: its loop turned as often, at least


class Recorder(tally.Tally):
    """One run's events. The examiner's clock is the only clock."""

    life: Life

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._began = clock()
        self._rows: list[tuple[Any, ...]] = []  # an event's fields; made into events at the end
        self.changed = asyncio.Event()
        self.beat = Beat()
        self.life = Life(0, 0)
        self.moved_at = self._began

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything recorded so far, in the order it arrived."""
        return self.since(0)

    @property
    def size(self) -> int:
        """How many events that is: `events` makes them all anew."""
        return len(self._rows)

    def since(self, place: int) -> tuple[Event, ...]:
        """The events from this place on."""
        return tuple(starmap(Event, self._rows[place:]))

    def told_until(self, place: int) -> tuple[Event, ...]:
        """The events up to this place, and what the subject still told until its end.

        It works until it is killed, and the broker is looked at after that: what it settled meanwhile
        would seem lost. Its end itself is our tidying up, and no part of the history.
        """
        events = self.events
        tidying = {Kind.EXITED, Kind.BROKEN}
        return events[:place] + tuple(each for each in events[place:] if each.kind not in tidying)

    def owed(self) -> int:
        """How many confirmed messages nobody has tried to ack or to give up."""
        left: set[str] = set()
        for _, kind, message, *_ in self._rows:
            if kind is Kind.CONFIRMED:
                left.add(message)
            elif kind in {Kind.ACK, Kind.GIVE_UP}:
                left.discard(message)
        return len(left)

    @property
    def last_wait(self) -> Wait | None:
        """How the latest waiting for a condition ended, if that was the latest event."""
        kind, detail = self._rows[-1][1], self._rows[-1][-1]
        return Wait(detail.partition(" ")[0]) if kind is Kind.EXPECTED else None

    def begin_life(self, *, beside: bool = False) -> Life:
        """A new subject process: its deliveries are numbered after those before."""
        self.begin(Life(self.life.number + 1, self.before(beside=beside)), beside=beside)
        self.moved_at = self._clock()
        self.beat = Beat(at=self.moved_at)
        return self.life

    def end_life(self, life: Life) -> None:
        """The process is gone."""
        self.end(life)
        life.exited.set()
        self.changed.set()

    def note(
        self,
        kind: Kind,
        detail: str = "",
        *,
        message: str = "",
        key: str = "",
        life: Life | None = None,
    ) -> None:
        """Record something the examiner did or saw itself; it is about the newest life, or this one."""
        at = self._clock()
        number = (life or self.life).number
        self._rows.append((at - self._began, kind, message, key, 0, 0, number, detail))
        self.moved_at = at
        self.beat.still = 0
        self.changed.set()

    def from_subject(self, now: float, life: Life, line: list[Any]) -> None:
        """Record an event line of the subject's. Raises `ValueError` if it is not one."""
        if len(self._rows) >= MOST_EVENTS:
            raise ValueError(f"more than {MOST_EVENTS:,} events")
        if tuple(map(type, line)) != _SHAPE or line[0] not in _SUBJECT_KINDS:
            raise ValueError(f"not an event: {line!r:.80}")
        name, message, key, delivery, attempt, detail = line
        kind = _SUBJECT_KINDS[name]
        if kind is Kind.FAULT and detail != DIED_AT_WORK:
            raise ValueError(f"not a fault of its own: {detail!r:.80}")
        delivery = self.numbered(life, delivery)
        self._rows.append(
            (now - self._began, kind, message, key, delivery, attempt, life.number, detail)
        )
        if kind is not Kind.RAISED:  # a loop that only fails moves nothing
            self.moved_at = now
            self.beat.still = 0
        self.tell(life, kind, message, delivery, detail)

    def heartbeat(self, now: float, figures: list[int], life: Life | None = None) -> None:
        """Note a heartbeat: the subject's loop turned once more.

        How things stand is told of the newest process: who has another beside it waits for events.
        """
        buffered, in_hand, busy, held, settling, connections = figures
        (life or self.life).beats += 1
        if life is not None and life is not self.life:
            return
        self.connections = connections
        still = self.beat.still + 1
        self.beat = Beat(buffered, in_hand, busy, held, settling, connections, still, now)
