"""Let nobody confirm a consumer's dead letters, and kill it with one under way, as the graders do."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from autograder.checks import judge
from autograder.checks.dead_letter_queue import no_message_is_lost
from autograder.exam import Exam, ScenarioOver
from autograder.model import Call, History, Verdict
from lessonkit.program import as_module, examined

_CALL = Call("main", ("source", "handle", "dead_letters"), ("max_attempts", "stop"))
_IMPORTS = """import asyncio
from autograder.messaging import DeadLetters, Handler, Message, Permanent, Source
"""


async def unheard(
    run: Callable[..., Any], *needs: Callable[..., Any], orders: int = 3
) -> tuple[Verdict, History]:
    """Run a lesson's consumer in its own process with dead letters that do not answer; kill it; go on.

    Each of the orders fails for good. `needs` are the other functions that the consumer calls.
    Returns what the graders' own check for lost messages says of the run, and the run.
    """
    async with examined(_module(run, needs), _CALL) as exam:
        with suppress(ScenarioOver):  # what it waits for cannot come: that is the thing to see
            await _scenario(exam, orders)
    history = exam.histories[0]
    return judge(history, [no_message_is_lost])["no_message_is_lost"], history


def _module(run: Callable[..., Any], needs: tuple[Callable[..., Any], ...]) -> str:
    """The functions as a file of their own, with the entry point that graders call."""
    asked = [name for name in inspect.signature(run).parameters if name in _CALL.names]
    call = ", ".join(f"{name}={name}" for name in asked)
    main = "async def main(source, handle, dead_letters, *, max_attempts, stop):\n"
    return as_module(_IMPORTS, (*needs, run), f"{main}    await {run.__name__}({call})\n")


async def _scenario(exam: Exam, orders: int) -> None:
    async with exam.start(max_attempts=1, proxy=True) as run:
        await run.letters_down()
        await run.publish(exam.messages(orders, permanent=True))
        await run.until(publish_failed=1)
        await run.kill()
        await run.letters_up()
        await run.restart()
        await run.until(dead_lettered=orders)
