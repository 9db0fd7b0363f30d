"""Digests of simulated histories: the same on every machine and every version of Python.

    uv run python -m autograder.tests.sim.histories            # print them
    uv run python -m autograder.tests.sim.histories --write    # keep them in histories.json
    uv run python -m autograder.tests.sim.histories keyed_pool # print those of another exercise's reference

They change whenever the scenarios, the programs or the simulation do; then write them anew. What must
not happen is that two versions of Python disagree: `test_same_everywhere` compares each with the file.
It needs nothing but the standard library, so that a bare interpreter can run it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from autograder import catalog
from autograder.exam import Scenario, ScenarioOver, Zygote, isolation_here, load_scenarios
from autograder.exam.simulated import SimExam
from autograder.exam.simulated_child import Child
from autograder.model import Exercise, History
from autograder.sim.schedule import Schedule

FILE = Path(__file__).with_suffix(".json")
SEEDS = range(1, 10)
"""Each manner with each trouble, and all paces."""

AT_ONCE = 2

KEPT = "worker_pool"
"""The exercise whose digests lie in the file. Those of the others are only compared with one another."""


def exercise(name: str = KEPT) -> Exercise:
    """The one whose programs are run."""
    return catalog.find(name, catalog.course_root())


def programs(of: Exercise) -> dict[str, Path]:
    """The reference; of the exercise whose digests are kept, the same written in other ways as well."""
    if not of.path.endswith(KEPT):
        return {"reference": of.reference}
    variants = sorted((of.solution_folder / "variants").glob("*.py"))
    return {"reference": of.reference} | {f"variants/{each.stem}": each for each in variants}


async def histories(of: Exercise, child: Child, scenario: Scenario, seed: int) -> list[History]:
    """What one scenario records with one seed."""
    exam = SimExam(
        child=child,
        call=of.call,
        schedule=Schedule.of(seed),
        test=scenario.name,
        exercise=of.path,
        tables=of.tables,
    )
    with suppress(ScenarioOver):  # the history says why
        await scenario.function(exam)
    return exam.histories


async def digest_of(of: Exercise, child: Child, scenario: Scenario) -> str:
    """All events of this scenario, seed by seed, byte for byte."""
    digest = hashlib.sha256()
    for seed in SEEDS if of.path.endswith(KEPT) else SEEDS[:3]:
        for history in await histories(of, child, scenario, seed):
            events = [astuple(event) for event in history.events]
            digest.update(json.dumps(events).encode())
    return digest.hexdigest()[:16]


async def digests(zygote: Zygote, of: Exercise) -> dict[str, dict[str, str]]:
    """Program by program, scenario by scenario."""
    scenarios, limit = load_scenarios(of.hidden_tests), asyncio.Semaphore(AT_ONCE)

    async def one(path: Path) -> dict[str, str]:
        async with limit:
            child = Child(zygote, path)
            try:
                return {each.name: await digest_of(of, child, each) for each in scenarios}
            finally:
                await child.end()

    await asyncio.to_thread(zygote.wait_ready)
    found = programs(of)
    return dict(zip(found, await asyncio.gather(*map(one, found.values())), strict=True))


def main() -> None:
    """Print or write them."""
    writing = sys.argv[1:] == ["--write"]
    of = exercise(*([] if writing else sys.argv[1:]))
    with Zygote("memory", isolation_kind=isolation_here()) as zygote:
        text = json.dumps(asyncio.run(digests(zygote, of)), indent=2) + "\n"
    if writing:
        FILE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
