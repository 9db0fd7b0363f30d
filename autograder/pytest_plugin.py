"""Scenarios as pytest tests: `uv run pytest` runs every hidden test against its reference.

A scenario is parametrised by the engines of its exercise. Each guarantee it declares is one
subtest, so one broken promise does not hide another. An engine that this machine does not have is
skipped with the reason and named at the end; `ACKADEMY_REQUIRE_ENGINES=nats,rabbitmq` turns that
into an error, as a build server wants it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from autograder import brokers, catalog
from autograder.brokers import Server
from autograder.exam import (
    Exam,
    ScenarioOver,
    Zygote,
    declared_by,
    isolation_here,
    why_simulated_only,
)
from autograder.exam.engines import open_engine
from autograder.exam.simulated import NotSimulatedError, SimExam
from autograder.exam.simulated_child import NAME, Child
from autograder.exam.stores import Stores, of_exercise
from autograder.grading import verdicts
from autograder.model import AckademyError, Exercise, GraderError, Result, Status
from autograder.report.commands import typed
from autograder.sim.schedule import Schedule

REQUIRED = "ACKADEMY_REQUIRE_ENGINES"
_BENCH = pytest.StashKey["Bench"]()
_ENGINES = pytest.StashKey[set[str]]()  # lines of the summary, those of pytest-xdist's workers too


class Bench:
    """Servers and zygotes of one test session: one of each per engine, started when first needed."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._servers: dict[str, Server | AckademyError] = {}
        self._zygotes: dict[str, Zygote] = {}

    def server(self, engine: str) -> Server:
        """A server of this engine. Skips the test, or fails it if the engine is required."""
        if engine not in self._servers:
            try:
                self._servers[engine] = self._stack.enter_context(brokers.acquire(engine))
            except AckademyError as error:
                self._servers[engine] = error
        found = self._servers[engine]
        if isinstance(found, Server):
            return found
        if engine in required_engines():
            pytest.fail(f"required but not available: {engine}: {_why(found)}", pytrace=False)
        # one short reason for all: pytest folds equal ones of a file, the summary has the rest
        pytest.skip(f"{engine} is not available, see `engines` below")

    def zygote(self, engine: str) -> Zygote:
        """The zygote of this engine, ready to fork."""
        if engine not in self._zygotes:
            zygote = self._stack.enter_context(Zygote(engine, isolation_kind=isolation_here()))
            zygote.wait_ready()
            self._zygotes[engine] = zygote
        return self._zygotes[engine]

    def summary(self) -> Iterator[str]:
        """One line per engine: what it ran on, or why it did not run."""
        for engine, found in sorted(self._servers.items()):
            if isinstance(found, Server):
                yield f"ran on {engine} {found.version} ({found.provider})"
            else:
                yield f"{engine} is not available: {_why(found)}"

    def close(self) -> None:
        """Stop what was started."""
        self._stack.close()


def _why(error: AckademyError) -> str:
    """A reason in lines of its own, with the command that mends it at the end."""
    return typed(error.sentence + (f"\nNext: {error.next_command}" if error.next_command else ""))


def required_engines() -> set[str]:
    """The engines without which this session may not pass."""
    return {name.strip() for name in os.environ.get(REQUIRED, "").split(",") if name.strip()}


def pytest_configure(config: pytest.Config) -> None:
    """Make room for the session's servers."""
    config.stash[_BENCH] = Bench()
    config.stash[_ENGINES] = set()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop them."""
    config.stash[_BENCH].close()


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any) -> None:
    """Take over which engines a worker ran on."""
    told = getattr(node, "workeroutput", {}).get("engines", ())
    engines: set[str] = node.config.stash[_ENGINES]
    engines.update(told)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist tells its controller which engines it ran on."""
    lines = list(session.config.stash[_BENCH].summary())
    session.config.stash[_ENGINES].update(lines)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["engines"] = lines


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say which engines ran and which were not available."""
    engines: set[str] = config.stash[_ENGINES]
    if engines:
        terminalreporter.section("engines")
        for line in sorted(engines):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def bench(pytestconfig: pytest.Config) -> Bench:
    """The session's servers and zygotes."""
    return pytestconfig.stash[_BENCH]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per engine of the exercise that a scenario belongs to."""
    if "exam" in metafunc.fixturenames and declared_by(metafunc.function):
        exercise = _exercise_of(Path(str(metafunc.definition.path)))
        engines = (NAME,) if why_simulated_only(metafunc.function) else exercise.engines
        marks = [pytest.param(each, marks=getattr(pytest.mark, each)) for each in engines]
        metafunc.parametrize("exam", marks, indirect=True)


@pytest_asyncio.fixture
async def exam(
    request: pytest.FixtureRequest, bench: Bench, subtests: object
) -> AsyncIterator[Exam]:
    """An exam of the submission that belongs to the test file, on one engine, with one seed."""
    path = request.path
    exercise = _exercise_of(path)
    hidden = path == exercise.hidden_tests
    submission = exercise.reference if hidden else exercise.skeleton
    seed = int(os.environ.get("ACKADEMY_SEED", "1"))
    named = {"test": request.node.originalname, "exercise": exercise.path}
    if request.param == NAME:
        child = Child(bench.zygote("memory"), submission)
        yield SimExam(
            child=child,
            call=exercise.call,
            schedule=Schedule.of(seed),
            tables=exercise.tables,
            **named,
        )
        await child.end()
        return
    server = bench.server(request.param)
    stores = Stores({each: bench.server(each) for each in of_exercise(exercise)}, exercise.tables)
    engine = await open_engine(server.engine, server.url)
    try:
        yield Exam(
            engine=engine,
            zygote=bench.zygote(request.param),
            submission=submission,
            call=exercise.call,
            seed=seed,
            stores=stores,
            **named,
        )
    finally:
        await stores.close()
        await engine.close()
    if not brokers.is_alive(server):
        raise GraderError(f"The {server.engine} server died during the test.")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """After a scenario: judge what it declares, and what it saw broken besides, one subtest each."""
    declared = declared_by(pyfuncitem.obj)
    if not declared:
        return (yield)
    try:
        yield
    except ScenarioOver:
        pass  # the history says why
    except NotSimulatedError as absent:
        pytest.skip(f"the simulation has no {absent}")
    exam = pyfuncitem.funcargs["exam"]
    assert isinstance(exam, Exam)  # noqa: S101 - tells the type of a fixture's value
    exercise = _exercise_of(pyfuncitem.path)
    if not exam.histories:
        pytest.fail("the scenario recorded no history: it has no `async with exam.start(...)`")
    subtests = pyfuncitem.funcargs["subtests"]
    assert isinstance(subtests, pytest.Subtests)  # noqa: S101 - tells the type of a fixture's value
    judged = verdicts.judge(exercise, declared, exam.histories)
    for result in verdicts.results(exercise, judged):
        if verdicts.applies(judged, result.guarantee):
            with subtests.test(msg=result.guarantee):
                _assert_passed(result, exam)
    return True


def _assert_passed(result: Result, exam: Exam) -> None:
    __tracebackhide__ = True
    if result.verdict.status is not Status.PASS:
        lines = [f"{result.verdict.status}: {result.verdict.observed}"]
        lines += [
            f"  {e.at:8.4f} s  {e.kind:<14} {e.message} {e.detail}" for e in result.verdict.witness
        ]
        pytest.fail("\n".join([*lines, exam.output]), pytrace=False)


def _exercise_of(path: Path) -> Exercise:
    """The exercise whose folder, or whose solution's folder, this test file lies in."""
    root = catalog.course_root(path.parent)
    name = catalog.containing(root, path)
    if name is None:
        raise GraderError(f"{path} belongs to no exercise.")
    return catalog.load(root, name)
