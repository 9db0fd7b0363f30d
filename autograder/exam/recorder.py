"""The recorder: stamps events as they arrive and keeps the counters that scenarios wait for."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from autograder.model import DIED_AT_WORK, Event, Kind

_OURS = {
    Kind.PUBLISHED, Kind.CONFIRMED, Kind.SPAWNED, Kind.EXITED, Kind.RELEASED, Kind.EXPECTED,
}  # fmt: skip
_SUBJECT_KINDS = {str(kind): kind for kind in Kind if kind not in _OURS}
MOST_EVENTS = 1_000_000  # of one run: the examiner's memory is bounded, too
_SHAPE = (str, str, str, int, int, str)
_SETTLING = {Kind.ACK, Kind.REQUEUE, Kind.GIVE_UP}
_HANDLER_ENDS = {Kind.FINISHED, Kind.FAILED, Kind.CANCELLED}
_DISTINCT = {Kind.TAKEN: "taken", Kind.STARTED: "started", Kind.FINISHED: "finished"}
_EVENTS = {Kind.FAILED: "failed", Kind.REQUEUE: "requeued", Kind.CANCELLED: "cancelled"}


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
class Life:
    """One subject process, as far as its events tell."""

    number: int
    first_delivery: int  # added to the process's own numbers
    called: bool = False  # the student's function was
    stopped: bool = False  # its stop event was set, and the turns of grace are over
    returned: bool = False  # the student's function came back or raised
    at_break: bool = False
    broken: bool = False
    died_at_work: bool = False
    ended_by_us: bool = False
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    running: set[int] = field(default_factory=set)


class Recorder:
    """One run's events. The examiner's clock is the only clock."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._rows: list[tuple[Any, ...]] = []  # an event's fields; made into events at the end
        self.changed = asyncio.Event()
        self.beat = Beat()
        self.life = Life(0, 0)
        self.moved_at = self._began
        self._messages: dict[str, set[str]] = {
            name: set() for name in (*_DISTINCT.values(), "settled", "given_up")
        }
        self._counts: Counter[str] = Counter()
        self._last_call: dict[int, tuple[Kind, str]] = {}
        self._unsure: set[str] = set()
        self._deliveries = 0
        self._repeats: Counter[tuple[Kind, str]] = Counter()
        self.connections_at_cut = 0
        self.most_repeats = 0  # how often one message was taken, or handled, at most

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything recorded so far, in the order it arrived."""
        return tuple(starmap(Event, self._rows))

    def begin_life(self) -> Life:
        """A new subject process: its deliveries are numbered after those before."""
        self.life = Life(self.life.number + 1, self._deliveries)
        self.beat = Beat(at=time.monotonic())
        self.moved_at = time.monotonic()
        return self.life

    def end_life(self, life: Life) -> None:
        """The process is gone: no handler runs, and calls that were under way have an unknown end.

        A settlement the process was killed in counts as settled, unless the broker delivers the
        message again: the broker may have had it before the answer came.
        """
        life.running.clear()
        for call, message in self._last_call.values():
            if call is not Kind.REQUEUE:
                self._unsure.add(message)
        self._last_call.clear()
        life.exited.set()
        self.changed.set()

    def note(self, kind: Kind, detail: str = "", *, message: str = "", key: str = "") -> None:
        """Record something the examiner did or saw itself."""
        at = time.monotonic()
        self._rows.append((at - self._began, kind, message, key, 0, 0, self.life.number, detail))
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
        if delivery:
            delivery += life.first_delivery
            self._deliveries = max(self._deliveries, delivery)
        self._rows.append(
            (now - self._began, kind, message, key, delivery, attempt, life.number, detail)
        )
        self.moved_at = now
        self.beat.still = 0
        self._count(life, kind, message, delivery, detail)

    def _count(self, life: Life, kind: Kind, message: str, delivery: int, detail: str) -> None:
        if kind is Kind.TAKEN:
            self._unsure.discard(message)
        if kind in {Kind.TAKEN, Kind.STARTED}:
            self._repeats[kind, message] += 1
            self.most_repeats = max(self.most_repeats, self._repeats[kind, message])
        if kind in _DISTINCT:
            self._messages[_DISTINCT[kind]].add(message)
        elif kind in _EVENTS:
            self._counts[_EVENTS[kind]] += 1
        if kind is Kind.STARTED:
            life.running.add(delivery)
        elif kind in _HANDLER_ENDS:
            life.running.discard(delivery)
        elif kind in _SETTLING:
            self._last_call[delivery] = kind, message
        elif kind is Kind.SETTLED:
            call, _ = self._last_call.pop(delivery, (None, ""))
            if call is not Kind.REQUEUE:
                self._messages["settled"].add(message)
            if call is Kind.GIVE_UP:
                self._messages["given_up"].add(message)
        else:
            self._mark(life, kind, detail)

    @staticmethod
    def _mark(life: Life, kind: Kind, detail: str) -> None:
        if kind in {Kind.RUN_RETURNED, Kind.RUN_RAISED}:
            life.returned = True
        elif kind is Kind.RUN_STARTED:
            life.called = True
        elif kind is Kind.STOP_IN_FORCE:
            life.stopped = True
        elif kind is Kind.BREAK:
            life.at_break = True
        elif kind is Kind.BROKEN:
            life.broken = True
        elif kind is Kind.FAULT:
            life.died_at_work = True

    def heartbeat(self, now: float, figures: list[int]) -> None:
        """Note a heartbeat: the subject's loop turned once more."""
        buffered, in_hand, busy, held, settling, connections = figures
        still = self.beat.still + 1
        self.beat = Beat(buffered, in_hand, busy, held, settling, connections, still, now)

    def count(self, name: str) -> int:
        """A counter by the name `until` uses. Raises `KeyError` for a name there is not."""
        if name == "settled":
            settled = self._messages[name]
            return len(settled) + len(self._unsure - settled)
        if name in self._messages:
            return len(self._messages[name])
        if name in _EVENTS.values():
            return self._counts[name]
        if name == "reconnected":
            return max(0, self.beat.connections - self.connections_at_cut)
        if name == "running":
            return len(self.life.running)
        raise KeyError(name)
