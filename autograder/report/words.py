"""How a report says things: verdicts, events, waits, places and the commands to type next.

The terminal, the page and the picture share these, so that one thing has one wording.
"""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from autograder.model import (
    Content,
    Event,
    Exercise,
    Grade,
    Kind,
    Result,
    Status,
    Wait,
    unwritten,
)
from autograder.report.plain import plain, shortened

WORD = {Status.PASS: "PASS", Status.FAIL: "FAIL", Status.INCONCLUSIVE: "INCONCLUSIVE"}
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
    "interrupt": "interrupted (SIGINT)",
    "pause": "paused (SIGSTOP)",
    "resume": "resumed (SIGCONT)",
    "cut": "connections cut",
    "stall": "network stalled",
    "slow": "network slowed",
    "heal": "network healed",
    "cancel": "run() cancelled",
    "end": "source came to its end",
    "letters-down": "dead letters silent",
    "letters-up": "dead letters answer",
    "lease-taken": "another takes it:",
    "lease-freed": "another frees it:",
    "lease-over": "its lease ends:",
}
_EVENTS = {
    Kind.RUN_STARTED: "function called",
    Kind.RUN_RETURNED: "function returned",
    Kind.RUN_RAISED: "function raised",
    Kind.SPAWNED: "process started",
    Kind.EXITED: "process ended",
    Kind.BROKEN: "cannot be graded",
    Kind.STOP_SET: "stop was set",
    Kind.STOP_IN_FORCE: "stop counts now",
    Kind.SOURCE_STOPPED: "source stopped",
    Kind.SOURCE_CLOSED: "source closed",
    Kind.CONNECTING: "connect() called",
    Kind.CONNECTED: "connected",
    Kind.DISCONNECTING: "close() called",
    Kind.DISCONNECTED: "connection closed",
    Kind.BROKER: "the broker counts",
    Kind.ACK: "acked",
    Kind.GIVE_UP: "gave up",
    Kind.REQUEUE: "gave back",
    Kind.DEAD_LETTER: "writes a letter",
    Kind.DEAD_LETTERED: "letter confirmed",
    Kind.REPUBLISH: "republishes",
    Kind.REPUBLISHED: "confirmed",
    Kind.LETTER_ACK: "letter acked",
    Kind.LETTER_BACK: "letter given back",
    Kind.LETTER_PUT: "a dead letter",
    Kind.LETTER_FOUND: "among dead letters",
    Kind.MESSAGE_FOUND: "in the queue",
    Kind.RAISED: "exception",
    Kind.BREAK: "stands still",
    Kind.WEIGHED: "memory looked through",
    Kind.COMMIT_LOST: "commit was lost",
    Kind.COUNTED: "effects counted",
    Kind.EFFECT: "in the database",
    Kind.LEASE_WAITS: "lease at the gate",
    Kind.LEASE_LOST: "connection lost at",
    Kind.LEASE_TAKEN: "lease taken",
    Kind.LEASE_REFUSED: "lease is held",
    Kind.LEASE_HAMMERED: "lease asked for",
    Kind.LEASE_RELEASED: "lease released",
    Kind.LEASE_SEEN: "the lease of",
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

_FIGURES = {
    "buffered": "waiting in the client",
    "in_hand": "in hand",
    "busy": "handlers running",
    "held": "of them held back by the test",
}


_ONE = {"busy": "handler running"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command knew beside the grade: what was asked for, and what has passed already."""

    visible: bool = False  # the tests a student can read: they decide nothing
    seeds: tuple[int, ...] = ()  # planned; a grade stops at the first that fails
    passed: Container[str] = ()  # engines this exercise passes on
    then: str = ""  # the next exercise that has not passed; empty if there is none


NOTHING_ELSE = Asked()


def gradable_engines(exercise: Exercise) -> list[str]:
    """The engines that decide a grade, the default first."""
    return [engine for engine in exercise.engines if engine != "sim"]


def causes_first(results: Iterable[Result]) -> list[Result]:
    """Results in the order to tell them: a loss comes after what fails in the same scenario.

    A message is mostly lost because of something else, and that is what there is to mend.
    """
    ordered = list(results)
    lost = next((each for each in ordered if each.guarantee == "no_message_is_lost"), None)
    if lost is None or lost.verdict.status is not Status.FAIL:
        return ordered
    beside = [
        place
        for place, each in enumerate(ordered)
        if each.verdict.status is Status.FAIL and each.test == lost.test and each is not lost
    ]
    if beside:
        ordered.insert(beside[-1] + 1, lost)
        ordered.remove(lost)  # the first of the two
    return ordered


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
    if (content := Content.read(event.detail)) is not None:
        told = [f"{name}: {value}" for name, value in content.headers.items()]
        told = told if content.readable else ["no JSON", *told]
        return plain(shortened(", ".join(told), _SENTENCE_LIMIT))
    if event.kind is Kind.FAILED and first_line == "cancelled":
        return "raised CancelledError itself"
    if event.kind is Kind.RUN_RETURNED and first_line:
        return f"tasks left behind: {first_line}"
    return first_line


def met(result: Result) -> str:
    """The last exception that the code met before the failure, and no handler's; empty if it is told.

    Those that a contract speaks of, and that code is to catch, are no news.
    """
    verdict, history = result.verdict, result.history
    if history is None or any(event.kind is Kind.RAISED for event in verdict.witness):
        return ""
    until = max((event.at for event in verdict.witness), default=0.0)
    told = [event.detail for event in history.of(Kind.RAISED) if event.at <= until]
    news = [each for each in told if not each.startswith(_OF_THE_CONTRACT)]
    return f"An exception in your code before that: {sentence(news[-1])}" if news else ""


_OF_THE_CONTRACT = (
    "UniqueViolation", "SerializationFailure", "DatabaseGone", "StoreGone", "SettleFailed",
    "PublishFailed",
)  # fmt: skip


def expectation(detail: str) -> str:
    """An `EXPECTED` event's figures as a sentence; unknown shapes are shown as they are.

    `stalled running=4 seen=1 buffered=36` becomes
    `4 running, saw 1: nothing moved any more (36 waiting in the client)`.
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
    others = [
        f"{value} {_figure(key, value)}"
        for key, _, value in rest
        if key != "seen" and not (key == "held" and value == "0")
    ]
    return f"{said} ({', '.join(others)})" if others else said


def stopped_at(result: Result) -> str:
    """The run that an undecided result comes from and where it was cut short; empty if it was not."""
    waits = result.history.of(Kind.EXPECTED) if result.history is not None else ()
    if not waits or not result.test or waits[-1].detail.partition(" ")[0] in {Wait.MET, ""}:
        return ""
    seed = f", seed {result.seed}" if result.seed else ""
    return plain(f"{result.test}{seed}, stopped at: {expectation(waits[-1].detail)}")


def _figure(name: str, value: str) -> str:
    said = _FIGURES.get(name, name.replace("_", " "))
    return _ONE.get(name, said) if value == "1" else said


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


def check_command(
    grade: Grade, result: Result | None = None, *, visible: bool = False, engine: str = ""
) -> str:
    """The command that grades again: one seed, if it is one result that is to be seen again."""
    words = ["ackademy", "check", grade.exercise.path]
    if visible:
        words += ["--visible"]
    if result is not None and result.seed:
        words += ["--seed", str(result.seed)]
    if engine := engine or grade.engine:
        words += ["--engine", engine]
    if grade.submission != grade.exercise.skeleton:
        words += ["--submission", submission_path(grade)]
    return plain(shlex.join(words))


def replay_command(grade: Grade, result: Result, *, visible: bool = False) -> str:
    """The command that shows a simulated run event by event; empty for a run that was real."""
    if not result.replay:
        return ""
    words = ["ackademy", "replay", result.replay, grade.exercise.path]
    if visible:
        words += ["--visible"]
    if grade.submission != grade.exercise.skeleton:
        words += ["--submission", submission_path(grade)]
    return plain(shlex.join(words))


def hint_command(result: Result) -> str:
    """The command that shows the next hint for one guarantee."""
    return plain(shlex.join(["ackademy", "hint", result.guarantee]))


def lesson_command(grade: Grade) -> str:
    """The command that opens the lesson of this exercise; empty if it has none."""
    if not (root_of(grade) / "lessons" / grade.exercise.path / "lesson.md").is_file():
        return ""
    return f"uv run --group docs ackademy lesson {plain(grade.exercise.path)}"


def next_command(grade: Grade, asked: Asked = NOTHING_ELSE) -> str:
    """The one command to type after reading this grade."""
    if grade.problem is not None:
        return check_command(grade, visible=asked.visible)
    if command := _for_the_unwritten(grade):
        return command
    for result in causes_first(grade.results):
        if result.verdict.status is Status.FAIL:
            return hint_command(result)
    if not grade.complete:
        return check_command(grade, visible=asked.visible)
    for result in _undecided(grade):
        if engines := gradable_engines(grade.exercise) if grade.engine == "sim" else []:
            # the same seed would show the same run
            return check_command(grade, visible=asked.visible, engine=engines[0])
        return check_command(grade, result, visible=asked.visible)
    if grade.status is not Status.PASS or asked.visible:
        return check_command(grade)
    return _after_a_pass(grade, asked)


def _for_the_unwritten(grade: Grade) -> str:
    """The lesson if nothing is written yet, a hint if a part is; empty if all is."""
    if not any(unwritten(event) for each in grade.results for event in each.verdict.witness):
        return ""
    if not grade.points:
        return lesson_command(grade)
    return next((hint_command(each) for each in _undecided(grade)), "")


def _undecided(grade: Grade) -> list[Result]:
    return [each for each in grade.results if each.verdict.status is Status.INCONCLUSIVE]


def _after_a_pass(grade: Grade, asked: Asked) -> str:
    for engine in gradable_engines(grade.exercise):
        if engine != grade.engine and engine not in asked.passed:
            return check_command(grade, engine=engine)
    return f"ackademy check {asked.then}" if asked.then else "ackademy list"


def not_judged(grade: Grade) -> tuple[str, ...]:
    """Guarantees that carry points and have no result: the run was interrupted before them."""
    judged = {result.guarantee for result in grade.results}
    return tuple(name for name in grade.exercise.points if name not in judged)


def headline(grade: Grade) -> str:
    """The verdict on the whole, in words that do not depend on a colour."""
    if not grade.complete:
        return "interrupted"
    return LONG_WORD[grade.status]


def score(result: Result, *, complete: bool = True) -> str:
    """Points reached of points there are; what is not decided has reached neither."""
    decided = complete or result.verdict.status is Status.FAIL
    open_ = result.verdict.status is Status.INCONCLUSIVE or not decided
    return f"{'-' if open_ else result.awarded}/{result.points}"


def origin(result: Result) -> str:
    """The guarantee's name and the run its verdict comes from."""
    seed = f"seed {result.seed}" if result.seed else ""
    return plain(" · ".join(filter(None, (result.guarantee, result.test, seed))))


def environment(grade: Grade, asked: Asked = NOTHING_ELSE) -> str:
    """Where it ran, in one line."""
    engine = " ".join(filter(None, (grade.engine, grade.broker_version)))
    parts = [
        "visible tests only" if asked.visible else "",
        f"{engine} ({grade.provider})" if grade.provider else engine,
        f"{grade.isolation} isolation" if grade.isolation else "",
        _seeds(grade, asked),
    ]
    return plain(" · ".join(filter(None, parts)))


def _seeds(grade: Grade, asked: Asked) -> str:
    if not grade.seeds:
        return ""
    said = f"{'seed' if len(grade.seeds) == 1 else 'seeds'} {', '.join(map(str, grade.seeds))}"
    if grade.complete and grade.status is Status.FAIL and len(grade.seeds) < len(asked.seeds):
        said += f" (stopped at the first seed that fails; {len(asked.seeds)} seeds make a pass)"
    return said


def summary(grade: Grade, asked: Asked = NOTHING_ELSE) -> str:
    """What it comes to and how long it took, in one line. What decides nothing has no score."""
    kept = sum(result.verdict.status is Status.PASS for result in grade.results)
    total = len(grade.results) + len(() if asked.visible else not_judged(grade))
    took = f"{grade.duration_s:.1f} s"
    if not grade.complete:
        broken = sum(result.verdict.status is Status.FAIL for result in grade.results)
        so_far = f"{broken} failed, the others are open" if broken else "nothing is decided yet"
        return f"interrupted: {so_far} · {took}"
    if asked.visible:
        return f"visible tests only: {kept} of {total} guarantees kept, the full check decides · {took}"
    return (
        f"{grade.points} of {grade.points_possible} points · "
        f"{kept} of {total} guarantees kept · {took}"
    )
