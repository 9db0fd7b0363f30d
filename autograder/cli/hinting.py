"""Hints: three rungs for each guarantee, one a call, and what was taken is kept."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from autograder import catalog, progress
from autograder.cli.failures import say
from autograder.cli.overview import current_exercise
from autograder.model import Exercise, Status, UsageError
from autograder.progress import Progress, Record


def hint(name: str | None, rung: int | None) -> None:
    """Print one rung and the command for the one after it.

    Raises `UsageError` when nothing is known to have failed, or there is no such hint.
    """
    root = catalog.course_root()
    done = progress.read(root)
    exercise, guarantee = _target(root, done, name)
    rungs = catalog.read_hints(exercise).get(guarantee, ())
    if not rungs:
        raise UsageError(
            f"{exercise.path} has no hint for {guarantee}.",
            next_command=f"ackademy list {exercise.path}",
        )
    taken = done.of(exercise.path).hints.get(guarantee, 0)
    shown = min(rung or taken + 1, len(rungs))
    console = Console(highlight=False)
    console.print(f"{guarantee}, hint {shown} of {len(rungs)}\n", style="bold", markup=False)
    console.print(Markdown(rungs[shown - 1]))
    for sentence in [
        *done.notices,
        *progress.record_hint(root, exercise.path, guarantee, shown),
    ]:
        say(sentence)
    others = [each for each in done.of(exercise.path).failing if each != guarantee]
    if others:
        console.print(f"\nAlso failing: {', '.join(others)}", markup=False)
    again = f"ackademy check {exercise.path}"
    if shown < len(rungs):
        console.print(f"\nNext: {again}      More: ackademy hint {guarantee}", markup=False)
    else:
        console.print(f"\nThat was the last hint. Next: {again}", markup=False)


def _target(root: Path, done: Progress, name: str | None) -> tuple[Exercise, str]:
    """The exercise and the guarantee that a name, or nothing, stands for."""
    if name is not None and (found := _by_guarantee(root, done, name)) is not None:
        return found
    exercise = catalog.find(name, root) if name else current_exercise(root, done)
    record = done.of(exercise.path)
    if record.failing:
        return exercise, _most_wanted(exercise, record)
    if record.status is Status.PASS:
        raise UsageError(
            f"{exercise.path} passed its last check: there is nothing to hint at.",
            next_command=f"ackademy hint {next(iter(exercise.points))}",
        )
    raise UsageError(
        f"{exercise.path} has no failed guarantee yet: hints follow a check.",
        next_command=f"ackademy check {exercise.path}",
    )


def _most_wanted(exercise: Exercise, record: Record) -> str:
    """The failed guarantee to work on: the first in the order of the exercise, as in the report."""
    return next((each for each in exercise.points if each in record.failing), record.failing[0])


def _by_guarantee(root: Path, done: Progress, name: str) -> tuple[Exercise, str] | None:
    """The exercise whose guarantee this is: where one stands, checked last, or the first."""
    exercises = {each.path: each for each in catalog.load_all(root)[0] if name in each.points}
    for preferred in (catalog.containing(root, Path()), done.latest, *exercises):
        if preferred in exercises:
            return exercises[preferred], name
    return None
