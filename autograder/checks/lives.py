"""The subject's processes, as the rare events of a history tell them."""

from __future__ import annotations

import sys
from bisect import bisect_left
from dataclasses import dataclass, field

from autograder.model import BY_THE_MODULE, History, Kind

ALMOST = 0.9
"""Of a deadline: whoever acts then keeps to it, whatever clock it looks at."""

NEVER = sys.maxsize
"""A place after every event: what has not happened is later than all that has."""

_RARE = (
    Kind.SPAWNED,
    Kind.RUN_STARTED,
    Kind.STOP_SET,
    Kind.STOP_IN_FORCE,
    Kind.RUN_RETURNED,
    Kind.RUN_RAISED,
    Kind.CONNECTING,
    Kind.CONNECTED,
    Kind.DISCONNECTING,
    Kind.DISCONNECTED,
    Kind.EXITED,
    Kind.FAULT,
)
_FIELDS = {
    Kind.STOP_SET: "stop_set",
    Kind.STOP_IN_FORCE: "stop_in_force",
    Kind.RUN_RETURNED: "returned",
    Kind.RUN_RAISED: "raised",
    Kind.CONNECTING: "connecting",
    Kind.CONNECTED: "connected",
    Kind.DISCONNECTING: "disconnecting",
    Kind.DISCONNECTED: "disconnected",
    Kind.EXITED: "exited",
}
_FAULTS = {
    "kill": "killed",
    "died": "killed",
    "terminate": "terminated",
    "interrupt": "terminated",
    "cancel": "cancelled",
    "end": "ended",
}
_KILLED = ("signal 9", "signal SIGKILL")  # only the examiner, or the machine, kills like this


@dataclass(slots=True)
class Life:
    """One subject process. Every field but the first is a place in the history."""

    process: int
    began: int = 0
    stop_set: int = NEVER
    stop_in_force: int = NEVER
    terminated: int = NEVER  # the examiner sent SIGTERM or SIGINT, for the first time
    cancelled: int = NEVER  # the examiner cancelled run()
    ended: int = NEVER  # the source came to its end, with nothing left
    killed: int = NEVER  # by the examiner, at the end of a run, or by work that kills its process
    returned: int = NEVER  # or left by `sys.exit`, its connection closed
    raised: int = NEVER
    connecting: int = NEVER  # held at a gate of the examiner's
    connected: int = NEVER  # by a function that owns its connection
    disconnecting: int = NEVER
    disconnected: int = NEVER
    exited: int = NEVER
    expired: int = NEVER  # the time to drain in was over: a second signal, or its deadline
    signals: list[int] = field(default_factory=list)  # each that the examiner sent while it lived
    end: str = ""  # "status 0", "signal SIGTERM"
    deadline_s: float = 0.0  # that its function was given, if it was

    @property
    def told(self) -> int:
        """When anybody first asked this process to end: before, it has to go on working."""
        return min(self.stop_set, self.terminated, self.cancelled, self.ended, self.killed)

    @property
    def over(self) -> int:
        """When the student's function was done, in whatever way."""
        return min(self.returned, self.raised, self.exited, self.killed)

    @property
    def left_in_order(self) -> bool:
        """Whether it left nothing open, and no signal killed it: it closed, or never was connected."""
        closed = self.disconnected < self.exited or self.connecting < self.exited < self.connected
        return closed and self.end.startswith("status")

    def note(self, field: str, place: int) -> None:
        """Remember the first place where something happened."""
        setattr(self, field, min(place, getattr(self, field)))


class Lives(dict[int, Life]):
    """All processes in the order of their beginning; an unknown one did nothing in particular."""

    def __missing__(self, process: int) -> Life:
        return Life(process)

    @property
    def last(self) -> Life | None:
        """The process that was there at the end."""
        return next(reversed(self.values()), None)


def read_lives(history: History) -> Lives:
    """What became of each process."""
    lives, current = Lives(), 0
    for place in history.where(*_RARE):
        event = history.events[place]
        process = event.process or current  # a fault without a number meets the process of its day
        if event.kind in {Kind.SPAWNED, Kind.RUN_STARTED}:
            current = process
        life = lives.setdefault(process, Life(process, place))
        if event.kind is Kind.FAULT:
            what = _FAULTS.get(event.detail.partition(" ")[0])
        elif event.kind is Kind.STOP_SET and event.detail == BY_THE_MODULE:
            what = None  # the pool gave up by itself: nobody told it to
        else:
            what = _FIELDS.get(event.kind)
        if what:
            life.note(what, place)
        if what == "terminated" and life.exited == NEVER:
            life.signals.append(place)
        elif event.kind is Kind.RUN_STARTED:
            life.deadline_s = _option(event.detail, "deadline_s")
        elif event.kind is Kind.EXITED:
            life.end = event.detail
        if event.kind is Kind.EXITED and event.detail.startswith(_KILLED):
            life.note("killed", place)
    for life in lives.values():
        if life.exited < min(life.returned, life.raised) and life.left_in_order:
            life.returned = life.exited  # `sys.exit(0)` at the end of main is its `return 0`
        life.expired = _expired(history, life)
    return lives


def _expired(history: History, life: Life) -> int:
    """Where a process that was told to end by a signal may tear work off."""
    second = life.signals[1] if len(life.signals) > 1 else NEVER
    if not (life.signals and life.deadline_s):
        return second
    deadline = history.events[life.signals[0]].at + ALMOST * life.deadline_s
    return min(second, bisect_left(history.events, deadline, key=lambda event: event.at))


def _option(detail: str, name: str) -> float:
    """An option of the call, from `main workers=4 deadline_s=2`; 0 if there is none."""
    for word in detail.split():
        if word.startswith(f"{name}="):
            return float(word.partition("=")[2])
    return 0.0
