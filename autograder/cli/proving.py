"""`ackademy author verify` and `drill`: prove exercises and show what was found."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from autograder import catalog, grading
from autograder.authoring import drill as drilling
from autograder.authoring import matrix
from autograder.authoring.verify import verify as verify_exercise
from autograder.cli import checking, serving
from autograder.cli.failures import say
from autograder.cli.output import Out
from autograder.model import Exercise, UsageError
from autograder.report.files import write_text

_WORST_FIRST = (3, 1, 4, 0)  # our fault hides what else is true; a finding weighs more than a doubt


@dataclass(frozen=True)
class DrillPlan:
    """What was asked of a drill, as it was typed."""

    engines: Sequence[str]
    runs: int
    load: bool
    only: Sequence[str]
    first_seed: int
    jobs: int
    json_file: Path | None
    yes: bool


def verify(
    path: str | None,
    engines: Sequence[str],
    *,
    seeds: int,
    jobs: int,
    json_file: Path | None,
    yes: bool,
) -> int:
    """Verify one exercise, or every one; the worst exit code."""
    checking.require_writable(json_file, "ackademy author verify --json")
    console = Out()
    found = []
    for exercise in _exercises(path):
        began = time.monotonic()
        proved = verify_exercise(
            exercise,
            grade=grading.grade,
            acquire=partial(serving.acquired, yes=yes),
            engines=_engines(exercise, engines),
            seeds=range(1, seeds + 1),
            jobs=jobs,
            on_progress=say,
        )
        matrix.draw(proved, console)
        console.print(f"{time.monotonic() - began:.0f} s")
        found.append(proved)
        if not proved.complete:
            break
    if json_file is not None:
        _write(json_file, [matrix.as_table(each) for each in found])
    codes = [each.exit_code for each in found]
    return min(codes, key=_WORST_FIRST.index)


def drill(path: str, plan: DrillPlan) -> int:
    """Drill one exercise on each engine; the worst exit code."""
    checking.require_writable(plan.json_file, f"ackademy author drill {path} --json")
    exercise = catalog.find(path)
    console = Out()
    found = []
    for engine in _engines(exercise, plan.engines):
        seen = drilling.drill(
            exercise,
            grade=grading.grade,
            acquire=partial(serving.acquired, yes=plan.yes),
            engine=engine,
            runs=plan.runs,
            first_seed=plan.first_seed,
            only=plan.only,
            under_load=plan.load,
            jobs=plan.jobs,
            on_progress=say,
        )
        drilling.draw(seen, console)
        found.append(seen)
        if not seen.complete:
            break
    if plan.json_file is not None:
        _write(plan.json_file, [drilling.as_table(each) for each in found])
    return min((each.exit_code for each in found), key=_WORST_FIRST.index)


def _exercises(path: str | None) -> list[Exercise]:
    """The exercise of this name, or all. One that cannot be read stops the proof of all."""
    if path is not None:
        return [catalog.find(path)]
    exercises, errors = catalog.load_all(catalog.course_root())
    if errors:
        raise errors[0]
    if not exercises:
        raise UsageError("There is no exercise to verify.", next_command="ackademy list")
    return exercises


def _engines(exercise: Exercise, wanted: Sequence[str]) -> list[str]:
    """The engines asked for, each one that the exercise has, or all it has."""
    if not wanted:
        return list(exercise.engines)
    return [checking.engine_of(exercise, engine) for engine in dict.fromkeys(wanted)]


def _write(file: Path, tables: Sequence[Mapping[str, object]]) -> None:
    write_text(file, json.dumps(tables, indent=2) + "\n")
