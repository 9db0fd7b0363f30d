"""Two consumers of one subscription: what a scenario can do with them, on a real broker."""

from __future__ import annotations

import pytest

from autograder.checks.pool import no_message_is_lost
from autograder.exam import ScenarioOver
from autograder.model import Call, GraderError, Kind, Status

from .conftest import MakeExam

pytestmark = pytest.mark.nats


async def test_both_are_in_the_history_and_both_are_told_to_stop(make_exam: MakeExam):
    exam = make_exam()
    orders = exam.messages(40, sleep_s=0.01)
    async with exam.start(workers=2, prefetch=2) as run:
        await run.add_consumer()
        await run.hold()
        await run.publish(orders)
        await run.until(running=4)
        await run.release()
        await run.until(settled=len(orders))
        await run.stop()
        await run.until(returned=True)
    history = exam.histories[0]
    assert {event.process for event in history.of(Kind.STARTED)} == {1, 2}
    assert {event.process for event in history.of(Kind.RUN_RETURNED)} == {1, 2}
    told = [event.process for event in history.of(Kind.FAULT) if event.detail == "terminate"]
    assert told == [1, 2]
    assert len({event.delivery for event in history.of(Kind.TAKEN)}) == len(orders)
    assert no_message_is_lost(history).status is Status.PASS


async def test_the_older_one_stops_and_finishes_what_it_has_in_hand(make_exam: MakeExam):
    exam = make_exam()
    mine, others = exam.messages(2), exam.messages(5)
    async with exam.start(workers=2) as run:
        await run.hold(mine)
        await run.publish(mine)
        await run.until(running=2)
        await run.stop()
        await run.add_consumer()
        await run.publish(others)
        await run.until(settled=5)
        await run.release()
        await run.until(settled=7)
        await run.stop()
        await run.until(exited=True)
    history = exam.histories[0]
    by = {event.message: event.process for event in history.of(Kind.FINISHED)}
    assert [by[each.id] for each in mine] == [1, 1]
    assert [by[each.id] for each in others] == [2] * 5
    stops = [event.process for event in history.of(Kind.STOP_SET)]
    assert stops == [1, 2], "nobody is told twice"


async def test_a_kill_ends_both_and_a_restart_begins_with_one(make_exam: MakeExam):
    exam = make_exam()
    orders = exam.messages(20)
    async with exam.start(workers=2, prefetch=2) as run:
        await run.add_consumer()
        await run.hold()
        await run.publish(orders)
        await run.until(running=4)
        await run.kill()
        assert run.count("running") == 0
        await run.release()
        await run.restart()
        await run.until(settled=20)
        await run.add_consumer()
    ends = [event.process for event in exam.histories[0].of(Kind.EXITED)]
    assert sorted(ends) == [1, 2]


async def test_the_end_of_one_says_which_it_was(make_exam: MakeExam):
    exam = make_exam(
        """
        import os

        async def run(source, handle, *, workers, stop):
            async for message in source:
                os._exit(3)
        """
    )
    async with exam.start(workers=1) as run:
        await run.add_consumer()
        await run.publish(exam.messages(1))
        with pytest.raises(ScenarioOver):
            await run.until(settled=1)
    [broken] = exam.histories[0].of(Kind.BROKEN)
    [exited] = exam.histories[0].of(Kind.EXITED)
    assert broken.process == exited.process


async def test_what_is_not_clear_with_two_is_refused(make_exam: MakeExam):
    exam = make_exam()
    async with exam.start(workers=1) as run:
        await run.add_consumer()
        with pytest.raises(GraderError, match="two consumers already"):
            await run.add_consumer()
        with pytest.raises(GraderError, match="there is no pause"):
            await run.pause()
        await run.kill()
        with pytest.raises(GraderError, match="no consumer that another could be beside"):
            await run.add_consumer()
    async with exam.start(workers=1, proxy=True) as run:
        with pytest.raises(GraderError, match="whose network"):
            await run.add_consumer()


async def test_nobody_is_beside_a_function_without_a_source(make_exam: MakeExam):
    text = "async def main(connect, handle, *, workers):\n    return 0"
    exam = make_exam(text, Call("main", ("connect", "handle"), ("workers",)))
    async with exam.start(workers=1) as run:
        with pytest.raises(GraderError, match="is given no source"):
            await run.add_consumer()
