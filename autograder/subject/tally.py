"""Counts of a run's events, by the names that scenarios wait for.

The examiner keeps one of what it was told; a simulated world keeps one of its own, so that it can stand
still in the very moment in which a condition comes to hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from autograder.model import Kind

FLAGS = ("connecting", "returned", "exited", "at_break")
"""Conditions that are true or not; all others are counts."""

ROOM = 10_000
"""Deliveries that a process may still take after another was started beside it."""

_SETTLING = {Kind.ACK, Kind.REQUEUE, Kind.GIVE_UP}
_HANDLER_ENDS = {Kind.FINISHED, Kind.FAILED, Kind.CANCELLED}
_DISTINCT = {
    Kind.TAKEN: "taken", Kind.STARTED: "started", Kind.FINISHED: "finished",
    Kind.DEAD_LETTERED: "dead_lettered",
    Kind.REPUBLISH: "republishing", Kind.REPUBLISHED: "republished",
}  # fmt: skip
_EVENTS = {
    Kind.FAILED: "failed", Kind.REQUEUE: "requeued", Kind.CANCELLED: "cancelled",
    Kind.PUBLISH_FAILED: "publish_failed",
    Kind.LEASE_WAITS: "lease_waits", Kind.LEASE_REFUSED: "lease_refused",
    Kind.LEASE_TAKEN: "lease_taken",
}  # fmt: skip
_REPEATED = {Kind.TAKEN, Kind.STARTED, Kind.DEAD_LETTER, Kind.LETTER_TAKEN, Kind.REPUBLISH}


@dataclass
class Life:
    """One subject process, as far as its events tell."""

    number: int
    first_delivery: int  # added to the process's own numbers
    called: bool = False  # the student's function was
    connecting: bool = False  # the student's own call of connect() waits at a gate
    connected: bool = False  # and came back
    stopped: bool = False  # it was told to stop, and the turns of grace are over
    returned: bool = False  # the student's function came back or raised
    at_break: bool = False
    broken: bool = False
    died_at_work: bool = False
    ended_by_us: bool = False
    told: bool = False  # by a signal, to end
    gone: bool = False  # nothing of the process is left
    running: set[int] = field(default_factory=set)


STORM_REPEATS = 100
"""Takes or handler calls of one message: no scenario asks for a tenth of it."""

STORM_REPEATS_IN_ALL = 3_000
"""Those of all messages beyond each one's first: a hundred messages go round as one does."""


class Tally:
    """Counters over all lives of a run."""

    def __init__(self) -> None:
        self.life = Life(0, 0)
        self.beside: list[Life] = []  # of a process that was there before, and still is
        self.connections = 0  # how often the present process has connected
        self.connections_at_cut = 0
        self._in_all = 0  # how often anything was, that had been before
        self._most_repeats = 0  # how often one message was taken, handled or published, at most
        self._messages: dict[str, set[str]] = {
            name: set() for name in (*_DISTINCT.values(), "settled", "given_up")
        }
        self._counts: Counter[str] = Counter()
        self._last_call: dict[int, tuple[Kind, str]] = {}
        self._unsure: set[str] = set()
        self.deliveries = 0  # the highest number there was
        self._repeats: Counter[tuple[Kind, str]] = Counter()

    @property
    def is_storm(self) -> bool:
        """Whether messages come again so often that this would go on for ever."""
        return self._most_repeats > STORM_REPEATS or self._in_all > STORM_REPEATS_IN_ALL

    @property
    def lives(self) -> list[Life]:
        """Those of the processes that were started to live together; the newest comes last."""
        return [*self.beside, self.life]

    def awaits_stop(self, life: Life) -> bool:
        """Whether a stop is to be told to this process: one alone hears each, of two who has heard none."""
        return not self.beside or not life.stopped

    def are_over(self, *, wanted: bool) -> bool:
        """Whether nothing more can be waited for: one of them broke, or all came back, or are gone.

        If their end itself is `wanted`, coming back is not enough. Asked after every step of a simulation.
        """
        if not self.beside:
            life = self.life
            return life.broken or life.gone or (life.returned and not wanted)
        return any(each.broken for each in self.lives) or all(
            each.gone or (each.returned and not wanted) for each in self.lives
        )

    def begin(self, life: Life, *, beside: bool) -> None:
        """A new process: in place of those there were, or beside them."""
        self.beside = self.lives if beside else []
        self.life = life
        self.connections = 0

    def before(self, *, beside: bool) -> int:
        """What a new process's deliveries are numbered after: one beside it may still take some."""
        return self.deliveries + (ROOM if beside else 0)

    def numbered(self, life: Life, delivery: int) -> int:
        """A process's own number of a delivery as the run's number; 0 stays 0."""
        if delivery:
            delivery += life.first_delivery
            self.deliveries = max(self.deliveries, delivery)
        return delivery

    def end(self, life: Life) -> None:
        """The process is gone: no handler runs, and calls that were under way have an unknown end.

        A settlement the process was killed in counts as settled, unless the broker delivers the
        message again: the broker may have had it before the answer came.
        """
        life.gone = True
        life.running.clear()
        for call, message in self._last_call.values():
            if call is not Kind.REQUEUE:
                self._unsure.add(message)
        self._last_call.clear()

    def tell(self, life: Life, kind: Kind, message: str, delivery: int, detail: str) -> None:
        """Count one event of the subject's; `delivery` is the run's number."""
        if kind is Kind.TAKEN:
            self._unsure.discard(message)
        if kind in _REPEATED:
            self._repeats[kind, message] += 1
            self._in_all += self._repeats[kind, message] > 1
            self._most_repeats = max(self._most_repeats, self._repeats[kind, message])
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
            _mark(life, kind)

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
            return max(0, self.connections - self.connections_at_cut)
        if name == "running":
            return sum(len(each.running) for each in self.lives)
        raise KeyError(name)

    def value(self, name: str) -> int:
        """A condition's value: a counter, or 1 for a flag that is up."""
        match name:
            case "connecting":
                return int(self.life.connecting)
            case "returned":
                return int(all(each.returned or each.gone for each in self.lives))
            case "exited":
                return int(all(each.gone for each in self.lives))
            case "at_break":
                return int(self.life.at_break)
            case "answered":
                return 0
        return self.count(name)

    def holds(self, conditions: Mapping[str, int | bool]) -> bool:
        """Whether all conditions hold: `running` exactly, all others at least."""
        for name, wanted in conditions.items():
            value = self.value(name)
            if value != wanted if name == "running" else value < wanted:
                return False
        return True


def _mark(life: Life, kind: Kind) -> None:
    """Note what this event says about its process."""
    if kind in {Kind.RUN_RETURNED, Kind.RUN_RAISED}:
        life.returned = True
    elif kind is Kind.RUN_STARTED:
        life.called = True
    elif kind is Kind.CONNECTING:
        life.connecting = True
    elif kind is Kind.CONNECTED:
        life.connected = True
    elif kind is Kind.STOP_IN_FORCE:
        life.stopped = True
    elif kind is Kind.BREAK:
        life.at_break = True
    elif kind is Kind.BROKEN:
        life.broken = True
    elif kind is Kind.FAULT:
        life.died_at_work = True
