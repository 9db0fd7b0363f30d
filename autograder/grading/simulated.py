"""Grading in the simulation: what it says is feedback, and only a real broker decides a grade.

A check that takes a second has none to lose: first of all the process is started that subjects are
forked from, and most of this process's own imports come while that one makes its own.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autograder.exam.process import Zygote, isolation_here
from autograder.grading.faults import machine_faults_are_ours
from autograder.grading.submission import HandedIn
from autograder.model import Exercise, Grade, Result, UsageError
from autograder.sim.schedule import REAL, Rehearsal

if TYPE_CHECKING:
    from autograder.grading.outcome import Progress
    from autograder.grading.verdicts import Judged

PROVIDER = "simulation"


def simulate(
    exercise: Exercise,
    submission: Path,
    *,
    seeds: Sequence[int] = (),
    tests: Path | None = None,
    stop_early: bool = True,
    on_progress: Progress | None = None,
) -> Grade:
    """Grade one submission in the simulation; without seeds, on as many as there is time for.

    Raises as `autograder.grading.grade` does. Ctrl-C yields what was judged so far.
    """
    handed_in = HandedIn.now(exercise, submission)
    problem, began = handed_in.problem, handed_in.began
    with machine_faults_are_ours(), _zygote() as zygote:
        from autograder.exam import load_scenarios
        from autograder.exam.simulated_child import NAME
        from autograder.grading import outcome, verdicts
        from autograder.grading.exploring import Exploring

        collected = outcome.Collected()
        scenarios = load_scenarios(tests or outcome.tests_of(exercise))
        exploring = Exploring(
            exercise, scenarios, tuple(seeds), on_progress, stop_early=stop_early, began=began
        )
        results: tuple[Result, ...] = ()
        if problem is None:
            try:
                results = asyncio.run(exploring.carry_out(zygote, submission, collected))
            except KeyboardInterrupt:
                collected.complete = False
            problem = verdicts.problem(collected.judged)
        else:
            collected.complete = True
    return outcome.as_grade(
        handed_in,
        collected,
        results or outcome.results_of(exercise, scenarios, collected, problem),
        problem,
        zygote,
        engine=NAME,
        provider=PROVIDER,
    )


def _zygote() -> Zygote:
    """It needs no broker's adapter, only the port."""
    return Zygote("memory", isolation_kind=isolation_here())


def replay(exercise: Exercise, submission: Path, name: str, *, tests: Path | None) -> list[Judged]:
    """One simulated run again, by its name. Raises `UsageError` for a name that is none."""
    from autograder.exam import load_scenarios
    from autograder.exam.simulated import NotSimulatedError
    from autograder.exam.simulated_child import Child
    from autograder.grading.exploring import Exploring
    from autograder.grading.outcome import tests_of

    began = time.monotonic()
    scenarios = load_scenarios(tests or tests_of(exercise))
    try:
        run = Rehearsal.read(name)
        scenario = next(each for each in scenarios if each.name == run.scenario)
    except (ValueError, StopIteration):
        known = ", ".join(each.name for each in scenarios)
        raise UsageError(
            f"{name!r} names no simulated run. It is a scenario, @ and a seed; there are: {known}.",
            next_command=f"ackademy replay {scenarios[0].name}@1 {exercise.path}",
        ) from None
    seeds = (run.schedule.seed,)
    exploring = Exploring(exercise, scenarios, seeds, None, stop_early=False, began=began)

    async def carry_out(zygote: Zygote) -> list[Judged]:
        await asyncio.to_thread(zygote.wait_ready)
        child = Child(zygote, submission)
        try:
            return await exploring.judged(child, scenario, run.schedule, run.share)
        except NotSimulatedError as absent:
            raise UsageError(
                f"The simulation has no {absent}: only a real broker can run this.",
                next_command=f"ackademy check {exercise.path} --engine {REAL[run.schedule.manner]}",
            ) from None
        finally:
            await child.end()

    with machine_faults_are_ours(), _zygote() as zygote:
        return asyncio.run(carry_out(zygote))
