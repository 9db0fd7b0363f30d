"""Hints: three rungs for each guarantee, one a call, and what was taken is kept."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from rich.markdown import Markdown

from autograder import catalog, progress
from autograder.cli.failures import say
from autograder.cli.output import Out
from autograder.cli.overview import current_exercise, next_command
from autograder.model import Exercise, Status, UsageError
from autograder.progress import Progress


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
    console = Out()
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
        console.tell(f"\nNext: {again}      More: ackademy hint {guarantee}")
    else:
        console.tell(f"\nThat was the last hint. Next: {again}")


def _target(root: Path, done: Progress, name: str | None) -> tuple[Exercise, str]:
    """The exercise and the guarantee that a name, or nothing, stands for."""
    if name is not None and (found := _by_guarantee(root, done, name)) is not None:
        return found
    exercise = catalog.find(name, root) if name else current_exercise(root, done)
    record = done.of(exercise.path)
    if record.failing:
        return exercise, record.failing[0]
    if record.status is Status.PASS:
        raise UsageError(
            f"{exercise.path} passed its last check: there is nothing to hint at.",
            next_command=next_command(catalog.load_all(root)[0], done, exercise),
        )
    raise UsageError(
        f"{exercise.path} has no failed guarantee yet: hints follow a check.",
        next_command=f"ackademy check {exercise.path}",
    )


def _by_guarantee(root: Path, done: Progress, name: str) -> tuple[Exercise, str] | None:
    """The guarantee that a name or a unique part of it names, or None if that is an exercise's.

    Of several exercises with it: where one stands, checked last, or the first. Raises `UsageError`
    with the candidates when several guarantees match, with the nearest names when nothing does.
    """
    exercises = catalog.load_all(root)[0]
    known = list(dict.fromkeys(guarantee for each in exercises for guarantee in each.points))
    meant = [name] if name in known else []
    if not meant:
        try:
            catalog.find(name, root)
        except UsageError as error:
            meant = _parts(name, known, error)
        else:
            return None
    having = {each.path: each for each in exercises if meant[0] in each.points}
    for preferred in (catalog.containing(root, Path()), done.latest, *having):
        if preferred in having:
            return having[preferred], meant[0]
    return None


def _parts(name: str, known: Sequence[str], error: UsageError) -> list[str]:
    """The one guarantee with this in its name; `error` says why it is no exercise either."""
    part = name.strip().replace("-", "_").lower()
    matches = [each for each in known if part and part in each]
    if len(matches) == 1:
        return matches
    near = matches or difflib.get_close_matches(part, known, n=3, cutoff=0.5)
    if not near:
        raise error
    what = f"names {len(matches)} guarantees" if matches else "is no guarantee and no exercise"
    asked = ": " + ", ".join(near) if matches else f". Did you mean {' or '.join(near)}?"
    raise UsageError(
        f"{name!r} {what}{asked}" + ("." if matches else ""),
        next_command=f"ackademy hint {near[0]}",
    ) from error
