"""Signals to a process that owns them: what the examiner sends is what arrives, and its end is its own."""

from __future__ import annotations

import pytest

from autograder.exam import ScenarioOver
from autograder.model import Kind, Wait
from autograder.tests.exam.mains import (
    BY_LOOP,
    IN_A_TASK,
    MAIN,
    PROGRAMS,
    Program,
    end_of,
    told_at_the_gate,
)

from .conftest import MakeExam

pytestmark = pytest.mark.nats


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
async def test_the_end_of_a_process_is_its_own(make_exam: MakeExam, program: Program):
    exam = make_exam(program.source, MAIN)
    assert await end_of(exam, program.tells) == program.end
    assert not exam.histories[0].of(Kind.BROKEN)


async def test_what_happens_is_told_in_order(make_exam: MakeExam):
    program = Program("it ends well", ("terminate",), "status 0", BY_LOOP)
    exam = make_exam(program.source, MAIN)
    await end_of(exam, program.tells)
    told = [
        Kind.RUN_STARTED, Kind.CONNECTED, Kind.FAULT, Kind.DISCONNECTING, Kind.DISCONNECTED,
        Kind.RUN_RETURNED, Kind.EXITED,
    ]  # fmt: skip
    history = exam.histories[0]
    assert [event.kind for event in history.events if event.kind in told] == told
    assert history.of(Kind.RUN_STARTED)[0].detail == "main workers=1 deadline_s=5"


HELD = Program("it waits", ("terminate",), "", "loop.add_signal_handler(15, print, 'told')")


async def test_a_signal_is_in_force_once_the_loop_has_turned(make_exam: MakeExam):
    exam = make_exam(HELD.source, MAIN)
    async with exam.start(workers=1, deadline_s=5) as run:
        await run.publish(exam.messages(1))
        await run.until(settled=1)
        await run.terminate()
        assert "told" in run._subject.printed.text()
        with pytest.raises(ScenarioOver, match="stalled exited=1 seen=0"):
            await run.until(exited=True, timeout_s=3)
        await run.terminate()
    faults = exam.histories[0].of(Kind.FAULT, Kind.STOP_IN_FORCE)
    assert [event.kind for event in faults] == [Kind.FAULT, Kind.STOP_IN_FORCE, Kind.FAULT]


@pytest.mark.parametrize(("close", "unsettled"), [("await source.close()", 0), ("pass", 5)])
async def test_the_broker_tells_what_a_process_has_not_given_back(
    make_exam: MakeExam, close: str, unsettled: int
):
    program = Program("it buffers", ("terminate",), "", BY_LOOP, close=close)
    exam = make_exam(program.source, MAIN)
    async with exam.start(workers=1, deadline_s=5) as run:
        await run.publish(exam.messages(6))
        await run.until(settled=1)
        await run.terminate()
        await run.until(exited=True)
        await run.ask_broker()
    (said,) = exam.histories[0].of(Kind.BROKER)
    assert said.detail == f"waiting={5 - unsettled} unsettled={unsettled} consumers=-1"


async def test_there_is_one_connection(make_exam: MakeExam):
    program = Program("twice", ("terminate",), "", BY_LOOP, ending="await connect()")
    exam = make_exam(program.source, MAIN)
    assert await end_of(exam, program.tells) == "status 1"
    assert "connect() was called before" in exam.histories[0].of(Kind.RUN_RAISED)[0].detail


async def test_who_ends_unasked_is_broken(make_exam: MakeExam):
    program = Program("it leaves", (), "", wait="os._exit(3)")
    exam = make_exam(program.source, MAIN)
    assert await end_of(exam, ()) == "status 3"
    assert "ended by itself (status 3)" in exam.histories[0].of(Kind.BROKEN)[0].detail


@pytest.mark.parametrize("install", [BY_LOOP, IN_A_TASK])
async def test_a_signal_meets_a_process_that_connects(make_exam: MakeExam, install: str):
    exam = make_exam(Program("it connects", (), "", install).source, MAIN)
    assert await told_at_the_gate(exam) == [
        Kind.CONNECTING, Kind.FAULT, Kind.CONNECTED, Kind.RUN_RETURNED,
    ]  # fmt: skip


async def test_a_broker_that_does_not_let_a_process_connect_is_not_its_fault(
    make_exam: MakeExam,
):
    exam = make_exam(Program("it connects", (), "", BY_LOOP).source, MAIN)
    async with exam.start(workers=1, deadline_s=5, hold_connect=True, proxy=True) as run:
        await run.until(connecting=True)
        await run.terminate()
        run.stall()
        await run.let_connect()
        with pytest.raises(ScenarioOver):
            await run.until(timeout_s=3, exited=True)
    (said,) = exam.histories[0].of(Kind.EXPECTED)[-1:]
    assert said.detail.startswith(Wait.LATE)
