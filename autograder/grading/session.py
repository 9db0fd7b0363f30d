"""What the scenarios of one grade share: a server, an engine, a zygote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from autograder import brokers
from autograder.brokers import Server
from autograder.exam import Exam, Scenario, ScenarioOver, Zygote
from autograder.exam.engines import Engine, open_engine
from autograder.exam.stores import Stores, of_exercise
from autograder.grading.verdicts import Judged, judge
from autograder.model import Exercise, GraderError, Status


@dataclass
class Session:
    """Runs scenarios of one exercise against one server."""

    exercise: Exercise
    server: Server
    engine: Engine
    zygote: Zygote
    stores: Stores

    async def judged(self, scenario: Scenario, submission: Path, seed: int) -> Examined:
        """Run one scenario with one seed and judge its histories.

        Raises `GraderError` when the broker died or we failed.
        """
        exam = Exam(
            engine=self.engine,
            zygote=self.zygote,
            submission=submission,
            call=self.exercise.call,
            seed=seed,
            test=scenario.name,
            exercise=self.exercise.path,
            stores=self.stores,
        )
        try:
            async with asyncio.timeout(self.exercise.timeout_s) as exam.timer:
                await scenario.function(exam)
        except ScenarioOver:
            pass  # the history says why
        except TimeoutError:
            pass  # the history is marked as truncated
        except (GraderError, OSError) as error:
            await self._blame_server(error)
            raise
        judged = judge(self.exercise, scenario.guarantees, exam.histories)
        if not (judged and all(map(_all_kept, judged))):  # what went well went through the servers
            await self._blame_server(None)
        if not exam.histories:
            raise GraderError(_no_history(scenario, exam))
        return Examined(judged, exam.output, exam.notices)

    async def _blame_server(self, error: Exception | None) -> None:
        for server in (self.server, *self.stores.servers.values()):
            if not await asyncio.to_thread(brokers.is_alive, server):
                raise GraderError(
                    f"The {server.engine} server ({server.provider}) died during the run: "
                    "nothing that happened since counts.",
                    next_command="ackademy brokers status",
                ) from error


def _all_kept(judged: Judged) -> bool:
    return all(verdict.status is Status.PASS for verdict in judged.verdicts.values())


def _no_history(scenario: Scenario, exam: Exam) -> str:
    """Why there is nothing to judge: an author's mistake, or a machine that was too slow."""
    if exam.timer is not None and exam.timer.expired():
        return f"Time ran out before the first run of {scenario.name} had begun: this machine or its broker is too slow."
    return (
        f"The scenario {scenario.name} recorded no history: it has no `async with exam.start(...)`."
    )


@dataclass(frozen=True)
class Examined:
    """What one scenario with one seed left behind."""

    judged: list[Judged]
    output: str
    notices: list[str]


@asynccontextmanager
async def open_session(
    exercise: Exercise, server: Server, zygote: Zygote, stores: Mapping[str, Server]
) -> AsyncIterator[Session]:
    """Connect to `server`, for as long as the context lasts; subjects are forked from `zygote`.

    A store that is needed and not among `stores` is acquired.
    """
    async with AsyncExitStack() as stack:
        engine = await open_engine(server.engine, server.url)
        stack.push_async_callback(engine.close)
        servers = dict(stores)
        for store in of_exercise(exercise):
            if store not in servers:
                servers[store] = await stack.enter_async_context(brokers.acquire(store))
        await asyncio.to_thread(zygote.wait_ready)
        opened = Stores(servers, exercise.tables)
        stack.push_async_callback(opened.close)
        yield Session(exercise, server, engine, zygote, opened)
