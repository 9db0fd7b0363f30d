"""One submission to a `Grade`: every scenario, every seed, the worst verdict per guarantee."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autograder.model import Exercise, Grade

if TYPE_CHECKING:
    from autograder.brokers import Server

__all__ = ["grade"]

SEEDS = (1, 2, 3)


def grade(
    exercise: Exercise,
    submission: Path,
    *,
    engine: str,
    provider: str | None = None,
    server: Server | None = None,
    stores: Mapping[str, Server] | None = None,
    seeds: Sequence[int] = SEEDS,
    tests: Path | None = None,
    stop_early: bool = True,
    on_progress: Callable[[int, int], None] | None = None,
) -> Grade:
    """Grade one submission on one engine. Runs an event loop of its own.

    `tests` defaults to the hidden ones, or to the visible ones where there are no others.
    `server` is used and left running; without it one is acquired from `provider` or the first
    that has one; `stores` are those of the exercise's databases that run already, by name. `stop_early` spares later seeds once a guarantee has failed. Ctrl-C yields what
    was judged so far, as a grade that is not complete. `on_progress` is told how many scenarios
    are done, and how many are planned.

    On `sim` there is no server, and no seeds (an empty tuple) means as many as fit into a moment:
    see `autograder.grading.simulated`.

    Raises `UsageError` for a submission that is no file and `GraderError` for a fault of ours.
    """
    if engine == "sim":
        from autograder.grading.simulated import simulate  # noqa: PLC0415 - loads no broker

        return simulate(
            exercise,
            submission,
            seeds=seeds,
            tests=tests,
            stop_early=stop_early,
            on_progress=on_progress,
        )
    from autograder.grading.connected import grade_connected  # noqa: PLC0415 - loads no simulation

    return grade_connected(
        exercise,
        submission,
        engine=engine,
        provider=provider,
        server=server,
        stores=stores or {},
        seeds=seeds,
        tests=tests,
        stop_early=stop_early,
        on_progress=on_progress,
    )
