"""Grading one submission: the one place where exam, checks and brokers meet."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from autograder import __version__
from autograder.exam import Scenario, Zygote, isolation_here, load_scenarios
from autograder.grading import submission as submissions
from autograder.grading import verdicts
from autograder.model import Exercise, Grade, GraderError, Problem, Result, Status, Verdict

if TYPE_CHECKING:
    from autograder.brokers import Server
    from autograder.grading.session import Session

AT_ONCE = 6  # scenarios in flight: each waits most of its time for something
SEEDS = (1, 2, 3)
CLIENTS = ("aiokafka", "nats-py", "pika")  # packages that speak to the real brokers

Progress = Callable[[int, int], None]  # scenarios done, scenarios planned


@dataclass
class Collected:
    """What has been judged so far: all there is when somebody presses Ctrl-C."""

    judged: list[verdicts.Judged] = field(default_factory=list)
    scenarios: int = 0  # with one seed each; one may have several runs
    output: str = ""
    notices: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    complete: bool = False


def grade(
    exercise: Exercise,
    submission: Path,
    *,
    engine: str,
    provider: str | None = None,
    server: Server | None = None,
    seeds: Sequence[int] = SEEDS,
    tests: Path | None = None,
    stop_early: bool = True,
    on_progress: Progress | None = None,
) -> Grade:
    """Grade one submission on one engine. Runs an event loop of its own.

    `tests` defaults to the hidden ones, or to the visible ones where there are no others.
    `server` is used and left running; without it one is acquired from `provider` or the first
    that has one. `stop_early` spares later seeds once a guarantee has failed. Ctrl-C yields what
    was judged so far, as a grade that is not complete.

    On `sim` there is no server, and no seeds (an empty tuple) means as many as fit into a moment:
    see `autograder.grading.simulated`.

    Raises `UsageError` for a submission that is no file and `GraderError` for a fault of ours.
    """
    if engine == "sim":
        from autograder.grading.simulated import simulate  # noqa: PLC0415 - others never need it

        return simulate(
            exercise,
            submission,
            seeds=seeds,
            tests=tests,
            stop_early=stop_early,
            on_progress=on_progress,
        )
    from autograder import brokers  # noqa: PLC0415 - the simulation does without: a tenth of a second

    began, started_at = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    data = submissions.read(exercise, submission)
    problem = submissions.problem_of(data, submission)
    scenarios = [
        each for each in load_scenarios(tests or tests_of(exercise)) if not each.simulated_only
    ]
    collected = Collected()
    with machine_faults_are_ours(), ExitStack() as stack:
        zygote = stack.enter_context(Zygote(engine, isolation_kind=isolation_here()))
        if server is None:
            server = stack.enter_context(brokers.acquire(engine, provider))
        if problem is None:
            plan = _Plan(exercise, submission, scenarios, tuple(seeds), stop_early, on_progress)
            try:
                asyncio.run(plan.carry_out(server, zygote, collected))
            except KeyboardInterrupt:
                collected.complete = False
            problem = verdicts.problem(collected.judged)
        else:
            collected.complete = True
    return Grade(
        exercise=exercise,
        submission=submission,
        submission_sha256=submissions.fingerprint(data),
        engine=engine,
        provider=server.provider,
        broker_version=server.version,
        isolation=zygote.isolation,
        seeds=tuple(collected.seeds),
        results=results_of(exercise, scenarios, collected, problem),
        problem=problem,
        notices=notices_of(zygote, *server.notices, *collected.notices),
        output=collected.output,
        duration_s=time.monotonic() - began,
        started_at=started_at,
        versions=versions(*CLIENTS),
        complete=collected.complete,
    )


@contextmanager
def machine_faults_are_ours() -> Iterator[None]:
    """What the system refuses us is a fault of ours."""
    try:
        yield
    except OSError as error:
        raise _machine_fault(error) from error


@dataclass(frozen=True)
class _Plan:
    """Which scenarios run with which seeds, and in which order."""

    exercise: Exercise
    submission: Path
    scenarios: list[Scenario]
    seeds: tuple[int, ...]
    stop_early: bool
    on_progress: Progress | None

    async def carry_out(self, server: Server, zygote: Zygote, collected: Collected) -> None:
        """The first seed alone, then the others together: most mistakes show at once."""
        from autograder.grading.session import open_session  # noqa: PLC0415 - the same

        async with open_session(self.exercise, server, zygote) as session:
            for seeds in (self.seeds[:1], self.seeds[1:]):
                if not seeds or (self.stop_early and has_failed(collected.judged)):
                    continue
                await self._wave(session, seeds, collected)
                collected.seeds.extend(seeds)
        collected.complete = True

    async def _wave(self, session: Session, seeds: Sequence[int], collected: Collected) -> None:
        limit = asyncio.Semaphore(AT_ONCE)
        planned = len(self.scenarios) * len(self.seeds)

        async def one(scenario: Scenario, seed: int) -> None:
            async with limit:
                examined = await session.judged(scenario, self.submission, seed)
            collected.judged += examined.judged
            collected.output = collected.output or examined.output
            collected.notices += examined.notices
            collected.scenarios += 1
            if self.on_progress is not None:
                self.on_progress(collected.scenarios, planned)

        try:
            async with asyncio.TaskGroup() as group:
                for seed in seeds:
                    for scenario in self.scenarios:
                        group.create_task(one(scenario, seed))
        except ExceptionGroup as group:
            raise root_of(group) from None


def root_of(group: ExceptionGroup[Exception]) -> Exception:
    """The one of several faults of ours that explains the others: a bug before a broker's end."""
    ours, bugs = group.split((GraderError, OSError))
    error: Exception = bugs or ours or group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return _machine_fault(error) if isinstance(error, OSError) else error


def _machine_fault(error: BaseException) -> GraderError:
    """What the system refused us, as a fault of ours: a full disk costs nobody points."""
    reason = getattr(error, "strerror", None) or str(error)
    return GraderError(
        f"This machine did not play along: {reason}.", next_command="df -h; ulimit -a"
    )


def has_failed(judged: Sequence[verdicts.Judged]) -> bool:
    """Whether any guarantee was seen broken."""
    return any(
        verdict.status is Status.FAIL for each in judged for verdict in each.verdicts.values()
    )


def tests_of(exercise: Exercise) -> Path:
    """The hidden tests; the visible ones in the student edition."""
    return exercise.hidden_tests if exercise.hidden_tests.is_file() else exercise.visible_tests


def results_of(
    exercise: Exercise, scenarios: list[Scenario], collected: Collected, problem: Problem | None
) -> tuple[Result, ...]:
    """Results of what these scenarios can judge; a submission nobody could run kept no promise.

    Visible tests judge a part of the guarantees: the others are no part of their grade.
    """
    declared = {each.name for scenario in scenarios for each in scenario.guarantees}
    found = [
        each for each in verdicts.results(exercise, collected.judged) if each.guarantee in declared
    ]
    if problem is None or collected.judged:
        return verdicts.put_to_the_test(found, collected.judged)
    broken = Verdict(Status.FAIL, problem.sentence)
    return tuple(Result(each.guarantee, each.sentence, each.points, broken, 0) for each in found)


def notices_of(zygote: Zygote, *others: str) -> tuple[str, ...]:
    """What a report says once, each sentence once; that there are no walls, too."""
    notices = list(others)
    if zygote.isolation == "plain":
        notices.append(
            "No isolation: this system has no Landlock, or ACKADEMY_ISOLATION=plain is set. The "
            "module could read every file that you can. Grade only code you trust here."
        )
    return tuple(dict.fromkeys(notices))


def versions(*packages: str) -> dict[str, str]:
    """Versions of everything a verdict may depend on: ours, Python's, and these packages'."""
    from importlib import metadata  # noqa: PLC0415 - slow, and the simulation has no clients

    found = {"ackademy": __version__, "python": platform.python_version()}
    for package in packages:
        found[package] = metadata.version(package)
    return found
