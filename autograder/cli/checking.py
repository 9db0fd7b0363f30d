"""`ackademy check`: one grade, shown, written where asked, and kept in the student's progress.

A check in the simulation takes a second, and half of it used to be imports: what only some checks
need is imported where they need it.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from autograder import catalog, grading, progress
from autograder.cli import INTERRUPTED
from autograder.cli.failures import say
from autograder.cli.output import Out
from autograder.model import Exercise, Grade, Status, UsageError
from autograder.report import terminal, words
from autograder.report.words import Asked, gradable_engines

EXIT_CODES = {Status.PASS: 0, Status.FAIL: 1, Status.INCONCLUSIVE: 4}
SEEDS = 3
SIM = "sim"
"""The engine that is no broker: what it says is feedback."""


@dataclass(frozen=True)
class Order:
    """What was asked for, as it was typed."""

    exercise: str | None = None
    engine: str | None = None
    provider: str | None = None
    submission: Path | None = None
    seed: int | None = None
    seeds: int | None = None
    json_file: Path | None = None
    html_file: Path | None = None
    yes: bool = False
    visible: bool = False
    verbose: bool = False

    def seeds_on(self, engine: str) -> tuple[int, ...]:
        """The simulation tries as many as there is time for, unless somebody says which."""
        if engine == SIM and not (self.seed or self.seeds):
            return ()
        return self.seed_numbers

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        """`--seed N` alone is one seed; `--seeds K` counts up, from N or from 1."""
        first = self.seed or 1
        count = self.seeds or (1 if self.seed else SEEDS)
        return tuple(range(first, first + count))


def check(order: Order) -> int:
    """Grade and report; the exit code.

    Ctrl-C shows what was judged so far, decides nothing and is not kept: the code is 130.
    Raises `UsageError` before anything is started, `GraderError` for faults of ours.
    """
    root = catalog.course_root()
    exercise = exercise_of(root, order.exercise)
    engine = engine_of(exercise, order.engine)
    simulated = _simulated_first(exercise, order)
    require_writable(order.json_file, f"ackademy check {exercise.path} --json")
    require_writable(order.html_file, f"ackademy check {exercise.path} --html")
    tests = tests_of(exercise, visible=order.visible)

    def grade(engine: str) -> Grade:
        with _shown(f"{exercise.path} on {engine}") as on_progress:
            return grading.grade(
                exercise,
                order.submission or exercise.skeleton,
                engine=engine,
                provider=order.provider,
                seeds=order.seeds_on(engine),
                tests=tests,
                on_progress=on_progress,
            )

    done = grade(SIM) if simulated else None
    if done is None or (engine != SIM and done.complete and done.status is not Status.FAIL):
        if done is not None:
            say(_green(done))
        from autograder.cli import serving

        done = serving.installing_if_asked(partial(grade, engine), yes=order.yes)
    # kept before it is shown: whoever reads along (`| head`) may be gone by then
    notices = _keep(root, done, order)
    kept = progress.read(root)
    asked = Asked(
        visible=order.visible,
        seeds=order.seed_numbers,
        passed=kept.of(exercise.path).passed,
        then=_following(root, exercise, kept),
    )
    _write(done, order, asked)
    terminal.render(done, Out(), verbose=order.verbose, asked=asked)
    for notice in notices:
        say(notice)
    return EXIT_CODES[done.status] if done.complete else INTERRUPTED


def _simulated_first(exercise: Exercise, order: Order) -> bool:
    """Whether a moment in the simulation comes before anything else, or is all that was asked for.

    Whoever names an engine, a provider or a seed wants that, and nothing before it. Whoever wants
    the grade in a file, or of another's, wants one that counts: from a real broker.
    """
    if order.engine is not None:
        return order.engine == SIM
    kept = order.json_file or order.html_file or order.submission
    return SIM in exercise.engines and not (order.provider or order.seed or kept)


def _following(root: Path, exercise: Exercise, kept: progress.Progress) -> str:
    """The next exercise that has not passed; from the course's beginning, if there is none behind."""
    names = catalog.names(root)
    here = names.index(exercise.path) + 1 if exercise.path in names else 0
    return next((name for name in names[here:] + names[:here] if not kept.of(name).passed), "")


def _green(done: Grade) -> str:
    """What the simulation has to say before a real broker decides."""
    seeds = len(done.seeds)
    unsaid = "" if done.status is Status.PASS else "; not everything can be judged there"
    return f"Simulation: nothing found on {seeds} schedules in {done.duration_s:.1f} s{unsaid}."


def _keep(root: Path, done: Grade, order: Order) -> list[str]:
    """Put a complete grade of the student's own file into their progress."""
    own = order.submission is None or order.submission.resolve() == done.exercise.skeleton.resolve()
    told = replace(done, results=tuple(words.causes_first(done.results)))
    if not own or (done.engine == SIM and done.status is Status.PASS):
        return []  # nobody has passed before a real broker says so
    return progress.record_grade(root, told, counts=not order.visible)


def _write(done: Grade, order: Order, asked: Asked) -> None:
    """Write the files asked for."""
    if order.json_file is not None:
        from autograder.report import json_report

        json_report.write(done, order.json_file)
    if order.html_file is not None:
        from autograder.report import html

        html.write(done, order.html_file, asked)


def exercise_of(root: Path, name: str | None) -> Exercise:
    """The exercise of this name, or the current one."""
    if name is not None:
        return catalog.find(name, root)
    from autograder.cli import overview

    return overview.current_exercise(root, progress.read(root))


def engine_of(exercise: Exercise, wanted: str | None) -> str:
    """The engine to grade on: the one asked for if the exercise has it, else its first."""
    gradable = gradable_engines(exercise)
    if wanted is None and gradable:
        return gradable[0]
    if wanted is not None and wanted in exercise.engines:
        return wanted
    known = f"There are: {', '.join(gradable)}." if gradable else "It has none."
    raise UsageError(
        f"{exercise.path} is not graded on {wanted or 'any engine'}. {known}",
        next_command=f"ackademy check {exercise.path}",
    )


def tests_of(exercise: Exercise, *, visible: bool) -> Path | None:
    """The tests asked for; None leaves the choice to grading. Says so when none are there."""
    if visible and not exercise.visible_tests.is_file():
        raise UsageError(
            f"{exercise.visible_tests} is missing, so there is nothing visible to run.",
            next_command=f"ackademy check {exercise.path}",
        )
    return exercise.visible_tests if visible else None


def require_writable(file: Path | None, option: str) -> None:
    """Raise `UsageError` before minutes of grading if a report could not be written anyway."""
    if file is None:
        return
    if file.is_dir():
        name = shlex.quote(str(file / f"grade.{option.rpartition('--')[2]}"))
        raise UsageError(f"{file} is a folder; name a file in it.", next_command=f"{option} {name}")
    if not file.parent.is_dir():
        raise UsageError(
            f"There is no folder {file.parent}.", next_command=f"mkdir -p {file.parent}"
        )
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise UsageError(f"{file} may not be written.", next_command=f"ls -ld {file.parent}")


@contextmanager
def _shown(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr while scenarios run, where somebody sees it; gone afterwards."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn("line"),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None, state="starting")

        def on_progress(done: int, planned: int) -> None:
            bar.update(task, completed=done, total=planned, state=f"{done}/{planned} runs")

        yield on_progress
