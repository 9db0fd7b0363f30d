"""Kill a consumer between two steps: in a process of its own, as the graders do it."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from autograder.checks import judge
from autograder.checks.pool import no_message_is_lost
from autograder.exam import Exam, ScenarioOver, Zygote, isolation_here
from autograder.exam.engines import open_engine
from autograder.model import Call, History, Verdict
from lessonkit.broker import ENGINE, server

_PRELUDE = """import asyncio
from autograder.messaging import Handler, Message, Permanent, SettleFailed, Source, Transient

"""


async def crash(
    run: Callable[..., Any], *needs: Callable[..., Any], workers: int, orders: int
) -> tuple[Verdict, History]:
    """Run a lesson's consumer in its own process, kill it with all workers busy, start it again.

    `needs` are the other functions its code calls. Returns what the graders' own check for lost
    messages says of the run, and the run.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        Zygote(ENGINE, isolation_kind=isolation_here()) as zygote,
    ):
        await asyncio.to_thread(zygote.wait_ready)
        module = Path(folder) / "consumer.py"
        module.write_text(_module(run, needs), encoding="utf-8")
        engine = await open_engine(ENGINE, server().url)
        try:
            exam = Exam(
                engine=engine, zygote=zygote, submission=module,
                call=lambda _: Call("main"), seed=1,
                test="crash", exercise="lesson",
            )  # fmt: skip
            with suppress(ScenarioOver):  # what it waits for cannot come: that is the thing to see
                await _scenario(exam, workers, orders)
        finally:
            await engine.close()
    history = exam.histories[0]
    return judge(history, [no_message_is_lost])["no_message_is_lost"], history


def _module(run: Callable[..., Any], needs: tuple[Callable[..., Any], ...]) -> str:
    """The functions as a file of their own, with the entry point that graders call."""
    asked = [name for name in ("workers", "stop") if name in inspect.signature(run).parameters]
    call = ", ".join(["source", "handle", *(f"{name}={name}" for name in asked)])
    parts = [inspect.getsource(each) for each in (*needs, run)]
    parts.append(
        f"async def main(source, handle, *, workers, stop):\n    await {run.__name__}({call})\n"
    )
    return _PRELUDE + "\n\n".join(parts)


async def _scenario(exam: Exam, workers: int, orders: int) -> None:
    async with exam.start(workers=workers) as run:
        await run.hold()
        await run.publish(exam.messages(orders))
        await run.until(running=workers)
        await run.kill()
        await run.release()
        await run.restart()
        await run.until(settled=orders)
