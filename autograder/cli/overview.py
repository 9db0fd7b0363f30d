"""Where am I, what next: the bare command and `list`."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table
from rich.text import Text

from autograder import catalog, progress
from autograder.cli.failures import say
from autograder.cli.output import Out
from autograder.model import Exercise, Status, UsageError
from autograder.progress import Progress, Record
from autograder.report.words import gradable_engines

_STYLES = {Status.PASS: "green", Status.FAIL: "red", Status.INCONCLUSIVE: "magenta"}


def here() -> None:
    """A few lines: the course, how far, the last check, the command to type next."""
    root = catalog.course_root()
    exercises, errors = catalog.load_all(root)
    done = progress.read(root)
    console = Out()
    for sentence in [*done.notices, *(error.sentence for error in errors)]:
        say(sentence)
    passed = sum(bool(done.of(each.path).passed) for each in exercises)
    console.print(
        f"Ackademy in {root}: {passed} of {len(exercises)} exercises passed.", markup=False
    )
    current = next((each for each in exercises if each.path == done.latest), None)
    if current is not None:
        console.print(f"Last check: {_told(current, done.of(current.path))}", markup=False)
    if exercises and all(
        engine in done.of(each.path).passed
        for each in exercises
        for engine in gradable_engines(each)
    ):
        console.tell("Every exercise there is has passed on every engine: that is all so far.")
    console.tell(f"Next: {next_command(exercises, done, current)}", style="bold")


def next_command(exercises: list[Exercise], done: Progress, current: Exercise | None) -> str:
    """What helps most: a hint for what failed, another engine, the next exercise."""
    if current is not None:
        record = done.of(current.path)
        if record.failing:
            return f"ackademy hint {record.failing[0]}"
        if record.status is not Status.PASS and record.engine not in record.passed:
            return f"ackademy check {current.path} --engine {record.engine}"
        for engine in gradable_engines(current):
            if engine not in record.passed and record.passed:
                return f"ackademy check {current.path} --engine {engine}"
    for exercise in exercises:
        if not done.of(exercise.path).passed:
            return f"ackademy check {exercise.path}"
    return "ackademy list"


def current_exercise(root: Path, done: Progress) -> Exercise:
    """The exercise meant by a command without a name.

    The one whose folder this is, else the last checked one, else the first that has not passed.
    """
    if (within := catalog.containing(root, Path())) is not None:
        return catalog.load(root, within)
    names = catalog.names(root)
    if not names:
        raise UsageError(f"{root / 'exercises'} holds no exercise.", next_command="git status")
    open_names = [name for name in names if not done.of(name).passed]
    latest = done.latest
    return catalog.load(root, latest if latest in names else (open_names or names)[0])


def listing(name: str | None) -> None:
    """All exercises with progress, or one with its guarantees."""
    console = Out()
    root = catalog.course_root()
    done = progress.read(root)
    for sentence in done.notices:
        say(sentence)
    if name is not None:
        _one(console, catalog.find(name, root), done)
        return
    exercises, errors = catalog.load_all(root)
    table = Table(box=None, pad_edge=False)
    # a name is there to be typed: never cut
    table.add_column("exercise", min_width=max((len(each.path) for each in exercises), default=0))
    for column in ("title", "engines", "last check"):
        table.add_column(column, overflow="fold")
    for each in exercises:
        record = done.of(each.path)
        table.add_row(Text(each.path), Text(each.title), " ".join(each.engines), _badge(record))
    console.print(table)
    for error in errors:
        say(error.sentence)
    console.tell("\nNext: ackademy check EXERCISE (any unique part of the path)")


def _one(console: Out, exercise: Exercise, done: Progress) -> None:
    record = done.of(exercise.path)
    console.print(f"{exercise.path}  {exercise.title}", style="bold", markup=False)
    console.print(f"Module: {exercise.skeleton}", markup=False)
    console.print(f"Engines: {', '.join(exercise.engines)}", markup=False)
    if record.status is not None:
        console.print(f"Last check: {_told(exercise, record)}", markup=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("guarantee", min_width=max(map(len, exercise.points)))
    for column in ("points", "last check", "hints taken"):
        table.add_column(column)
    for guarantee, points in exercise.points.items():
        status = record.verdicts.get(guarantee)
        taken = record.hints.get(guarantee, 0)
        table.add_row(
            guarantee,
            str(points),
            Text(status or "-", style=_STYLES[status] if status else "dim"),
            f"{taken} of {catalog.RUNGS}" if taken else "-",
        )
    console.print(table)
    following = f"ackademy check {exercise.path}"
    if record.passed:
        following = next_command(catalog.load_all(catalog.course_root())[0], done, exercise)
    console.tell(f"\nNext: {following}")


def _told(exercise: Exercise, record: Record) -> str:
    when = record.checked.replace("T", " ").removesuffix("+00:00")
    reached = f"{record.points} of {record.points_possible} points"
    if record.visible:
        reached = "visible tests only"
    return f"{exercise.path} on {record.engine}: {record.status}, {reached}, {when} UTC"


def _badge(record: Record) -> Text:
    if record.status is None:
        return Text("not checked", style="dim")
    if record.passed and record.status is not Status.FAIL:
        return Text(f"pass on {', '.join(record.passed)}", style="green")
    text = f"{record.status} on {record.engine}, {record.points}/{record.points_possible}"
    if record.visible:
        text = f"visible tests: {record.status} on {record.engine}"
    return Text(text, style=_STYLES[record.status])
