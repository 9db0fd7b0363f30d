"""Kill a consumer between two steps: in a process of its own, as the graders do it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from autograder.checks import judge
from autograder.checks.pool import no_message_is_lost
from autograder.exam import Exam, ScenarioOver
from autograder.model import Call, History, Verdict
from lessonkit.program import as_module, examined

_IMPORTS = """import asyncio
from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source, Transient
"""


async def crash(
    run: Callable[..., Any], *needs: Callable[..., Any], workers: int, orders: int
) -> tuple[Verdict, History]:
    """Run a lesson's consumer in its own process, kill it with all workers busy, start it again.

    `needs` are the other functions its code calls. Returns what the graders' own check for lost
    messages says of the run, and the run.
    """
    async with examined(_module(run, needs), Call("main")) as exam:
        with suppress(ScenarioOver):  # what it waits for cannot come: that is the thing to see
            await _scenario(exam, workers, orders)
    history = exam.histories[0]
    return judge(history, [no_message_is_lost])["no_message_is_lost"], history


def _module(run: Callable[..., Any], needs: tuple[Callable[..., Any], ...]) -> str:
    """The functions as a file of their own, with the entry point that graders call."""
    asked = [name for name in ("workers", "stop") if name in inspect.signature(run).parameters]
    call = ", ".join(["source", "handle", *(f"{name}={name}" for name in asked)])
    return as_module(
        _IMPORTS,
        (*needs, run),
        f"async def main(source, handle, *, workers, stop):\n    await {run.__name__}({call})\n",
    )


async def _scenario(exam: Exam, workers: int, orders: int) -> None:
    async with exam.start(workers=workers) as run:
        await run.hold()
        await run.publish(exam.messages(orders))
        await run.until(running=workers)
        await run.kill()
        await run.release()
        await run.restart()
        await run.until(settled=orders)
