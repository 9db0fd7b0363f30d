"""Prove an exercise: its skeleton fails, right programs pass, wrong ones die for their reason."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from autograder.authoring import agreement, folders, matrix, submissions
from autograder.authoring.matrix import Matrix
from autograder.authoring.submissions import Acquire, Grader, Job, Outcome, Role
from autograder.model import AckademyError, Exercise, UsageError

_ORDER = list(Role)


def verify(
    exercise: Exercise,
    *,
    grade: Grader,
    acquire: Acquire,
    engines: Sequence[str] = (),
    seeds: Sequence[int] = (1, 2, 3),
    jobs: int = 1,
    on_progress: Callable[[str], None] = lambda _line: None,
) -> Matrix:
    """Read the folders, grade every program on every engine, and say what does not hold.

    `jobs` gradings share one warm broker per engine. An engine that is not available is named in
    the matrix and costs only itself. Ctrl-C returns what was found so far.
    Raises `UsageError` in the student edition, which has nothing to prove it with.
    """
    if not exercise.solution_folder.is_dir():
        raise UsageError(
            f"solutions/{exercise.path} is not here: only the full edition can be verified.",
            next_command=f"ackademy check {exercise.path}",
        )
    engines = tuple(engines or exercise.engines)
    findings = folders.inspect(exercise)
    session = _Session(grade, acquire, jobs, on_progress)
    with tempfile.TemporaryDirectory(prefix="ackademy-verify-") as workshop:
        programs, unmade = submissions.collect(exercise, Path(workshop))
        work = [
            Job(exercise, each, engine, tuple(seeds))
            for engine in engines
            for each in programs
            if each.belongs_on(engine)
        ]
        complete = session.run(work)
        again = _Session(grade, acquire, jobs, on_progress)
        complete = complete and again.run(agreement.doubtful(session.outcomes))
    outcomes = sorted(session.outcomes, key=_in_order)
    findings += [*unmade, *matrix.judge_programs(outcomes)]
    findings += agreement.judge(outcomes, again.outcomes)
    if complete:
        findings += matrix.judge_guarantees(exercise, outcomes)
    return Matrix(
        exercise,
        tuple(seeds),
        tuple(outcomes),
        tuple(findings),
        session.missing,
        complete=complete,
    )


@dataclass
class _Session:
    """Gradings on one engine after the other, and what came of them."""

    grade: Grader
    acquire: Acquire
    parallel: int
    on_progress: Callable[[str], None]
    outcomes: list[Outcome] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def run(self, work: Sequence[Job]) -> bool:
        """Do all jobs; False if Ctrl-C came first."""
        try:
            for engine in dict.fromkeys(job.engine for job in work):
                self._run_on(engine, [job for job in work if job.engine == engine], len(work))
        except KeyboardInterrupt:
            return False
        return True

    def _run_on(self, engine: str, jobs: Sequence[Job], total: int) -> None:
        try:
            with submissions.servers(engine, jobs, self.acquire) as warm:
                outcomes = submissions.run(jobs, warm, self.grade, parallel=self.parallel)
                with closing(outcomes):
                    for outcome in outcomes:
                        self.outcomes.append(outcome)
                        self.on_progress(_line(outcome, len(self.outcomes), total))
        except AckademyError as error:
            self.missing[engine] = f"{error.sentence} Next: {error.next_command}"


def _in_order(outcome: Outcome) -> tuple[int, str]:
    submission = outcome.job.submission
    return _ORDER.index(submission.role), submission.name


def _line(outcome: Outcome, number: int, total: int) -> str:
    job = outcome.job
    told = ", ".join(name for name, status in outcome.verdicts.items() if status != "pass")
    ending = outcome.error.partition("\n")[0] or told or "all pass"
    return f"{number}/{total} {job.submission.name} on {job.engine}: {ending}"
