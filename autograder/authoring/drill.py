"""Repeat right and wrong programs many times, and count how often the grader itself errs.

One run is one program with all hidden scenarios on one seed; every run has another seed. Several
runs share a grading, its server connection and its zygote: they differ in nothing else, and starting
those anew would be half of the time. If several runs of one grading go wrong in the same guarantee, the
worst one speaks for them, so incidents are counted at least once. Mutants are graded seed by seed: there,
the worst run is the one that is expected. A right program that fails is a *false fail*, a mutant that its own guarantee lets pass a *false
pass*. Inconclusive verdicts and faults of ours cost nobody points, but they are counted too.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rich.console import Console  # noqa: TC002 - a type everywhere else too
from rich.table import Table

from autograder.authoring import load, submissions
from autograder.authoring.folders import Finding
from autograder.authoring.submissions import Acquire, Grader, Job, Outcome, Role, Submission
from autograder.model import Exercise, Status, UsageError

FORMAT = "ackademy/drill/1"
DRILLED = {"reference": Role.REFERENCE, "variants": Role.VARIANT, "mutants": Role.MUTANT}


class Fault(StrEnum):
    """What can be wrong with one verdict."""

    FALSE_FAIL = "false fail"
    FALSE_PASS = "false pass"  # noqa: S105 - a verdict, not a password
    INCONCLUSIVE = "inconclusive"
    ERROR = "our fault"


SEEDS_AT_ONCE = 5  # runs that share a grading
FALSE = (Fault.FALSE_FAIL, Fault.FALSE_PASS)
_HEADS = {  # two short lines: long program names leave little room in 80 columns
    Fault.FALSE_FAIL: ("false", "fail"),
    Fault.FALSE_PASS: ("false", "pass"),
    Fault.INCONCLUSIVE: ("incon-", "clusive"),
    Fault.ERROR: ("our", "fault"),
}


@dataclass(frozen=True)
class Incident:
    """One verdict that was not the expected one; `guarantee` is empty for an error of ours."""

    fault: Fault
    program: str
    guarantee: str
    seed: int
    observed: str

    @property
    def headline(self) -> str:
        """What was observed, without a traceback that may follow."""
        return self.observed.partition("\n")[0]


@dataclass
class Drill:
    """What has been seen so far on one engine: verdicts counted, incidents kept."""

    exercise: Exercise
    engine: str
    loaded: bool
    runs: Counter[str] = field(default_factory=Counter)  # program -> gradings done
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)  # (program, guarantee)
    incidents: list[Incident] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # duration of each grading
    findings: list[Finding] = field(default_factory=list)  # mutants that cannot be made
    complete: bool = True  # False after Ctrl-C

    def add(self, outcome: Outcome) -> list[Incident]:
        """Count one grading; the incidents in it."""
        new = list(_incidents(outcome))
        program, runs = outcome.job.submission.name, len(outcome.job.seeds)
        self.runs[program] += runs
        for name in outcome.verdicts:
            self.verdicts[program, name] += runs
        self.incidents += new
        if outcome.grade is not None:
            self.seconds.append(outcome.grade.duration_s)
        return new

    def count(self, fault: Fault, program: str = "", guarantee: str = "") -> int:
        """Incidents of this kind, of one program or of one guarantee if named."""
        return sum(
            each.fault is fault
            and program in {"", each.program}
            and guarantee in {"", each.guarantee}
            for each in self.incidents
        )

    @property
    def exit_code(self) -> int:
        """1 for any false verdict, 3 for errors of ours, 4 if inconclusive or cut short, else 0."""
        if any(self.count(fault) for fault in FALSE) or self.findings:
            return 1
        if self.count(Fault.ERROR):
            return 3
        return 4 if self.count(Fault.INCONCLUSIVE) or not self.complete or not self.runs else 0


def _incidents(outcome: Outcome) -> Iterator[Incident]:
    submission, seed = outcome.job.submission, outcome.job.seeds[0]
    if outcome.grade is None:
        yield Incident(Fault.ERROR, submission.name, "", seed, outcome.error)
        return
    if outcome.grade.problem is not None:
        fault = Fault.ERROR if submission.role is Role.MUTANT else Fault.FALSE_FAIL
        yield Incident(fault, submission.name, "", seed, outcome.grade.problem.sentence)
        return
    wrong = submission.role is Role.MUTANT
    expected = Status.FAIL if wrong else Status.PASS
    for result in outcome.grade.results:
        status = result.verdict.status
        if status is expected or (wrong and result.guarantee not in submission.caught_by):
            continue
        false = Fault.FALSE_PASS if wrong else Fault.FALSE_FAIL
        fault = Fault.INCONCLUSIVE if status is Status.INCONCLUSIVE else false
        observed = f"{result.test}: {result.verdict.observed or '-'}"
        yield Incident(fault, submission.name, result.guarantee, result.seed or seed, observed)


def drill(
    exercise: Exercise,
    *,
    grade: Grader,
    acquire: Acquire,
    engine: str,
    runs: int,
    first_seed: int = 1,
    only: Sequence[str] = (),
    under_load: bool = False,
    jobs: int = 1,
    seeds_at_once: int = SEEDS_AT_ONCE,
    on_progress: Callable[[str], None] = lambda _line: None,
) -> Drill:
    """Grade every chosen program `runs` times on one engine. Ctrl-C returns what was seen so far.

    `only` names roles (`reference`, `variants`, `mutants`) or single programs
    (`variants/pullers`). Raises `UsageError` if it names nothing, and whatever `acquire` raises.
    """
    seen = Drill(exercise, engine, under_load)
    with tempfile.TemporaryDirectory(prefix="ackademy-drill-") as workshop:
        programs, seen.findings = submissions.collect(exercise, Path(workshop))
        here = [each for each in programs if each.belongs_on(engine)]
        chosen = _chosen(here, only, exercise)
        # Seeds first: after ten minutes every program has been seen, not one of them fifty times.
        work = [
            Job(exercise, each, engine, part)
            for seeds in _batches(first_seed, runs, seeds_at_once)
            for each in chosen
            for part in ([(seed,) for seed in seeds] if each.role is Role.MUTANT else [seeds])
        ]
        try:
            with (
                submissions.servers(engine, work, acquire) as warm,
                load.load() if under_load else nullcontext(),
            ):
                outcomes = submissions.run(work, warm, grade, parallel=jobs)
                with closing(outcomes):
                    for number, outcome in enumerate(outcomes, 1):
                        new = seen.add(outcome)
                        on_progress(_line(outcome, new, number, len(work)))
        except KeyboardInterrupt:
            seen.complete = False
    return seen


def _batches(first: int, runs: int, at_once: int) -> list[tuple[int, ...]]:
    seeds = range(first, first + runs)
    return [tuple(seeds[n : n + at_once]) for n in range(0, runs, at_once)]


def _chosen(
    programs: Sequence[Submission], only: Sequence[str], exercise: Exercise
) -> list[Submission]:
    roles = {DRILLED[name] for name in only or DRILLED if name in DRILLED}
    names = {name for name in only if name not in DRILLED}
    drilled = [each for each in programs if each.role in DRILLED.values()]
    unknown = names - {each.name for each in drilled}
    chosen = [each for each in drilled if each.role in roles or each.name in names]
    if unknown or not chosen:
        known = ", ".join([*DRILLED, *(each.name for each in drilled)])
        raise UsageError(
            f"--only names {', '.join(sorted(unknown or roles))}, but there is: {known}.",
            next_command=f"ackademy author drill {exercise.path} --only reference",
        )
    return chosen


def _line(outcome: Outcome, new: Sequence[Incident], number: int, total: int) -> str:
    told = "; ".join(
        " ".join(filter(None, (f"{each.fault}:", each.guarantee, each.headline))) for each in new
    )
    seeds = outcome.job.seeds
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]}-{seeds[-1]}"
    return f"{number}/{total} {outcome.job.submission.name}, {which}: {told or 'as expected'}"


def draw(seen: Drill, console: Console) -> None:
    """Counts per program and per guarantee, then every incident with the command that repeats it."""
    under = "under load" if seen.loaded else "without load"
    console.print(f"\n{seen.exercise.path} on {seen.engine}, {under}", style="bold")
    programs = [(name, count, name, "") for name, count in seen.runs.items()]
    judged: Counter[str] = Counter()
    for (_, guarantee), count in seen.verdicts.items():
        judged[guarantee] += count
    guarantees = [(name, judged[name], "", name) for name in seen.exercise.points]
    console.print(_table("program", programs, seen), "", _table("guarantee", guarantees, seen))
    for each in seen.incidents:
        where = " ".join(filter(None, (each.program, each.guarantee)))
        console.print(f"\n{each.fault}: {where}, seed {each.seed}", markup=False, style="red")
        console.print(f"    {each.observed}", markup=False)
        again = f"--only {each.program} --runs 1 --first-seed {each.seed} --engine {seen.engine}"
        again = f"    Again: ackademy author drill {seen.exercise.path} {again}"
        console.print(again, markup=False, soft_wrap=True)
    for finding in seen.findings:
        console.print(f"\n{finding.where}: {finding.sentence}", markup=False, style="red")
    median = sorted(seen.seconds)[len(seen.seconds) // 2] if seen.seconds else 0.0
    counts = ", ".join(f"{seen.count(fault)} {fault}" for fault in Fault)
    ending = "" if seen.complete else "; interrupted"
    console.print(
        f"\n{seen.runs.total()} runs, {seen.verdicts.total()} verdicts: {counts}; "
        f"median {median:.1f} s a grading{ending}",
        style="bold green" if seen.exit_code == 0 else "bold red",
        highlight=False,
    )


def _table(what: str, rows: Sequence[tuple[str, int, str, str]], seen: Drill) -> Table:
    """Rows are label, how many were counted, and what to count incidents of."""
    table = Table(box=None, pad_edge=False)
    table.add_column(what, min_width=max((len(row[0]) for row in rows), default=0))
    table.add_column("runs" if what == "program" else "verdicts", justify="right")
    for fault in Fault:
        table.add_column("\n".join(_HEADS[fault]), justify="right")
    for label, number, program, guarantee in rows:
        counts = (seen.count(fault, program, guarantee) for fault in Fault)
        table.add_row(label, str(number), *(str(count or "-") for count in counts))
    return table


def as_table(seen: Drill) -> dict[str, object]:
    """The drill as plain JSON data."""
    return {
        "format": FORMAT,
        "exercise": seen.exercise.path,
        "engine": seen.engine,
        "load": seen.loaded,
        "complete": seen.complete,
        "exit_code": seen.exit_code,
        "runs": dict(seen.runs),
        "verdicts": [
            {"program": program, "guarantee": guarantee, "count": count}
            for (program, guarantee), count in sorted(seen.verdicts.items())
        ],
        "counts": {str(fault): seen.count(fault) for fault in Fault},
        "incidents": [{**vars(each), "fault": str(each.fault)} for each in seen.incidents],
        "findings": [vars(each) for each in seen.findings],
        "seconds": [round(each, 3) for each in seen.seconds],
    }
