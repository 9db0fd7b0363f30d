"""The words everything else is written in: events, histories, verdicts, exercises and grades.

Frozen dataclasses and nothing else. A run becomes a `History`, a check turns a history into a
`Verdict`, a report draws a `Grade`. No part of this module imports another of ours, so a history
written today can be judged by a check written next year, without a broker.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any


class Kind(StrEnum):
    """What an event says. The set is closed: a check may rely on knowing every kind."""

    # the examiner's publisher
    PUBLISHED = "published"  # handed to the broker; detail: see `Content`, where it is asked about
    CONFIRMED = "confirmed"  # the broker said it has it

    # one subject process (`process` counts them: 1 is the first, 2 the one after a restart)
    SPAWNED = "spawned"  # the process exists; detail: what it is to call, if not as a pool
    RUN_STARTED = "run started"  # the student's function was called; of a main: "main workers=4"
    RUN_RETURNED = "run returned"  # it came back; detail: names of tasks it left behind, if any
    RUN_RAISED = "run raised"  # it raised; detail: the student's traceback
    EXITED = "exited"  # the process ended; detail: "status 0", "signal 9"
    BROKEN = "broken"  # the submission itself cannot be graded; detail: "code: sentence\ntraceback"

    # one delivery of one message (`delivery` numbers the takes of the whole run, from 1)
    TAKEN = "taken"  # the student's code got it from the source
    STARTED = "started"  # the handler was called with it
    HELD = "held"  # the handler waits at a gate
    FINISHED = "finished"  # the handler returned
    FAILED = "failed"  # the handler raised; detail: "transient", "permanent" or "error"
    CANCELLED = "cancelled"  # the handler was cancelled from outside
    ACK = "ack"  # ack() was called
    REQUEUE = "requeue"  # nack(requeue=True) was called; detail: the delay, if any
    GIVE_UP = "give up"  # nack(requeue=False) was called
    SETTLED = "settled"  # the call above returned
    SETTLE_FAILED = "settle failed"  # it raised SettleFailed: the message is the broker's again
    SETTLED_TWICE = "settled twice"  # it raised AlreadySettled

    # what the code itself met
    RAISED = "raised"  # an exception of no handler came out of a port, or was handled as a message was settled

    # dead letters, and what replaying them does
    DEAD_LETTER = "dead letter"  # dead_letters.publish() was called; detail: `NOBODY_ASKED`, if so
    DEAD_LETTERED = "dead-lettered"  # it returned: the broker has the letter
    REPUBLISH = "republish"  # publish() was called
    REPUBLISHED = "republished"  # it returned: the broker has the message
    PUBLISH_FAILED = "publish failed"  # one of the two raised; detail: which call
    LETTER_TAKEN = "letter taken"  # the student's code got it from the dead letters
    LETTER_ACK = "letter ack"  # its ack() or nack(requeue=False) was called: it is to go
    LETTER_BACK = "letter back"  # its nack(requeue=True) was called: it is to stay
    LETTER_SETTLED = "letter settled"  # the call above returned
    LETTER_PUT = "letter put"  # the examiner put a letter there; detail: see `Content`
    LETTER_FOUND = "letter found"  # at the end of the run the examiner found it there
    MESSAGE_FOUND = "message found"  # and this one in the queue, waiting
    # the student's database
    COMMITTED = "committed"  # a transaction's block ended without an exception
    COMMIT_LOST = (
        "commit lost"  # the connection broke in the middle of it; detail: "done" or "undone"
    )

    # the student's lease
    LEASE_WAITS = "lease waits"  # a command waits at a gate; detail: "take" or "release"
    LEASE_LOST = (
        "lease command lost"  # its connection broke: a take before it was heard, a release after
    )
    LEASE_TAKEN = "lease taken"  # the key was set; detail: its life span, "60 s" or "for ever"
    LEASE_REFUSED = "lease refused"  # somebody else holds it; told once, until it is taken
    LEASE_HAMMERED = (
        "lease hammered"  # and is asked for all the time; detail: the pauses in between
    )
    LEASE_RELEASED = (
        "lease released"  # a command that deletes came back; detail: "no" if it did nothing
    )

    # the student's consumer as a whole
    STOP_SET = "stop set"  # the stop event was set; detail: `BY_THE_MODULE` if nobody had asked
    STOP_IN_FORCE = "stop in force"  # a few loop turns later: takes from here on are new work
    SOURCE_STOPPED = "source stopped"  # stop_receiving() was called
    SOURCE_CLOSED = "source closed"  # it returned: the broker has the unread messages again

    # the connection of a process that owns it
    CONNECTING = "connecting"  # connect() was called, and waits at a gate
    CONNECTED = "connected"  # connect() returned
    DISCONNECTING = "disconnecting"  # close() was called
    DISCONNECTED = "disconnected"  # it returned: settlements are durable, the rest is given back

    # the examiner's hand
    FAULT = "fault"  # detail: kill, terminate, interrupt, pause, resume, cut, stall, slow, heal, cancel, end,
    # letters-down, letters-up: of the connection to the dead letters alone;
    # lease-taken, lease-freed: by another consumer; lease-over: its time is
    RELEASED = "released"  # a gate was opened; detail: what was released
    WEIGHED = "weighed"  # the subject was looked through; detail: "3 of 150 keys" still held
    BREAK = "break"  # the subject stands still at a labelled point; detail: "finished 10"
    COUNTED = "effects counted"  # the examiner looks into the database; an `EFFECT` for each new row follows
    EFFECT = "effect"  # one row that the work has left there, of this message; detail: what it says
    LEASE_SEEN = (
        "lease seen"  # the examiner looked who holds this message's lease; detail: see `Holder`
    )
    EXPECTED = "expected"  # a condition the scenario waited for; detail: see `Wait`
    BROKER = "broker"  # what the broker says now; detail: "waiting=3 unsettled=0 consumers=0"


DIED_AT_WORK = "died at work"  # detail of the one `FAULT` that a subject reports itself
BY_THE_MODULE = "by the module"  # detail of a `STOP_SET` that nobody asked for
NOBODY_ASKED = "nowait"  # detail of a `DEAD_LETTER` of which nobody will hear whether it arrived


class Wait(StrEnum):
    """How waiting for a condition ended: the first word of an `EXPECTED` event's detail."""

    MET = "met"
    STALLED = "stalled"  # loop alive, messages within reach, nothing moved: the pool stands
    DRAINED = "drained"  # broker empty, nothing in hand, and still the condition does not hold
    BLOCKED = "blocked"  # the process lives but its event loop has not turned for seconds
    STORM = "storm"  # one message was taken over and over: this would go on for ever
    ENDED = "ended"  # the subject was gone before the condition held
    LATE = "late"  # time ran out while something still moved or the broker was slow: no verdict


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, stamped by the examiner on arrival.

    `at` is in seconds since the run began. Fields that do not apply are empty or 0.
    """

    at: float
    kind: Kind
    message: str = ""
    key: str = ""
    delivery: int = 0
    attempt: int = 0
    process: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """What the broker itself says at the end of a run: the third witness.

    Counts are messages. -1 means that this broker cannot tell.
    """

    waiting: int = -1  # not delivered to anybody
    unsettled: int = -1  # delivered and not settled
    settled: int = -1  # acknowledged or given up; Kafka: below the committed offset
    redelivered: int = -1
    consumers: int = -1  # processes that it would still deliver to
    dead_letters: int = -1  # there at the end; -1 as well where a run has none, or nobody looked


@dataclass(frozen=True, slots=True)
class Content:
    """What a message says, as an event's detail tells it: enough to see whether it was changed."""

    body: str  # a digest: bodies are long, and may be no text
    headers: Mapping[str, str] = field(default_factory=dict)
    readable: bool = True  # whether the body is JSON

    @classmethod
    def of(cls, body: bytes, headers: Mapping[str, str]) -> Content:
        """The content of a message."""
        try:
            json.loads(body)
        except (ValueError, RecursionError):
            readable = False
        else:
            readable = True
        return cls(hashlib.sha256(body).hexdigest()[:12], dict(headers), readable)

    @classmethod
    def read(cls, detail: str) -> Content | None:
        """From an event's detail; None for one that tells of none."""
        try:
            return cls(**json.loads(detail))
        except (ValueError, TypeError):
            return None

    def __str__(self) -> str:
        """One line of JSON."""
        said = {"body": self.body, "headers": dict(self.headers), "readable": self.readable}
        return json.dumps(said)


@dataclass(frozen=True)
class Holder:
    """Who holds a lease, as the examiner found it."""

    token: int = 0  # which of the tokens seen so far, from 1; 0: nobody's, -1: another consumer's
    left_s: float | None = None  # until it ends by itself; None: it does not

    @classmethod
    def read(cls, detail: str) -> Holder:
        """From an event's detail. Raises `ValueError` for what is none."""
        who, _, left = detail.partition(", ")
        seconds = None if left in {"", FOR_EVER} else float(left.removesuffix(" s left"))
        token = _NO_TOKEN[who] if who in _NO_TOKEN else int(who.removeprefix("token "))
        return cls(token, seconds)

    def __str__(self) -> str:
        """`token 2, 59.9 s left`, `nobody`, `another consumer`: the examiner gives its own no life span."""
        left = FOR_EVER if self.left_s is None else f"{self.left_s:.1f} s left"
        for said, token in _NO_TOKEN.items():
            if token == self.token:
                return said if self.left_s is None else f"{said}, {left}"
        return f"token {self.token}, {left}"


FOR_EVER = "for ever"  # the life span of a key that has none
_NO_TOKEN = {"nobody": 0, "another consumer": -1}


@dataclass(frozen=True)
class History:
    """One run, complete: what was asked for and every event in the order the examiner saw it."""

    events: tuple[Event, ...]
    workers: int
    exercise: str = ""
    test: str = ""
    engine: str = ""
    seed: int = 0
    broker: BrokerState = field(default_factory=BrokerState)
    truncated: bool = False  # the exercise's time ran out: events are missing at the end

    @cached_property
    def places(self) -> Mapping[Kind, Sequence[int]]:
        """Where in `events` each kind stands, ascending; one pass over the history, made once.

        The place is what tells before from after: events that arrived together share their time.
        """
        groups: dict[Kind, list[int]] = {kind: [] for kind in Kind}
        append = {kind: places.append for kind, places in groups.items()}
        for place, event in enumerate(self.events):
            append[event.kind](place)
        return groups

    @cached_property
    def by_kind(self) -> Mapping[Kind, tuple[Event, ...]]:
        """All events, grouped once, so that a check visits only what it needs."""
        return {kind: self.at(places) for kind, places in self.places.items()}

    def at(self, places: Iterable[int]) -> tuple[Event, ...]:
        """The events at these places."""
        return tuple(map(self.events.__getitem__, places))

    def where(self, *kinds: Kind) -> Sequence[int]:
        """The places of the events of these kinds, ascending."""
        if len(kinds) == 1:
            return self.places[kinds[0]]
        return sorted(chain.from_iterable(self.places[kind] for kind in set(kinds)))

    def of(self, *kinds: Kind) -> tuple[Event, ...]:
        """The events of these kinds, in time order."""
        return self.by_kind[kinds[0]] if len(kinds) == 1 else self.at(self.where(*kinds))

    def about(self, message: str) -> tuple[Event, ...]:
        """Everything that happened to one message, in time order."""
        return tuple(event for event in self.events if event.message == message)


class Status(StrEnum):
    """The three verdicts. A fault of ours is no verdict: it is a `GraderError`."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one check concludes from one history.

    `witness` holds the few events that broke the rule, in time order: a picture of all of them
    would hide the one that matters. `slip` is the likeliest mistake, phrased as a question.
    """

    status: Status
    observed: str = ""
    witness: tuple[Event, ...] = ()
    slip: str = ""


def passed(observed: str = "") -> Verdict:
    """The rule held, and something was seen to which it applied."""
    return Verdict(Status.PASS, observed)


def failed(observed: str, witness: Iterable[Event] = (), slip: str = "") -> Verdict:
    """The rule was broken: say what was seen, which events show it, and the likeliest slip."""
    return Verdict(Status.FAIL, observed, tuple(witness), slip)


def inconclusive(observed: str, witness: Iterable[Event] = ()) -> Verdict:
    """The history does not tell. Never a pass, never the student's fault."""
    return Verdict(Status.INCONCLUSIVE, observed, tuple(witness))


def unwritten(event: Event) -> bool:
    """Whether the student's function raised NotImplementedError here, as a skeleton does."""
    return event.kind is Kind.RUN_RAISED and event.detail.startswith("NotImplementedError")


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A true sentence about a good system, and the check that tells whether it held.

    Calling a guarantee judges a history.
    """

    name: str
    sentence: str  # first line of the check's docstring: what a student reads
    description: str  # the rest of it: when it is wrong, what is tolerated
    check: Callable[[History], Verdict]

    def __call__(self, history: History) -> Verdict:
        """Judge one history."""
        return self.check(history)


@dataclass(frozen=True, slots=True)
class Call:
    """How a function of a student's is called: the names of what it is given.

    A name is an option that a scenario sets (`workers`), or something the host provides (`source`).
    """

    function: str
    positional: tuple[str, ...] = ("source", "handle")
    named: tuple[str, ...] = ("workers", "stop")

    @classmethod
    def read(cls, function: str, text: str) -> Call:
        """From `source, handle, *, workers, stop`. Raises `ValueError` for what is no such list."""
        before, _, after = text.partition("*")
        parts = [[name.strip() for name in part.split(",")] for part in (before, after)]
        positional, named = ([name for name in part if name] for part in parts)
        names = [*positional, *named]
        if not all(map(str.isidentifier, names)) or len(set(names)) < len(names):
            raise ValueError(text)
        return cls(function, tuple(positional), tuple(named))

    @property
    def names(self) -> tuple[str, ...]:
        """Everything it is given."""
        return (*self.positional, *self.named)

    @property
    def is_main(self) -> bool:
        """Whether the function is all there is to its process: signals and exit status are its own."""
        return "connect" in self.names

    def __str__(self) -> str:
        """`run(source, handle, workers=..., stop=...)`."""
        return f"{self.function}({', '.join([*self.positional, *(f'{name}=...' for name in self.named)])})"


@dataclass(frozen=True)
class Exercise:
    """One exercise as its folder describes it. `path` is `NN_unit/NN_slug`."""

    path: str
    title: str
    kind: str
    module: str  # file stem, e.g. "worker_pool"
    function: str  # e.g. "run"
    engines: tuple[str, ...]
    timeout_s: float
    points: Mapping[str, int]  # guarantee name -> points
    folder: Path  # exercises/NN_unit/NN_slug
    solution_folder: Path  # solutions/NN_unit/NN_slug; absent in the student edition
    calls: tuple[Call, ...] = ()  # of functions that are not called as the pools are
    tables: str = ""  # SQL of tables.sql: what the exercise's database holds when a run begins

    def call(self, function: str = "") -> Call:
        """How one of its functions is called; the entry, if none is named. Raises `KeyError`."""
        calls = {self.function: Call(self.function)} | {each.function: each for each in self.calls}
        return calls[function or self.function]

    @property
    def skeleton(self) -> Path:
        """The file a student edits."""
        return self.folder / f"{self.module}.py"

    @property
    def reference(self) -> Path:
        """Our own solution."""
        return self.solution_folder / f"{self.module}.py"

    @property
    def hidden_tests(self) -> Path:
        """The tests that grade."""
        return self.solution_folder / "test_hidden.py"

    @property
    def visible_tests(self) -> Path:
        """The tests a student may read and run."""
        return self.folder / "test_visible.py"


@dataclass(frozen=True)
class Result:
    """One guarantee, judged over every scenario and seed of a grade: the worst verdict counts."""

    guarantee: str
    sentence: str
    points: int
    verdict: Verdict
    histories: int  # how many runs were judged
    test: str = ""  # the scenario and seed the verdict comes from
    seed: int = 0
    history: History | None = field(default=None, repr=False, compare=False)
    replay: str = ""  # the name of the simulated run it comes from, if it does

    @property
    def awarded(self) -> int:
        """All points for a pass, none otherwise."""
        return self.points if self.verdict.status is Status.PASS else 0


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a submission could not be graded at all: a code, a sentence, the student's traceback."""

    code: str
    sentence: str
    traceback: str = ""


@dataclass(frozen=True)
class Grade:
    """Everything a report needs. Reports decide nothing."""

    exercise: Exercise
    submission: Path
    submission_sha256: str
    engine: str
    provider: str  # external, warm, embedded, local, container
    broker_version: str
    isolation: str  # landlock, plain
    seeds: tuple[int, ...]
    results: tuple[Result, ...]
    problem: Problem | None = None
    notices: tuple[str, ...] = ()  # said once, above the results
    output: str = ""  # what the subject printed, capped
    duration_s: float = 0.0
    started_at: str = ""  # ISO 8601, UTC
    versions: Mapping[str, str] = field(default_factory=dict)  # python, ackademy, clients
    complete: bool = True  # False after Ctrl-C: judged so far

    @property
    def status(self) -> Status:
        """The worst verdict; a grade without results is inconclusive."""
        statuses = {result.verdict.status for result in self.results}
        if self.problem is not None or Status.FAIL in statuses:
            return Status.FAIL
        if not statuses or Status.INCONCLUSIVE in statuses or not self.complete:
            return Status.INCONCLUSIVE
        return Status.PASS

    @property
    def points(self) -> int:
        """Points reached."""
        return sum(result.awarded for result in self.results)

    @property
    def points_possible(self) -> int:
        """Points there are for what was graded: visible tests cover a part."""
        return sum(result.points for result in self.results)


class AckademyError(Exception):
    """Something a person can mend: `next_command` is what to type."""

    exit_code = 2

    def __init__(self, sentence: str, *, next_command: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.next_command = next_command


class UsageError(AckademyError):
    """The command, a path or a file of the student's is not usable. Exit code 2."""


class GraderError(AckademyError):
    """Our fault or the machine's: broker gone, disk full, a bug. Costs nobody points. Exit code 3."""

    exit_code = 3


def as_json(value: Any) -> Any:
    """A dataclass tree as plain JSON data: enums as their text, paths as POSIX text, tuples as lists."""
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, Path):
        return value.as_posix()
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: as_json(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
