"""A cell's functions as a program of its own, for the graders' exam to start, signal and kill."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from autograder.exam import Exam, Zygote, isolation_here
from autograder.exam.engines import Engine, open_engine
from autograder.exam.exam import NO_STORES
from autograder.exam.stores import Stores
from autograder.model import Call
from lessonkit.broker import ENGINE, server

# what a program with a database loads beside the adapter
_CLIENTS = ("autograder.storage.postgres",)


def as_module(imports: str, functions: Sequence[Callable[..., Any]], main: str) -> str:
    """The functions' source as a file of their own, with the `main` that graders call."""
    return f"{imports}\n\n" + "\n\n".join([*map(inspect.getsource, functions), main])


@asynccontextmanager
async def examined(
    text: str,
    call: Call,
    around: Callable[[Engine], Any] = lambda engine: engine,
    stores: Stores = NO_STORES,
) -> AsyncIterator[Exam]:
    """An exam of a module with this text, on the lesson's broker. `around` may wrap its engine."""
    zygote = await asyncio.to_thread(_zygote, _CLIENTS if stores.servers else ())
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder) / "consumer.py"
        module.write_text(text, encoding="utf-8")
        engine = await open_engine(ENGINE, server().url)
        try:
            yield Exam(
                engine=around(engine), zygote=zygote, submission=module,
                call=lambda _: call, seed=1, test="lesson", exercise="lesson", stores=stores,
            )  # fmt: skip
        finally:
            await stores.close()
            await engine.close()


@cache
def _zygote(also: tuple[str, ...]) -> Zygote:
    """The process that all programs of a page are forked from: it has loaded the adapter once."""
    zygote = Zygote(ENGINE, isolation_kind=isolation_here(), also=also).__enter__()
    atexit.register(zygote.__exit__, None, None, None)
    zygote.wait_ready()
    return zygote
