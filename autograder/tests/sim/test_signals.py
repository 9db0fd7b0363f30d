"""Signals to a simulated process: the same ends as of a real one, in virtual time."""

from __future__ import annotations

import asyncio
import os
import signal
from textwrap import dedent

import pytest

from autograder.exam import ScenarioOver, Zygote, isolation_here
from autograder.exam.simulated import SimExam
from autograder.exam.simulated_child import Child
from autograder.model import Kind
from autograder.sim import Clock, SimLoop
from autograder.sim.schedule import Schedule
from autograder.sim.signals import Signals
from autograder.sim.walls import Walls
from autograder.tests.exam.mains import (
    BY_LOOP,
    IN_A_TASK,
    MAIN,
    PROGRAMS,
    Program,
    end_of,
    told_at_the_gate,
)


@pytest.fixture(scope="module")
def zygote():
    with Zygote("memory", isolation_kind=isolation_here()) as zygote:
        zygote.wait_ready()
        yield zygote


@pytest.fixture
async def make(zygote, tmp_path):
    children = []

    def make(source, seed=1):
        file = tmp_path / "program.py"
        file.write_text(dedent(source))
        children.append(Child(zygote, file))
        return SimExam(
            child=children[-1], call=lambda _: MAIN, schedule=Schedule.of(seed), test="test"
        )

    yield make
    for child in children:
        await child.end()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
async def test_the_end_of_a_process_is_its_own(make, program):
    for seed in 1, 2, 3:
        exam = make(program.source, seed)
        assert await end_of(exam, program.tells) == program.end
        assert not exam.histories[0].of(Kind.BROKEN)


async def test_who_ends_unasked_is_broken(make):
    for way_out, how in (
        ("os._exit(3)", "status 3"),
        ("os.kill(os.getpid(), 15)", "signal SIGTERM"),
    ):
        exam = make(Program("it leaves", (), "", wait=way_out).source)
        assert await end_of(exam, ()) == how
        (broken,) = exam.histories[0].of(Kind.BROKEN)
        assert f"ended by itself ({how})" in broken.detail


async def test_the_end_of_a_process_is_not_the_end_of_its_world(make):
    program = Program("it ends", ("terminate",), "", BY_LOOP, ending="os._exit(0)")
    exam = make(program.source)
    async with exam.start(workers=1, deadline_s=5) as run:
        await run.publish(exam.messages(2))
        await run.until(settled=1)
        await run.terminate()
        await run.until(exited=True)
        await run.restart()
        await run.until(settled=2)
    assert len(exam.histories[0].of(Kind.SPAWNED)) == 2


@pytest.mark.parametrize("install", [BY_LOOP, IN_A_TASK])
async def test_a_signal_meets_a_process_that_connects(make, install):
    exam = make(Program("it connects", (), "", install).source)
    assert await told_at_the_gate(exam) == [
        Kind.CONNECTING, Kind.FAULT, Kind.CONNECTED, Kind.RUN_RETURNED,
    ]  # fmt: skip


async def test_deadlines_are_virtual(make):
    program = Program("slow", ("terminate",), "", BY_LOOP, ending="await asyncio.sleep(4.5)")
    exam = make(program.source)
    assert await end_of(exam, program.tells) == "status 0"
    events = exam.histories[0].events
    told = next(event.at for event in events if event.kind is Kind.FAULT)
    gone = next(event.at for event in events if event.kind is Kind.EXITED)
    assert 4.5 <= gone - told < 5


async def test_whoever_never_ends_is_waited_for_as_long_as_was_said(make):
    program = Program("deaf", ("terminate",), "", "signal.signal(15, signal.SIG_IGN)")
    exam = make(program.source)
    with pytest.raises(ScenarioOver, match="stalled"):
        await end_of(exam, program.tells)
    (told,) = exam.histories[0].of(Kind.FAULT)
    stood = exam.histories[0].of(Kind.EXPECTED)[-1]
    assert stood.detail.startswith("stalled exited=1 seen=0")
    assert stood.at - told.at >= 5


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_what_was_not_given_back_is_out_until_a_lease_runs_out(make, seed):
    program = Program("it leaves", ("terminate",), "", BY_LOOP, close="pass")
    exam = make(program.source, seed)
    async with exam.start(workers=1, deadline_s=5) as run:
        await run.publish(exam.messages(6, keys=1))
        await run.until(settled=1)
        await run.terminate()
        await run.until(exited=True)
        await run.ask_broker()
        await run.restart()
        await run.until(settled=2)
    said = exam.histories[0].of(Kind.BROKER)[0].detail
    is_log = Schedule.of(seed).manner == "log"
    assert said.endswith("unsettled=-1 consumers=1" if is_log else "unsettled=5 consumers=0")


def table(died=lambda _: None, interrupted=lambda: None, left=lambda _: None):
    loop = SimLoop(Clock())
    loop.signals = Signals(loop, died, interrupted, left)
    return loop


def test_a_loop_refuses_what_asyncio_refuses():
    loop = table()

    async def coroutine():
        """Nothing."""

    with pytest.raises(TypeError, match="coroutines cannot be used"):
        loop.add_signal_handler(signal.SIGTERM, coroutine)
    with pytest.raises(RuntimeError, match="cannot be caught"):
        loop.add_signal_handler(signal.SIGKILL, print)
    with pytest.raises(ValueError):  # noqa: PT011 - the standard library's own sentence
        loop.add_signal_handler(1000, print)
    assert not loop.remove_signal_handler(signal.SIGTERM)
    loop.close()


def test_tables_are_a_programs_own():
    loop, seen = table(), []
    before = signal.getsignal(signal.SIGUSR1)
    with Walls() as walls:
        walls.surround(loop.clock, print, seed=1, signals=lambda: loop.signals)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert (
            signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number)) == signal.SIG_DFL
        )
        signal.raise_signal(signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
    assert seen == [signal.SIGUSR1] * 2
    assert signal.getsignal(signal.SIGUSR1) == before
    loop.close()


def test_a_loops_handler_runs_in_a_turn_of_its_own():
    loop, seen = table(), []

    async def program():
        loop.add_signal_handler(signal.SIGTERM, seen.append, "told")
        loop.signals.deliver(signal.SIGTERM)
        seen.append("first")
        await asyncio.sleep(0)

    loop.run_until_complete(program())
    assert seen == ["first", "told"]
    loop.close()


def test_defaults():
    seen = []
    loop = table(died=seen.append, interrupted=lambda: seen.append("interrupted"))
    for number in signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1:
        loop.signals.deliver(number)
    assert seen == [signal.SIGTERM, "interrupted", signal.SIGUSR1]
    loop.close()


async def test_an_order_that_is_done_does_not_wait_for_a_deadline_far_ahead(make):
    """Publishing takes no time at seed 48, and nothing else is due before the deadline."""
    program = Program("slow", ("terminate",), "", BY_LOOP, ending="await asyncio.sleep(60)")
    exam = make(program.source, 48)
    assert Schedule.of(48).pace == "instant"
    async with exam.start(workers=1, deadline_s=5) as run:
        await run.publish(exam.messages(1))
        await run.until(settled=1)
        await run.terminate()
        await run.publish(exam.messages(3))
        await run.until(exited=True, timeout_s=100)
    (told,) = exam.histories[0].of(Kind.FAULT)
    assert exam.histories[0].of(Kind.CONFIRMED)[-1].at - told.at < 1
