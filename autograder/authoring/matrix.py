"""The kill matrix: which program was caught by which guarantee, on which engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console  # noqa: TC002 - a type everywhere else too
from rich.table import Table
from rich.text import Text

from autograder.authoring import agreement
from autograder.authoring.folders import Finding
from autograder.authoring.submissions import Outcome, Role
from autograder.model import Exercise, Grade, Status

FORMAT = "ackademy/kill-matrix/1"
_OF_US, _KILLED, _SURVIVED = "!", "X", "S"
_SIGNS: dict[Status | None, str] = {
    Status.PASS: ".",
    Status.FAIL: "x",
    Status.INCONCLUSIVE: "?",
    None: " ",
}
_COLOURS = {
    ".": "green",
    "x": "red",
    "?": "yellow",
    _KILLED: "bold green",
    _SURVIVED: "bold red",
    _OF_US: "bold magenta",
}


@dataclass(frozen=True)
class Matrix:
    """Every outcome of one exercise, with what is wrong about it."""

    exercise: Exercise
    seeds: tuple[int, ...]
    outcomes: tuple[Outcome, ...]
    findings: tuple[Finding, ...]
    missing_engines: Mapping[str, str]  # engine -> why it was not available
    complete: bool = True  # False after Ctrl-C

    @property
    def errors(self) -> tuple[Outcome, ...]:
        """Jobs that have no grade: our fault or the machine's."""
        return tuple(outcome for outcome in self.outcomes if outcome.grade is None)

    @property
    def exit_code(self) -> int:
        """3 if anything of ours went wrong, 1 for findings, 4 if interrupted, else 0."""
        if self.errors or self.missing_engines:
            return 3
        if self.findings:
            return 1
        return 0 if self.complete else 4


def judge_programs(outcomes: Sequence[Outcome]) -> list[Finding]:
    """What the outcomes say against the exercise's tests or against its programs."""
    return [finding for outcome in outcomes for finding in _judge_one(outcome)]


def _judge_one(outcome: Outcome) -> Iterator[Finding]:
    if outcome.grade is None:
        return
    submission = outcome.job.submission
    where = f"{submission.name} on {outcome.job.engine}"
    if problem := outcome.grade.problem:
        yield Finding(
            where,
            f"could not be graded ({problem.code}): {problem.sentence}",
            "It must run: only a verdict tells anything about the tests.",
        )
        return
    if submission.role is Role.SKELETON:
        yield from _judge_skeleton(where, outcome.verdicts)
    elif submission.role is Role.MUTANT:
        yield from _judge_mutant(where, submission.caught_by, outcome.verdicts)
    else:
        yield from _judge_right(where, outcome.grade, subset=submission.role is Role.VISIBLE)


def _judge_skeleton(where: str, verdicts: Mapping[str, Status]) -> Iterator[Finding]:
    if Status.FAIL not in verdicts.values():
        yield Finding(where, "no guarantee fails", "Take more out of it: it must fail by verdict.")
    for name, status in verdicts.items():
        if status is Status.PASS:
            yield Finding(
                where,
                f"{name} passes on an unsolved skeleton",
                "A check passes only if it saw what it judges: nothing seen is inconclusive.",
            )


def _judge_mutant(
    where: str, caught_by: Iterable[str], verdicts: Mapping[str, Status]
) -> Iterator[Finding]:
    killers = [name for name, status in verdicts.items() if status is Status.FAIL]
    for name in caught_by:
        status = verdicts.get(name)
        if status is not Status.FAIL:
            others = f" (caught by {', '.join(killers)})" if killers else " (it survives)"
            yield Finding(
                where,
                f"is not caught by {name}: {status or 'not judged'}{others}",
                "Write a scenario in which the mistake shows, or correct Caught-by.",
            )


def _judge_right(where: str, grade: Grade, *, subset: bool) -> Iterator[Finding]:
    """A right program passes everything; tests students read may leave guarantees out."""
    if not any(result.histories for result in grade.results):
        yield Finding(where, "nothing was judged", "Declare guarantees above each test.")
        return
    for result in grade.results:
        if result.histories == 0:
            if not subset:
                yield Finding(
                    where,
                    f"{result.guarantee} has points but no scenario",
                    "Declare it with @guarantees above a hidden test.",
                )
        elif result.verdict.status is not Status.PASS:
            yield Finding(
                where,
                f"{result.guarantee}: {result.verdict.status}, {result.verdict.observed or '-'} "
                f"({result.test}, seed {result.seed})",
                "A right program passes: correct it, or the test that asks for more.",
            )


def judge_guarantees(exercise: Exercise, outcomes: Sequence[Outcome]) -> Iterator[Finding]:
    """Guarantees that killed no mutant on an engine where mutants were graded."""
    graded = [o for o in outcomes if o.grade and o.job.submission.role is Role.MUTANT]
    for engine in dict.fromkeys(outcome.job.engine for outcome in graded):
        for name in exercise.points:
            verdicts = (o.verdicts.get(name) for o in graded if o.job.engine == engine)
            if Status.FAIL not in verdicts:
                yield Finding(
                    f"{name} on {engine}",
                    "caught no mutant",
                    "A check that never caught anything may be unable to.",
                )


def draw(matrix: Matrix, console: Console) -> None:
    """The matrix as tables, one per engine, then everything an author has to mend."""
    names = list(matrix.exercise.points)
    for engine in dict.fromkeys(outcome.job.engine for outcome in matrix.outcomes):
        seeds = ", ".join(map(str, matrix.seeds))
        console.print(f"\n{matrix.exercise.path} on {engine}, seeds {seeds}", style="bold")
        console.print(_table(matrix, engine, names))
    if matrix.outcomes:
        for number, name in enumerate(names, 1):
            console.print(f"{number:>3} {name}")
        console.print("    . pass   x fail   ? inconclusive   ! no grade: our fault")
        console.print("    X caught by the guarantee it names   S survives that guarantee")
    agreement.draw(matrix.outcomes, console)
    say = partial(console.print, markup=False, soft_wrap=True)
    for engine, why in matrix.missing_engines.items():
        say(f"\n{engine} is not available: {why}", style="bold magenta")
    for outcome in matrix.errors:
        where = f"{outcome.job.submission.name} on {outcome.job.engine}"
        say(f"\n! {where}: {outcome.error}", style="magenta")
    for finding in matrix.findings:
        say(f"\n{finding.where}: {finding.sentence}", style="red")
        say(f"    {finding.remedy}")
    console.print(_summary(matrix), soft_wrap=True)


def _table(matrix: Matrix, engine: str, names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("program")
    for number in range(1, len(names) + 1):
        table.add_column(str(number), justify="center", min_width=2)
    for outcome in matrix.outcomes:
        if outcome.job.engine == engine:
            signs = (_sign(outcome, name) for name in names)
            cells = [Text(sign, style=_COLOURS.get(sign, "")) for sign in signs]
            table.add_row(outcome.job.submission.name, *cells)
    return table


def _sign(outcome: Outcome, guarantee: str) -> str:
    if outcome.grade is None:
        return _OF_US
    status = outcome.verdicts.get(guarantee)
    if guarantee in outcome.job.submission.caught_by:
        named: dict[Status | None, str] = {Status.FAIL: _KILLED, Status.PASS: _SURVIVED}
        return named.get(status, _SIGNS[status])
    return _SIGNS[status]


def _summary(matrix: Matrix) -> Text:
    """One line for the end: what was proved, or how much is left to mend."""
    graded = [outcome for outcome in matrix.outcomes if outcome.grade]
    programs = {outcome.job.submission.name: outcome.job.submission.role for outcome in graded}
    roles = list(programs.values())
    text = (
        f"\n{matrix.exercise.path}: {roles.count(Role.MUTANT)} mutants, "
        f"{roles.count(Role.VARIANT)} variants, {len(graded)} gradings, "
        f"{len(matrix.findings)} to mend, {len(matrix.errors)} without a grade"
    )
    text += "" if matrix.complete else "; interrupted"
    return Text(text, style="bold green" if matrix.exit_code == 0 else "bold red")


def as_table(matrix: Matrix) -> dict[str, object]:
    """The matrix as plain JSON data."""
    return {
        "format": FORMAT,
        "exercise": matrix.exercise.path,
        "seeds": list(matrix.seeds),
        "complete": matrix.complete,
        "exit_code": matrix.exit_code,
        "missing_engines": dict(matrix.missing_engines),
        "findings": [vars(finding) for finding in matrix.findings],
        "agreement": agreement.as_table(matrix.outcomes),
        "programs": [
            {
                "name": outcome.job.submission.name,
                "role": str(outcome.job.submission.role),
                "engine": outcome.job.engine,
                "caught_by": list(outcome.job.submission.caught_by),
                "verdicts": {name: str(status) for name, status in outcome.verdicts.items()},
                "duration_s": outcome.grade.duration_s if outcome.grade else None,
                "error": outcome.error,
            }
            for outcome in matrix.outcomes
        ],
    }
