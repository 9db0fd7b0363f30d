"""In how many of many checks, each with seeds of its own, every mutant dies in the simulation.

    python -m autograder.benchmarks.kills [CHECKS] [EXERCISE...]

A check of a student's module always begins with seeds 1, 2 and 3, and a seed's history is always the
same: a mutant that dies once dies every time. Whether that was luck shows with other seeds. Each check here
has three that no other has, one of each manner; a mutant must die in it by a guarantee that it names. The
scenario that killed it last is tried first, so this takes less time than as many checks. Prints who
lived, and exits with 1 if somebody did.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from autograder import catalog
from autograder.authoring import folders, mutants
from autograder.exam import Scenario, Zygote, isolation_here, load_scenarios
from autograder.exam.simulated import NotSimulatedError
from autograder.exam.simulated_child import NAME, Child
from autograder.grading.exploring import LEAST_SEEDS, Exploring
from autograder.model import Exercise, Status
from autograder.sim.schedule import Schedule

CHECKS = 100
AT_ONCE = 2


@dataclass
class Hunt:
    """One mutant, and what kills it."""

    exploring: Exploring
    scenarios: list[Scenario]  # the last killer first
    child: Child
    names: frozenset[str]
    seeds: int = 0  # tried until one killed
    survived: list[int] = field(default_factory=list)  # the first seeds of these checks

    async def check(self, first_seed: int) -> None:
        """Three seeds, until one kills."""
        for seed in range(first_seed, first_seed + LEAST_SEEDS):
            self.seeds += 1
            if await self._dies(Schedule.of(seed)):
                return
        self.survived.append(first_seed)

    async def _dies(self, schedule: Schedule) -> bool:
        for scenario in list(self.scenarios):
            try:
                judged = await self.exploring.judged(self.child, scenario, schedule)
            except NotSimulatedError:
                continue
            failed = {
                name
                for each in judged
                for name, verdict in each.verdicts.items()
                if verdict.status is Status.FAIL
            }
            if failed & self.names:
                self.scenarios.remove(scenario)
                self.scenarios.insert(0, scenario)
                return True
        return False


async def hunted(
    exercise: Exercise,
    mutant: mutants.Mutant,
    zygote: Zygote,
    scenarios: list[Scenario],
    checks: int,
) -> Hunt:
    """All checks of one mutant."""
    with tempfile.TemporaryDirectory() as folder:
        module = mutants.apply(mutant, exercise.reference, Path(folder))
        child = Child(zygote, module)
        exploring = Exploring(
            exercise, scenarios, (), None, stop_early=True, began=time.monotonic()
        )
        hunt = Hunt(exploring, list(scenarios), child, frozenset(mutant.caught_by))
        try:
            for check in range(checks):
                await hunt.check(check * LEAST_SEEDS + 1)
        finally:
            await child.end()
    return hunt


async def hunt_all(exercise: Exercise, checks: int) -> int:
    """Every mutant that the simulation is asked about; prints, and returns how often one lived."""
    found = [mutants.parse(patch) for patch in folders.patches(exercise)]
    found = [each for each in found if each.only_on in {"", NAME}]
    scenarios, room = load_scenarios(exercise.hidden_tests), asyncio.Semaphore(AT_ONCE)
    began, lived = time.monotonic(), 0
    with Zygote("memory", isolation_kind=isolation_here()) as zygote:
        await asyncio.to_thread(zygote.wait_ready)

        async def one(mutant: mutants.Mutant) -> Hunt:
            async with room:
                return await hunted(exercise, mutant, zygote, scenarios, checks)

        hunts = await asyncio.gather(*map(one, found))
    for mutant, hunt in zip(found, hunts, strict=True):
        lived += len(hunt.survived)
        if hunt.survived or hunt.seeds > checks:
            print(
                f"  {mutant.name}: dead in {checks - len(hunt.survived)} of {checks} checks, "
                f"{hunt.seeds / checks:.2f} seeds each; lived from seed {hunt.survived[:5] or '-'}"
            )
    print(
        f"{exercise.path}: {len(found)} mutants, {checks} checks each, {lived} times one lived, "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )
    return lived


def main() -> int:
    """Hunt, print, compare."""
    numbers = [int(each) for each in sys.argv[1:] if each.isdecimal()]
    names = [each for each in sys.argv[1:] if not each.isdecimal()]
    exercises = (
        [catalog.find(name) for name in names]
        if names
        else [each for each in catalog.load_all(catalog.course_root())[0] if NAME in each.engines]
    )
    lived = [asyncio.run(hunt_all(each, (numbers or [CHECKS])[0])) for each in exercises]
    return 1 if any(lived) else 0


if __name__ == "__main__":
    sys.exit(main())
