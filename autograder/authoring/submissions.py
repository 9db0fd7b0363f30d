"""The programs an exercise is proved with, and grading many of them against one warm broker."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

from autograder.authoring import folders, mutants
from autograder.authoring.folders import Finding
from autograder.exam.stores import of_exercise
from autograder.model import AckademyError, Exercise, Grade, Status, UsageError

Grader = Callable[..., Grade]
"""`grading.grade`; tests pass one that needs no broker."""

Acquire = Callable[[str], AbstractContextManager[Any]]
"""Engine or store name to a running server, warm for as long as the context lasts."""

Servers = Mapping[str, Any]
"""The `server` of an engine and the `stores` of its exercises, as `grading.grade` takes them."""


class Role(StrEnum):
    """What a program is there to prove."""

    SKELETON = "skeleton"  # fails, by verdict
    REFERENCE = "reference"  # passes
    VISIBLE = "visible"  # the reference again, on the tests a student may read
    VARIANT = "variant"  # passes, by another design
    MUTANT = "mutant"  # fails, by the guarantees it names


@dataclass(frozen=True)
class Submission:
    """One program to grade. `caught_by` is empty unless it is a mutant.

    `only_on`: the one engine that a mutant's mistake shows on, if it is one alone. `differs`: which
    of its verdicts may be another in the simulation than on a broker, and why.
    """

    role: Role
    name: str
    file: Path
    tests: Path
    caught_by: tuple[str, ...] = ()
    only_on: str = ""
    differs: Mapping[str, str] = field(default_factory=dict)

    def belongs_on(self, engine: str) -> bool:
        """Whether it proves anything on this engine."""
        return self.only_on in {"", engine}


@dataclass(frozen=True)
class Job:
    """One submission on one engine with these seeds."""

    exercise: Exercise
    submission: Submission
    engine: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """A job done: a grade without histories, or why there is none (our fault, never a verdict)."""

    job: Job
    grade: Grade | None
    error: str = ""  # a sentence; for a bug a traceback below it

    @property
    def verdicts(self) -> dict[str, Status]:
        """The guarantees that judged a run; empty when there was nothing to judge."""
        results = self.grade.results if self.grade else ()
        return {each.guarantee: each.verdict.status for each in results if each.histories}


def collect(exercise: Exercise, workshop: Path) -> tuple[list[Submission], list[Finding]]:
    """Every program of an exercise; mutants are made in `workshop`. Findings say which cannot be."""
    hidden, visible = exercise.hidden_tests, exercise.visible_tests
    programs = [
        Submission(Role.SKELETON, "skeleton", exercise.skeleton, hidden),
        Submission(Role.REFERENCE, "reference", exercise.reference, hidden),
        Submission(Role.VISIBLE, "reference, visible tests", exercise.reference, visible),
    ]
    for file in folders.variants(exercise):
        name = f"variants/{file.stem}"
        programs.append(Submission(Role.VARIANT, name, file, hidden))
    wrong, findings = _mutants(exercise, workshop)
    programs += wrong
    return [each for each in programs if each.file.is_file() and each.tests.is_file()], findings


def _mutants(exercise: Exercise, workshop: Path) -> tuple[list[Submission], list[Finding]]:
    """The wrong programs. Two patches that make the same one are a mutant counted twice."""
    programs: list[Submission] = []
    findings: list[Finding] = []
    made: dict[bytes, str] = {}
    for patch in folders.patches(exercise):
        where = f"mutants/{patch.name}"
        try:
            mutant = mutants.parse(patch)
        except UsageError:
            continue  # a finding of the folder's rules
        try:
            file = mutants.apply(mutant, exercise.reference, workshop / mutant.name)
            compile(file.read_bytes(), file.name, "exec", dont_inherit=True)
        except (UsageError, OSError, SyntaxError, ValueError) as error:
            findings.append(Finding(where, str(error), "Cut it again from the reference."))
            continue
        if (twin := made.setdefault(file.read_bytes(), patch.name)) != patch.name:
            findings.append(Finding(where, f"is the same program as {twin}", "Remove one."))
            continue
        name = f"mutants/{mutant.name}"
        programs.append(
            Submission(
                Role.MUTANT,
                name,
                file,
                exercise.hidden_tests,
                mutant.caught_by,
                mutant.only_on,
                mutant.differs,
            )
        )
    return programs, findings


@contextmanager
def servers(engine: str, jobs: Sequence[Job], acquire: Acquire) -> Generator[Servers]:
    """Everything that these jobs need on one engine, started once for all of them."""
    exercises = {job.exercise.path: job.exercise for job in jobs}.values()
    names = {store for each in exercises for store in of_exercise(each) if engine != "sim"}
    with ExitStack() as stack:
        server = stack.enter_context(acquire(engine))
        yield {
            "server": server,
            "stores": {name: stack.enter_context(acquire(name)) for name in sorted(names)},
        }


def run(
    jobs: Sequence[Job], warm: Servers, grade: Grader, *, parallel: int = 1
) -> Generator[Outcome]:
    """Grade all jobs on warm servers, `parallel` at a time, each in the order it is done.

    In parallel each grading has a process of its own: an examiner that shares its interpreter
    with another one would see its own delays as the student's. Closing the iterator ends them.
    Raises `KeyboardInterrupt` also when a grading was the one to notice.
    """
    task = partial(grade_one, warm=warm, grade=grade)
    if parallel <= 1 or len(jobs) <= 1:
        yield from _uninterrupted(map(task, jobs))
        return
    # spawn: a fork would inherit the server's pipes and keep them open
    executor = ProcessPoolExecutor(
        parallel, mp_context=get_context("spawn"), initializer=_begin_worker
    )
    try:
        futures = {executor.submit(_interruptible, task, job): job for job in jobs}
        yield from _uninterrupted(_as_done(futures))
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _uninterrupted(outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    """Outcomes up to a grade that Ctrl-C cut short: half a grade proves nothing."""
    for outcome in outcomes:
        if outcome.grade is not None and not outcome.grade.complete:
            raise KeyboardInterrupt
        yield outcome


def _as_done(futures: dict[Future[Outcome], Job]) -> Iterator[Outcome]:
    for future in as_completed(futures):
        try:
            yield future.result()
        except BrokenProcessPool as error:
            yield Outcome(futures[future], None, f"a grading process died: {error}")


def _begin_worker() -> None:
    """What a process does before its first job."""
    _ignore_interrupts()
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A pool whose owner was killed would wait for jobs for ever: its processes hold its pipes open."""
    owner = parent_process()
    if owner is not None:
        owner.join()
        os._exit(1)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches every process of the terminal: one that has no job has nothing to say."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interruptible(task: Callable[[Job], Outcome], job: Job) -> Outcome:
    """A job in a process of its own: during it, Ctrl-C ends the grading and its subjects."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return task(job)
    finally:
        _ignore_interrupts()


def grade_one(job: Job, *, warm: Servers, grade: Grader) -> Outcome:
    """One grade. Whatever goes wrong on our side becomes part of the outcome: the others go on."""
    try:
        done = grade(
            job.exercise,
            job.submission.file,
            engine=job.engine,
            **warm,
            seeds=job.seeds,
            tests=job.submission.tests,
            stop_early=False,
        )
    except AckademyError as error:
        return Outcome(job, None, error.sentence)
    except Exception as error:  # noqa: BLE001 - a grader's bug is counted, and must not end a long drill
        return Outcome(job, None, f"{error!r}\n{traceback.format_exc(limit=-3).strip()}")
    # Results are many and their histories large; a matrix needs the verdicts alone.
    results = tuple(replace(result, history=None) for result in done.results)
    return Outcome(job, replace(done, results=results))
