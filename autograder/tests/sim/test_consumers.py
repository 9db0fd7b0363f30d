"""Two processes in one simulated world: a loop and a module each, one clock, one broker."""

from __future__ import annotations

from textwrap import dedent

import pytest

from autograder.checks.pool import no_message_is_lost
from autograder.exam import Zygote, isolation_here
from autograder.exam.simulated import SimExam
from autograder.exam.simulated_child import Child
from autograder.model import Call, GraderError, Kind, Status
from autograder.sim.schedule import Schedule

from .test_world import HEAD, POOL

SEEDS = range(1, 10)


@pytest.fixture(scope="module")
def zygote():
    with Zygote("memory", isolation_kind=isolation_here()) as zygote:
        zygote.wait_ready()
        yield zygote


@pytest.fixture
async def make(zygote, tmp_path):
    children = []

    def make(source=POOL, seed=1):
        file = tmp_path / f"two_{len(children)}.py"
        file.write_text(HEAD + dedent(source))
        children.append(Child(zygote, file))
        schedule = Schedule.of(seed)
        return SimExam(
            child=children[-1],
            call=lambda _: Call("run"),
            schedule=schedule,
            test="test",
            exercise="x",
        )

    yield make
    for child in children:
        await child.end()


async def rolled(exam):
    """The old one has two in hand while the new one does the rest."""
    mine, others = exam.messages(2, keys=2), exam.messages(20, keys=5)
    async with exam.start(workers=3) as run:
        await run.hold(mine)
        await run.publish(mine)
        await run.until(started=2)
        await run.stop()
        await run.add_consumer()
        await run.publish(others)
        await run.until(settled=20)
        await run.release()
        await run.until(settled=22)
        await run.stop()
        await run.until(returned=True)
    return exam.histories[0]


@pytest.mark.parametrize("seed", SEEDS)
async def test_one_takes_over_from_the_other(make, seed):
    history = await rolled(make(seed=seed))
    assert no_message_is_lost(history).status is Status.PASS
    begun = [event.process for event in history.of(Kind.STARTED)]
    assert begun[:2] == [1, 1]
    assert set(begun[2:]) == {2}
    assert {event.process for event in history.of(Kind.RUN_RETURNED)} == {1, 2}


@pytest.mark.parametrize("seed", SEEDS)
async def test_two_share_a_subscription(make, seed):
    exam = make(seed=seed)
    orders = exam.messages(60, keys=30, sleep_s=0.001)
    async with exam.start(workers=2, prefetch=4) as run:
        await run.add_consumer()
        await run.publish(orders[:30])
        await run.until(settled=30)
        await run.publish(orders[30:])
        await run.until(settled=60)
        await run.stop()
        await run.until(returned=True)
    history = exam.histories[0]
    assert no_message_is_lost(history).status is Status.PASS
    assert {event.process for event in history.of(Kind.FINISHED)} == {1, 2}


async def test_the_same_seed_gives_the_same_history(make):
    assert await rolled(make(seed=3)) == await rolled(make(seed=3))


async def test_each_has_a_module_and_a_loop_of_its_own(make):
    exam = make(
        """
        LOOPS = set()
        async def run(source, handle, *, workers, stop):
            LOOPS.add(asyncio.get_running_loop())
            print(len(LOOPS), len(asyncio.all_tasks()))
            await stop.wait()
            await source.stop_receiving()
        """
    )
    async with exam.start(workers=1) as run:
        await run.add_consumer()
        await run.stop()
        await run.until(returned=True)
    first, second = exam.child.printed.splitlines()
    assert first == second == "1 2"


async def test_one_that_polls_does_not_keep_the_other_from_its_turns(make):
    exam = make(
        """
        async def run(source, handle, *, workers, stop):
            while not stop.is_set():
                await asyncio.sleep(0)
            await source.stop_receiving()
        """
    )
    async with exam.start(workers=1) as run:
        await run.add_consumer()
        await run.stop()
        await run.until(returned=True)
    assert {event.process for event in exam.histories[0].of(Kind.RUN_RETURNED)} == {1, 2}


async def test_the_end_of_one_is_told_of_it_and_the_other_goes_on(make):
    exam = make()
    first, second = exam.messages(2)
    async with exam.start(workers=1) as run:
        await run.hold(first)
        await run.publish([first])
        await run.until(started=1)
        await run.stop()
        await run.add_consumer()
        await run.release()
        await run.until(settled=1)
        await run.publish([second])
        await run.until(settled=2)
    history = exam.histories[0]
    assert [event.process for event in history.of(Kind.EXITED)] == [1]
    assert [event.process for event in history.of(Kind.FINISHED)] == [1, 2]


async def test_a_kill_ends_both(make):
    exam = make()
    orders = exam.messages(4)
    async with exam.start(workers=2, prefetch=1) as run:
        await run.add_consumer()
        with pytest.raises(GraderError, match="two consumers already"):
            await run.add_consumer()
        with pytest.raises(GraderError, match="there is no pause"):
            await run.pause()
        await run.hold()
        await run.publish(orders)
        await run.until(started=1)
        await run.kill()
        await run.release()
        await run.restart()
        await run.until(settled=4)
    assert sorted(event.process for event in exam.histories[0].of(Kind.EXITED)) == [1, 2]
