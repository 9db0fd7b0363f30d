"""How a report says things: verdicts, events, waits, places and the commands to type next.

The terminal, the page and the picture share these, so that one thing has one wording.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from autograder.model import Event, Grade, Kind, Result, Status, Wait
from autograder.report.plain import plain, shortened

WORD = {Status.PASS: "PASS", Status.FAIL: "FAIL", Status.INCONCLUSIVE: "????"}
GLYPH = {Status.PASS: "✓", Status.FAIL: "✗", Status.INCONCLUSIVE: "?"}
LONG_WORD = {
    Status.PASS: "passed",
    Status.FAIL: "failed",
    Status.INCONCLUSIVE: "inconclusive",
}

# What comes from students may be a megabyte long and still call itself a name or a sentence.
_NAME_LIMIT, _SENTENCE_LIMIT = 48, 600

_FAULTS = {
    "kill": "killed (SIGKILL)",
    "terminate": "terminated (SIGTERM)",
    "pause": "paused (SIGSTOP)",
    "resume": "resumed (SIGCONT)",
    "cut": "connections cut",
    "stall": "network stalled",
    "slow": "network slowed",
    "heal": "network healed",
    "cancel": "run() cancelled",
}
_EVENTS = {
    Kind.RUN_STARTED: "run() called",
    Kind.RUN_RETURNED: "run() returned",
    Kind.RUN_RAISED: "run() raised",
    Kind.SPAWNED: "process started",
    Kind.EXITED: "process ended",
    Kind.BROKEN: "cannot be graded",
    Kind.STOP_SET: "stop was set",
    Kind.SOURCE_STOPPED: "source stopped",
    Kind.ACK: "acked",
    Kind.GIVE_UP: "gave up",
    Kind.REQUEUE: "gave back",
    Kind.BREAK: "stands still",
    Kind.RELEASED: "gate opened",
    Kind.EXPECTED: "waited for",
}
_WAITS = {
    Wait.MET: "",
    Wait.STALLED: "nothing moved any more",
    Wait.DRAINED: "nothing was left to do",
    Wait.BLOCKED: "the event loop did not turn",
    Wait.STORM: "one message came back again and again",
    Wait.ENDED: "the process was gone",
    Wait.LATE: "time ran out",
}


def event_word(event: Event) -> str:
    """What happened, in at most three words."""
    if event.kind is Kind.FAULT:
        first = event.detail.partition(" ")[0]
        return _FAULTS.get(first, plain(shortened(first, _NAME_LIMIT)) or "fault")
    return _EVENTS.get(event.kind, str(event.kind))


def event_about(event: Event) -> str:
    """The message it happened to, as far as there is one."""
    return plain(shortened(event.message, _NAME_LIMIT))


def event_detail(event: Event, *, keys: bool = True) -> str:
    """What else is worth saying in one line: key (if keys matter), attempt, reason, figures."""
    parts: list[str] = []
    if keys and event.message and event.key:
        parts.append(f"key {plain(shortened(event.key, _NAME_LIMIT))}")
    if event.attempt > 1:
        parts.append(f"attempt {event.attempt}")
    said = _said(event)
    if said:
        parts.append(said)
    return ", ".join(parts)


def _said(event: Event) -> str:
    first_line = plain(shortened(event.detail.partition("\n")[0], _SENTENCE_LIMIT))
    if event.kind is Kind.FAULT:
        return first_line.partition(" ")[2]
    if event.kind is Kind.EXPECTED:
        return expectation(first_line)
    if event.kind is Kind.RUN_RETURNED and first_line:
        return f"tasks left behind: {first_line}"
    return first_line


def expectation(detail: str) -> str:
    """An `EXPECTED` event's figures as a sentence; unknown shapes are shown as they are.

    `stalled running=4 seen=1 buffered=36` becomes
    `4 running, saw 1: nothing moved any more (36 buffered)`.
    """
    outcome, *pairs = detail.split() or [""]
    figures = [pair.partition("=") for pair in pairs]
    if outcome not in set(Wait) or not figures or not all(value for _, _, value in figures):
        return detail
    (name, _, wanted), *rest = figures
    name = name.replace("_", " ")
    said = name if wanted == "True" else f"{wanted} {name}"
    seen = [value for key, _, value in rest if key == "seen"]
    if seen and wanted != "True":
        said += f", saw {seen[0]}"
    if _WAITS[Wait(outcome)]:
        said += f": {_WAITS[Wait(outcome)]}"
    others = [f"{value} {key.replace('_', ' ')}" for key, _, value in rest if key != "seen"]
    return f"{said} ({', '.join(others)})" if others else said


def sentence(text: str) -> str:
    """An observation, a slip, a notice: one paragraph of bearable length."""
    return plain(shortened(text, _SENTENCE_LIMIT))


def seconds(at: float) -> str:
    """A moment of a run, in seconds since it began, to the millisecond."""
    return f"{at:.3f} s"


def root_of(grade: Grade) -> Path:
    """The course's folder: exercises live in `exercises/NN_unit/NN_slug` below it."""
    parents = grade.exercise.folder.parents
    return parents[2] if len(parents) > 2 else grade.exercise.folder


def submission_path(grade: Grade) -> str:
    """The graded file, relative to the course or to the working folder where that serves."""
    path = grade.submission
    for base in (root_of(grade), Path.cwd()):
        if path.is_absolute() and base.is_absolute() and path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return path.as_posix()


def check_command(grade: Grade, result: Result | None = None) -> str:
    """The command that grades again: one seed, if it is one result that is to be seen again."""
    words = ["ackademy", "check", grade.exercise.path]
    if result is not None and result.seed:
        words += ["--seed", str(result.seed)]
    if grade.engine:
        words += ["--engine", grade.engine]
    if grade.submission != grade.exercise.skeleton:
        words += ["--submission", submission_path(grade)]
    return plain(shlex.join(words))


def hint_command(result: Result) -> str:
    """The command that shows the next hint for one guarantee."""
    return plain(shlex.join(["ackademy", "hint", result.guarantee]))


def next_command(grade: Grade) -> str:
    """The one command to type after reading this grade."""
    if grade.problem is not None:
        return check_command(grade)
    for status, command in ((Status.FAIL, hint_command), (Status.INCONCLUSIVE, None)):
        for result in grade.results:
            if result.verdict.status is status:
                return command(result) if command else check_command(grade, result)
    return "ackademy list" if grade.status is Status.PASS else check_command(grade)


def not_judged(grade: Grade) -> tuple[str, ...]:
    """Guarantees that carry points and have no result: the run was interrupted before them."""
    judged = {result.guarantee for result in grade.results}
    return tuple(name for name in grade.exercise.points if name not in judged)


def headline(grade: Grade) -> str:
    """The verdict on the whole, in words that do not depend on a colour."""
    if not grade.complete:
        return "interrupted"
    return LONG_WORD[grade.status]


def score(result: Result) -> str:
    """Points reached of points there are; an inconclusive verdict has reached neither."""
    reached = "-" if result.verdict.status is Status.INCONCLUSIVE else str(result.awarded)
    return f"{reached}/{result.points}"


def origin(result: Result) -> str:
    """The guarantee's name and the run its verdict comes from."""
    seed = f"seed {result.seed}" if result.seed else ""
    return plain(" · ".join(filter(None, (result.guarantee, result.test, seed))))


def environment(grade: Grade) -> str:
    """Where it ran, in one line."""
    engine = " ".join(filter(None, (grade.engine, grade.broker_version)))
    parts = [
        f"{engine} ({grade.provider})" if grade.provider else engine,
        f"{grade.isolation} isolation" if grade.isolation else "",
        f"seeds {', '.join(map(str, grade.seeds))}" if grade.seeds else "",
    ]
    return plain(" · ".join(filter(None, parts)))


def summary(grade: Grade) -> str:
    """Points, guarantees kept and time, in one line."""
    kept = sum(result.verdict.status is Status.PASS for result in grade.results)
    total = len(grade.results) + len(not_judged(grade))
    return (
        f"{grade.points} of {grade.points_possible} points · "
        f"{kept} of {total} guarantees kept · {grade.duration_s:.1f} s"
    )
