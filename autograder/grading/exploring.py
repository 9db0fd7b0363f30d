"""Exploring: many schedules in a moment, then the smallest run that fails.

Schedules are tried in the order of their seeds until one fails or the time is up. Whatever was
tried after the first seed that failed is left out, so that a slow machine says the same as a fast one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, product
from pathlib import Path

from autograder.exam import Scenario, ScenarioOver, Zygote
from autograder.exam.simulated import NotSimulatedError, SimExam
from autograder.exam.simulated_child import Child
from autograder.grading import verdicts
from autograder.grading.faults import root_of
from autograder.grading.outcome import Collected, Progress, Tried, results_of
from autograder.grading.verdicts import Judged
from autograder.model import Exercise, GraderError, Kind, Result, Status, Wait
from autograder.sim.schedule import MANNERS, TROUBLES, Rehearsal, Schedule

EXPLORE_S = 0.4
"""Until then schedules are tried when nobody says which, counted from the beginning of the grading:
a second is what a check may take, and a start that took long leaves less."""

LEAST_SEEDS = len(MANNERS)
"""Seeds that are tried however long it takes: one of each manner."""

AT_ONCE = 2
"""Worlds that move at the same time: each keeps a processor busy."""

SHARES = (16, 8, 4, 2, 1)
"""One message of so many, the smallest run first, when a failing run is made smaller."""

SMALL = 30
"""Events of a run that is not made smaller: it fits a screen."""


@dataclass
class Exploring:
    """Which scenarios run with which seeds, and what came of it."""

    exercise: Exercise
    scenarios: list[Scenario]
    seeds: tuple[int, ...]  # none: as many as there is time for
    on_progress: Progress | None
    stop_early: bool
    began: float  # on the monotonic clock
    _tried: Tried = field(init=False)
    _absent: dict[str, str] = field(default_factory=dict)  # scenario -> what is not simulated
    _done: int = 0
    _blocked: bool = False
    _small: dict[Rehearsal, asyncio.Future[list[Judged]]] = field(default_factory=dict)
    _output: str = ""  # of the first run that printed anything

    def __post_init__(self) -> None:
        self._tried = Tried(self.scenarios)

    async def carry_out(
        self, zygote: Zygote, submission: Path, collected: Collected
    ) -> tuple[Result, ...]:
        """Try schedules, and make what fails small."""
        await asyncio.to_thread(zygote.wait_ready)
        work = self._work(self.began + EXPLORE_S)
        children = [Child(zygote, submission) for _ in range(AT_ONCE)]
        try:
            try:
                async with asyncio.TaskGroup() as group:
                    for child in children:
                        group.create_task(self._explore(child, work))
            except ExceptionGroup as group:
                raise root_of(group) from None
            self._collect(collected)
            collected.output = self._output
            found = results_of(
                self.exercise, self.scenarios, collected, verdicts.problem(collected.judged)
            )
            free: asyncio.Queue[Child] = asyncio.Queue()
            for child in children:
                free.put_nowait(child)
            return tuple(await asyncio.gather(*(self._smaller(free, each) for each in found)))
        finally:
            for child in children:
                await child.end()

    def _work(self, until: float) -> Iterator[tuple[int, Scenario]]:
        """Seed by seed, all scenarios; the next seed only if the ones before leave a reason to."""
        for number, seed in enumerate(self.seeds or count(1)):
            late = not self.seeds and number >= LEAST_SEEDS and time.monotonic() > until
            if late or self._blocked or (self.stop_early and self._tried.any_failed()):
                return
            self._tried.begin(seed)
            for scenario in self.scenarios:
                if self._blocked:
                    return
                if scenario.name not in self._absent:
                    yield seed, scenario

    async def _explore(self, child: Child, work: Iterator[tuple[int, Scenario]]) -> None:
        for seed, scenario in work:
            try:
                judged = await self.judged(child, scenario, Schedule.of(seed))
            except NotSimulatedError as absent:
                self._absent[scenario.name] = str(absent)
                continue
            self._tried.add(seed, scenario, judged)
            self._blocked |= any(_is_blocked(each) for each in judged)
            self._output = self._output or child.printed
            self._done += 1
            if self.on_progress is not None:
                planned = len(self.scenarios) * (len(self.seeds) or LEAST_SEEDS)
                self.on_progress(self._done, max(planned, self._done))

    async def judged(
        self, child: Child, scenario: Scenario, schedule: Schedule, share: int = 1
    ) -> list[Judged]:
        """Run one scenario in worlds of its own and judge what happened."""
        exam = SimExam(
            child=child,
            call=self.exercise.call,
            schedule=schedule,
            test=scenario.name,
            exercise=self.exercise.path,
            tables=self.exercise.tables,
            share=share,
        )
        try:
            async with asyncio.timeout(self.exercise.timeout_s):
                await scenario.function(exam)
        except ScenarioOver:
            pass  # the history says why
        except TimeoutError:
            await child.end()
            raise NotSimulatedError(f"scenario that takes {self.exercise.timeout_s:g} s") from None
        if not exam.histories:
            raise GraderError(f"The scenario {scenario.name} recorded no history.")
        return verdicts.judge(self.exercise, scenario.guarantees, exam.histories)

    def _collect(self, collected: Collected) -> None:
        """Count what was tried up to the first seed that failed."""
        for seed, judged in self._tried.counting(stop_early=self.stop_early).items():
            collected.judged += judged
            collected.seeds.append(seed)
        collected.notices += self._not_simulated()
        collected.complete = True

    def _not_simulated(self) -> list[str]:
        """A sentence for each thing that the simulation has not, whatever number of scenarios met it."""
        met: dict[str, list[str]] = {}
        for scenario, what in sorted(self._absent.items()):
            met.setdefault(what, []).append(scenario)
        total = len(self.scenarios)
        return [
            f"{names[0] if len(names) == 1 else f'{len(names)} of {total} scenarios'}: "
            f"the simulation has no {what}. Real servers judge that."
            for what, names in met.items()
        ]

    async def _smaller(self, free: asyncio.Queue[Child], result: Result) -> Result:
        """The same failure with fewer messages and less disorder, if there is such a run.

        It counts only if the same guarantee fails with the same slip, in fewer events.
        """
        if result.verdict.status is not Status.FAIL or result.history is None or self._blocked:
            return result
        scenario = next(each for each in self.scenarios if each.name == result.test)
        usual = Schedule.of(result.seed)
        run = Rehearsal(result.test, usual)
        if len(result.history.events) <= SMALL:
            return replace(result, replay=str(run))
        for share in SHARES:
            for pace, trouble in product(
                dict.fromkeys(("instant", "even", usual.pace)),
                dict.fromkeys((TROUBLES[0], usual.trouble)),
            ):
                smaller = Rehearsal(result.test, replace(usual, pace=pace, trouble=trouble), share)
                for each in await self._once(free, scenario, smaller):
                    verdict = each.verdicts.get(result.guarantee)
                    if verdict is not None and _same_in_less(result, each):
                        return replace(
                            result, verdict=verdict, history=each.history, replay=str(smaller)
                        )
        return replace(result, replay=str(run))

    async def _once(
        self, free: asyncio.Queue[Child], scenario: Scenario, run: Rehearsal
    ) -> list[Judged]:
        """What this run shows; nothing, if the scenario does not bear it. Each is run once."""
        if run not in self._small:
            self._small[run] = asyncio.ensure_future(self._try(free, scenario, run))
        return await self._small[run]

    async def _try(
        self, free: asyncio.Queue[Child], scenario: Scenario, run: Rehearsal
    ) -> list[Judged]:
        child = await free.get()
        try:
            return await self.judged(child, scenario, run.schedule, run.share)
        except Exception:  # noqa: BLE001 - many a scenario cannot do with fewer messages
            return []
        finally:
            free.put_nowait(child)


def _same_in_less(result: Result, judged: Judged) -> bool:
    verdict, history = judged.verdicts[result.guarantee], result.history
    return (
        verdict.status is Status.FAIL
        and verdict.slip == result.verdict.slip
        and history is not None
        and len(judged.history.events) < len(history.events)
    )


def _is_blocked(judged: Judged) -> bool:
    return any(event.detail.startswith(Wait.BLOCKED) for event in judged.history.of(Kind.EXPECTED))
