"""Grading on a real broker: the one place where exam, checks and brokers meet."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from autograder import brokers
from autograder.brokers import Server
from autograder.exam import Scenario, Zygote, isolation_here, load_scenarios
from autograder.exam.stores import modules
from autograder.grading import verdicts
from autograder.grading.faults import machine_faults_are_ours, root_of
from autograder.grading.outcome import (
    Collected,
    Progress,
    Tried,
    as_grade,
    has_failed,
    results_of,
    tests_of,
)
from autograder.grading.session import Session, open_session
from autograder.grading.submission import HandedIn
from autograder.model import Exercise, Grade

AT_ONCE = 12  # scenarios in flight: each waits most of its time for something
CLIENTS = ("aiokafka", "nats-py", "pika")  # packages that speak to the real brokers


def grade_connected(
    exercise: Exercise,
    submission: Path,
    *,
    engine: str,
    provider: str | None,
    server: Server | None,
    stores: Mapping[str, Server],
    seeds: Sequence[int],
    tests: Path | None,
    stop_early: bool,
    on_progress: Progress | None,
) -> Grade:
    """Grade one submission on one real engine; see `autograder.grading.grade`."""
    handed_in = HandedIn.now(exercise, submission)
    problem = handed_in.problem
    scenarios = [
        each for each in load_scenarios(tests or tests_of(exercise)) if not each.simulated_only
    ]
    collected = Collected()
    with machine_faults_are_ours(), ExitStack() as stack:
        zygote = stack.enter_context(
            Zygote(engine, isolation_kind=isolation_here(), also=modules(exercise))
        )
        if server is None:
            server = stack.enter_context(brokers.acquire(engine, provider))
        if problem is None:
            plan = _Plan(submission, scenarios, tuple(seeds), stop_early, on_progress)
            opening = open_session(exercise, server, zygote, stores)
            try:
                asyncio.run(plan.carry_out(opening, collected))
            except KeyboardInterrupt:
                collected.complete = False
            problem = verdicts.problem(collected.judged)
        else:
            collected.complete = True
    return as_grade(
        handed_in,
        collected,
        results_of(exercise, scenarios, collected, problem),
        problem,
        zygote,
        engine=engine,
        provider=server.provider,
        broker_version=server.version,
        notices=server.notices,
        packages=CLIENTS,
    )


@dataclass(frozen=True)
class _Plan:
    """Which scenarios run with which seeds, and in which order."""

    submission: Path
    scenarios: list[Scenario]
    seeds: tuple[int, ...]
    stop_early: bool
    on_progress: Progress | None

    async def carry_out(
        self, opening: AbstractAsyncContextManager[Session], collected: Collected
    ) -> None:
        """All scenarios of the first seed, then those of the next, as soon as there is room.

        A seed that fails ends those after it: most mistakes show with the first.
        """
        tried = Tried(self.scenarios)
        try:
            async with opening as session:
                await self._try(session, tried, collected)
            collected.complete = True
        finally:
            for seed, judged in tried.counting(stop_early=self.stop_early).items():
                collected.judged += judged
                if judged:  # Ctrl-C: the others had shown nothing yet
                    collected.seeds.append(seed)

    async def _try(self, session: Session, tried: Tried, collected: Collected) -> None:
        room = asyncio.Semaphore(AT_ONCE)
        planned = len(self.scenarios) * len(self.seeds)
        running: dict[int, list[asyncio.Task[None]]] = {}

        async def one(scenario: Scenario, seed: int) -> None:
            async with room:
                examined = await session.judged(scenario, self.submission, seed)
            tried.add(seed, scenario, examined.judged)
            collected.output = collected.output or examined.output
            collected.notices += examined.notices
            collected.scenarios += 1
            if self.on_progress is not None:
                self.on_progress(collected.scenarios, planned)
            if self.stop_early and has_failed(examined.judged):
                for later in range(self.seeds.index(seed) + 1, len(self.seeds)):
                    for task in running[self.seeds[later]]:
                        task.cancel()

        try:
            async with asyncio.TaskGroup() as group:
                for seed in self.seeds:
                    tried.begin(seed)
                    running[seed] = [
                        group.create_task(one(scenario, seed)) for scenario in self.scenarios
                    ]
        except ExceptionGroup as group:
            raise root_of(group) from None
