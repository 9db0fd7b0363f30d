"""An examiner over embedded NATS for the tests of this folder."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio

from autograder.exam import Exam, Zygote, isolation_here
from autograder.exam.engines import Engine, open_engine
from autograder.model import Call
from autograder.pytest_plugin import Bench

POOL = """
    import asyncio

    async def run(source, handle, *, workers, stop):
        async def work():
            async for message in source:
                try:
                    await handle(message)
                except Exception:
                    await message.nack(requeue=True)
                else:
                    await message.ack()

        tasks = [asyncio.create_task(work()) for _ in range(workers)]
        waiter = asyncio.create_task(stop.wait())
        everybody = asyncio.gather(*tasks)
        await asyncio.wait({waiter, everybody}, return_when=asyncio.FIRST_COMPLETED)
        await source.stop_receiving()
        await everybody
        waiter.cancel()
"""


class MakeExam(Protocol):
    """An exam of a module given as text, and of the function it is about."""

    def __call__(self, text: str = POOL, call: Call = ...) -> Exam: ...


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote("nats", isolation_kind=isolation_here()) as zygote:
        zygote.wait_ready()
        yield zygote


@pytest_asyncio.fixture
async def engine(bench: Bench) -> AsyncIterator[Engine]:
    server = bench.server("nats")
    engine = await open_engine("nats", server.url)
    yield engine
    await engine.close()


@pytest.fixture
def make_exam(engine: Engine, zygote: Zygote, tmp_path: Path) -> MakeExam:
    """An exam of a module given as text."""

    def make(text: str = POOL, call: Call = Call("run")) -> Exam:  # noqa: B008 - it never changes
        module = tmp_path / "worker_pool.py"
        module.write_text(textwrap.dedent(text))
        return Exam(
            engine=engine,
            zygote=zygote,
            submission=module,
            call=lambda _: call,
            seed=1,
            test="test",
        )

    return make
