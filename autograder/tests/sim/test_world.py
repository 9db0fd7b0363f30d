"""Runs in a simulated world: what scenarios do to a subject, and what comes of it."""

from __future__ import annotations

import time
from dataclasses import replace
from textwrap import dedent

import pytest

from autograder.checks.pool import no_message_is_lost
from autograder.exam import ScenarioOver, Zygote, isolation_here
from autograder.exam.simulated import NotSimulatedError, SimExam
from autograder.exam.simulated_child import SILENT_S, Child
from autograder.model import Call, GraderError, Kind, Status
from autograder.sim.schedule import MANNERS, PACES, TROUBLES, Schedule
from autograder.sim.telling import same_everywhere


def the_call(_):
    return Call("run")


HEAD = """
import asyncio
from autograder.messaging import Permanent, SettleFailed
"""

POOL = """
async def run(source, handle, *, workers, stop):
    async def work():
        async for message in source:
            try:
                await handle(message)
            except Permanent:
                settle = message.nack(requeue=False)
            except Exception:
                settle = message.nack(requeue=True)
            else:
                settle = message.ack()
            try:
                await settle
            except SettleFailed:
                pass
    async def close():
        await stop.wait()
        await source.stop_receiving()
    closing = asyncio.create_task(close())
    await asyncio.gather(*(work() for _ in range(workers)))
    await closing
"""


@pytest.fixture(scope="module")
def zygote():
    with Zygote("memory", isolation_kind=isolation_here()) as zygote:
        zygote.wait_ready()
        yield zygote


@pytest.fixture
async def make(zygote, tmp_path):
    children = []

    def make(source=POOL, schedule=Schedule(1)):  # noqa: B008 - a constant
        file = tmp_path / f"pool_{len(children)}.py"
        file.write_text(HEAD + dedent(source))
        children.append(Child(zygote, file))
        return SimExam(
            child=children[-1], call=the_call, schedule=schedule, test="test", exercise="x"
        )

    yield make
    for child in children:
        await child.end()


def kinds(exam, message):
    return [event.kind for event in exam.histories[0].about(message)]


async def everything(exam):
    """A scenario with most of what there is."""
    orders = [*exam.messages(30, keys=5), *exam.messages(3, transient=1, sleep_s=0.01)]
    async with exam.start(workers=3, proxy=True) as run:
        await run.hold(orders[0])
        await run.publish(orders)
        await run.until(settled=10)
        await run.cut()
        await run.until(reconnected=1)
        await run.release(orders[0])
        await run.until(settled=20)
        await run.kill()
        await run.restart()
        await run.until(settled=33)
        await run.stop()
        await run.until(returned=True)
    return exam.histories[0]


async def test_a_message_travels_from_publish_to_settled(make):
    exam = make()
    orders = exam.messages(3, keys=2)
    async with exam.start(workers=2) as run:
        await run.publish(orders)
        await run.until(settled=3)
    assert set(kinds(exam, orders[0].id)) == {
        Kind.PUBLISHED, Kind.CONFIRMED, Kind.TAKEN, Kind.STARTED, Kind.FINISHED, Kind.ACK, Kind.SETTLED,
    }  # fmt: skip
    history = exam.histories[0]
    assert (history.engine, history.workers, history.broker.unsettled) == ("sim", 2, 0)
    assert [event.at for event in history.events] == sorted(event.at for event in history.events)


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("pace", PACES)
async def test_the_same_seed_gives_the_same_history(make, manner, pace):
    schedule = Schedule(7, manner, pace)
    first, second = make(schedule=schedule), make(schedule=schedule)
    other = SimExam(
        child=second.child, call=the_call, schedule=Schedule(8, manner, pace), test="test"
    )
    await everything(other)  # what a process has seen before changes nothing
    one, two = await everything(first), await everything(second)
    assert one.events == two.events
    assert {event.message for event in one.of(Kind.FINISHED)} == {
        event.message for event in one.of(Kind.PUBLISHED)
    }


async def bearing(exam, *bears):
    orders = exam.messages(30, keys=5, sleep_s=0.002)
    async with exam.start(workers=3, bears=bears) as run:
        await run.publish(orders)
        await run.until(settled=10)
        await run.until(settled=20)
        await run.until(settled=30)
    return exam.histories[0]


@pytest.mark.parametrize("manner", MANNERS)
async def test_a_lost_confirmation_publishes_twice(make, manner):
    history = await bearing(
        make(schedule=Schedule(3, manner, "spread", "duplicates")), "duplicates"
    )
    published = [event.message for event in history.of(Kind.PUBLISHED)]
    assert len(set(published)) == 30 < len(published)
    assert len(history.of(Kind.CONFIRMED)) == len(published)


@pytest.mark.parametrize("manner", MANNERS)
async def test_a_connection_breaks_by_itself(make, manner):
    histories = [
        await bearing(make(schedule=Schedule(seed, manner, "spread", "cuts")), "cuts")
        for seed in range(1, 9)
    ]
    assert any(history.of(Kind.SETTLE_FAILED) for history in histories)
    for history in histories:
        assert {event.detail for event in history.of(Kind.FAULT)} <= {"cut"}
        assert no_message_is_lost(history).status is Status.PASS


@pytest.mark.parametrize("manner", MANNERS)
async def test_two_cuts_in_a_row_are_followed_by_one_connection(make, manner):
    exam = make(schedule=Schedule(3, manner, "even"))
    orders = exam.messages(12, keys=5)
    async with exam.start(workers=3, proxy=True) as run:
        await run.hold()
        await run.publish(orders)
        await run.until(running=3)
        await run.cut()
        await run.cut()
        await run.until(reconnected=1)
        await run.release()
        await run.until(settled=12)
        await run.stop()
        await run.until(returned=True)
    assert no_message_is_lost(exam.histories[0]).status is Status.PASS
    assert run.recorder.connections == 2


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_nothing_goes_wrong_where_a_scenario_does_not_bear_it(make, trouble):
    history = await bearing(make(schedule=Schedule(3, "queue", "spread", trouble)))
    assert len(history.of(Kind.PUBLISHED)) == 30
    assert not history.of(Kind.FAULT)


async def test_seeds_differ(make):
    histories = [
        await everything(make(schedule=Schedule(seed, "stream", "spread"))) for seed in (1, 2)
    ]
    assert histories[0].events != histories[1].events


@pytest.mark.parametrize("turns", [0, 9, 50])
async def test_a_stop_is_in_force_when_all_that_takes_no_time_is_done(make, turns):
    """How many turns a program needs differs between versions of Python: they do not count."""
    exam = make(f"""
    async def run(source, handle, *, workers, stop):
        await stop.wait()
        for _ in range({turns}):
            await asyncio.sleep(0)
        await source.stop_receiving()
    """)
    async with exam.start(workers=1) as run:
        await run.stop()
        await run.until(returned=True)
    history = exam.histories[0]
    told = (Kind.STOP_SET, Kind.SOURCE_STOPPED, Kind.STOP_IN_FORCE, Kind.SOURCE_CLOSED, Kind.EXITED)
    assert [event.kind for event in history.events if event.kind in told] == list(told)


@pytest.mark.parametrize("ending", ["return", "while True: await asyncio.sleep(0)"])
async def test_a_stop_comes_into_force_for_whoever_returns_at_once_or_never_rests(make, ending):
    exam = make(f"""
    async def run(source, handle, *, workers, stop):
        await stop.wait()
        {ending}
    """)
    async with exam.start(workers=1) as run:
        await run.stop()
    assert len(exam.histories[0].of(Kind.STOP_IN_FORCE)) == 1


async def test_a_gate_holds_until_it_is_released(make):
    exam = make()
    first, second = exam.messages(2)
    async with exam.start(workers=2) as run:
        await run.hold(first)
        await run.publish([first, second])
        await run.until(finished=1, running=1)
        await run.release(first)
        await run.until(settled=2)
    ends = [event.message for event in exam.histories[0].of(Kind.FINISHED)]
    assert ends == [second.id, first.id]


@pytest.mark.parametrize("manner", MANNERS)
async def test_a_killed_process_says_and_settles_nothing_more(make, manner):
    clinging = """
    async def run(source, handle, *, workers, stop):
        async for message in source:
            try:
                await handle(message)
            finally:
                await message.ack()
    """
    exam = make(clinging, Schedule(3, manner, "spread"))
    async with exam.start(workers=1) as run:
        await run.hold()
        await run.publish(exam.messages(5))
        await run.until(running=1)
        await run.kill()
        await run.restart()
        await run.release()
        await run.until(settled=5)
    events = exam.histories[0].events
    dead = next(n for n, e in enumerate(events) if e.kind is Kind.EXITED)
    assert events[dead].detail == "signal SIGKILL"
    assert not [event for event in events[dead + 1 :] if event.process == 1]
    assert not [event for event in events[:dead] if event.kind is Kind.ACK]


async def test_a_break_point_is_exact(make):
    exam = make()
    async with exam.start(workers=3) as run:
        await run.break_at("finished", 7)
        await run.publish(exam.messages(20))
        await run.until(at_break=True)
        assert run.paused
        await run.kill()
        await run.restart()
        await run.until(settled=20)
    history = exam.histories[0]
    stands = history.where(Kind.BREAK)[0]
    assert len([p for p in history.where(Kind.FINISHED) if p < stands]) == 7
    after = [e.kind for e in history.events[stands + 1 :] if e.process == 1]
    assert after == [Kind.EXPECTED, Kind.FAULT, Kind.EXITED]


async def test_going_on_after_a_break_point_is_not_simulated(make):
    exam = make()
    with pytest.raises(NotSimulatedError, match="after a break point"):
        async with exam.start(workers=3) as run:
            await run.break_at("finished", 1)
            await run.publish(exam.messages(2))
            await run.until(at_break=True)
            await run.resume()


async def test_a_module_is_imported_anew_after_a_kill(make):
    counting = """
    lives = []
    async def run(source, handle, *, workers, stop):
        lives.append(1)
        if len(lives) > 1:
            raise ValueError("state of a dead process")
        async for message in source:
            await handle(message)
            await message.ack()
    """
    exam = make(counting)
    async with exam.start(workers=1) as run:
        await run.kill()
        await run.restart()
        await run.publish(exam.messages(1))
        await run.until(settled=1)
    assert not exam.histories[0].of(Kind.RUN_RAISED)


async def test_a_paused_process_does_nothing(make):
    exam = make()
    async with exam.start(workers=1) as run:
        await run.pause()
        await run.publish(exam.messages(1))
        with pytest.raises(ScenarioOver, match="late"):
            await run.until(settled=1, timeout_s=60)
        await run.resume()
        await run.until(settled=1)


async def test_a_pool_that_stands_is_told_from_one_that_is_done(make):
    idle = """
    async def run(source, handle, *, workers, stop):
        await stop.wait()
    """
    exam = make(idle)
    with pytest.raises(ScenarioOver):
        async with exam.start(workers=1) as run:
            await run.publish(exam.messages(3))
            await run.until(settled=3)
    assert exam.histories[0].of(Kind.EXPECTED)[-1].detail.startswith("stalled settled=3 seen=0")

    exam = make()
    with pytest.raises(ScenarioOver):
        async with exam.start(workers=1) as run:
            await run.publish(exam.messages(3))
            await run.until(settled=4)
    assert exam.histories[0].of(Kind.EXPECTED)[-1].detail.startswith("drained settled=4 seen=3")


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ("import time; time.sleep(1)", "time.sleep"),
        ("await asyncio.to_thread(print)", "threads"),
        ("await asyncio.open_connection('127.0.0.1', 4222)", "network"),
        ("asyncio.get_running_loop().add_signal_handler(15, print)", "signals"),
        ("import subprocess\n    try:\n        subprocess.run(['true'])\n    except Exception: pass", "processes"),
    ],
)  # fmt: skip
async def test_what_is_not_simulated_is_no_verdict(make, body, refused):
    exam = make(f"async def run(source, handle, *, workers, stop):\n    {body}\n")
    with pytest.raises(NotSimulatedError, match=refused):
        async with exam.start(workers=1) as run:
            await run.until(returned=True)
    assert not exam.histories


async def test_a_stalled_network_is_not_simulated(make):
    exam = make()
    with pytest.raises(NotSimulatedError, match="stalled"):
        async with exam.start(workers=1, proxy=True) as run:
            run.stall()


async def test_a_cut_needs_a_proxy_here_too(make):
    exam = make()
    with pytest.raises(GraderError, match="proxy=True"):
        async with exam.start(workers=1) as run:
            await run.cut()


async def test_a_loop_that_never_turns_is_a_verdict_in_time(make):
    exam = make("async def run(source, handle, *, workers, stop):\n    while True: pass\n")
    began = time.monotonic()
    with pytest.raises(ScenarioOver):
        async with exam.start(workers=1) as run:
            await run.until(returned=True)
    assert time.monotonic() - began < 10 * SILENT_S
    assert exam.histories[0].of(Kind.EXPECTED)[-1].detail.startswith("blocked")
    assert not exam.histories[0].of(Kind.BROKEN)  # its world is gone: nobody asked the next child
    exam = SimExam(
        child=exam.child, call=the_call, schedule=Schedule(2)
    )  # and the next one gets a new process
    with pytest.raises(ScenarioOver):
        async with exam.start(workers=1) as run:
            await run.until(returned=True)


async def test_a_loop_that_spins_politely_is_a_verdict(make):
    exam = make(
        "async def run(source, handle, *, workers, stop):\n    while True: await asyncio.sleep(0)\n"
    )
    with pytest.raises(ScenarioOver):
        async with exam.start(workers=1) as run:
            await run.publish(exam.messages(1))
            await run.until(settled=1)
    assert exam.histories[0].of(Kind.EXPECTED)[-1].detail.startswith("stalled")


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import os\nasync def run(source, handle, *, workers, stop): os._exit(3)\n", "exited"),
        ("import sys\nasync def run(source, handle, *, workers, stop): sys.exit(3)\n", "exit"),
        ("async def run(source", "syntax"),
        ("raise ValueError\n", "raises at import"),
        ("async def other(): pass\n", "no function"),
    ],
)
async def test_a_broken_module_is_told_as_on_a_real_broker(make, source, code):
    exam = make(source)
    with pytest.raises(ScenarioOver):
        async with exam.start(workers=1) as run:
            await run.until(settled=1)
    [broken] = exam.histories[0].of(Kind.BROKEN)
    assert broken.detail.startswith(f"{code}:")


async def test_what_dies_at_work_is_restarted(make):
    exam = make()
    [deadly], others = exam.messages(1, dies=True), exam.messages(3)
    async with exam.start(workers=2) as run:
        await run.publish([deadly, *others])
        await run.until(exited=True)
        await run.restart()
    assert exam.histories[0].of(Kind.EXITED)[0].detail == "status 113"


async def test_burning_lets_time_pass_and_blocks_the_loop(make):
    exam = make()
    orders = exam.messages(4, burn_s=0.5)
    async with exam.start(workers=4) as run:
        await run.publish(orders)
        await run.until(settled=4)
    ends = [event.at for event in exam.histories[0].of(Kind.FINISHED)]
    assert ends[-1] - ends[0] >= 1.5 - 1e-9


async def test_an_hour_of_work_takes_no_time(make):
    exam = make()
    began = time.monotonic()
    async with exam.start(workers=1) as run:
        await run.publish(exam.messages(2, sleep_s=1800))
        await run.until(settled=2, timeout_s=3600)
    assert exam.histories[0].events[-1].at > 3600
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("manner", MANNERS)
async def test_a_source_may_come_to_its_end(make, manner):
    ending = """
    async def run(source, handle, *, workers, stop):
        async for message in source:
            await handle(message)
            await message.ack()
    """
    exam = make(ending, Schedule(1, manner))
    async with exam.start(workers=1) as run:
        await run.publish(exam.messages(2))
        await run.until(settled=2)
        await run.end_source()
        await run.until(returned=True)
    assert exam.histories[0].of(Kind.FAULT)[0].detail == "end of the source"
    assert exam.histories[0].of(Kind.EXITED)[0].detail == "status 0"


async def test_a_condition_there_is_not_is_our_fault(make):
    exam = make()
    with pytest.raises(GraderError, match="no condition called"):
        async with exam.start(workers=1) as run:
            await run.until(handled=1)


def test_a_traceback_is_the_same_on_every_python():
    old = """ValueError: no (pool.py line 4)
Traceback (most recent call last):
  File "pool.py", line 4, in run
    await first(
  File "pool.py", line 9, in first
    raise ValueError("no")
ValueError: no"""
    new = """ValueError: no (pool.py line 4)
Traceback (most recent call last):
  File "pool.py", line 4, in run
    await first(
    ~~~~~^
        message,
        ^^^^^^^^
    )
    ^
  File "pool.py", line 9, in first
    raise ValueError("no")
ValueError: no"""
    assert same_everywhere(new) == same_everywhere(old) == old
    group = """  + Exception Group Traceback (most recent call last):
  |   File "pool.py", line 4, in run
  |     async with TaskGroup() as tasks:
  |                ~~~~~~~~~^^
  | ExceptionGroup: unhandled errors (1 sub-exception)"""
    assert "~" not in same_everywhere(group)
    assert same_everywhere(group).endswith("(1 sub-exception)")


HASHES = """
    async def run(source, handle, *, workers, stop):
        raise RuntimeError(hash("account-17"), hash(b"17"), hash(17), hash((1, 2)))
    """


async def test_another_hash_seed_is_another_hash_of_texts_and_bytes_alone(make):
    exam = make(HASHES)
    async with exam.start(workers=1) as run:
        await run.until(exited=True)
        for seed in 5, 0, 5, 6:
            await run.restart(hash_seed=seed)
            await run.until(exited=True)
    said = [event.detail.partition("\n")[0] for event in exam.histories[0].of(Kind.RUN_RAISED)]
    first, five, plain, again, six = said
    assert first == plain
    assert five == again
    assert len({five, plain, six}) == 3
    assert len({each.rpartition("17, ")[2] for each in said}) == 1


async def test_standing_behind_gates_ends_no_scenario_that_expects_it(make):
    exam = make()
    orders = exam.messages(3)
    async with exam.start(workers=1) as run:
        await run.hold(orders[0])
        await run.publish(orders)
        await run.until_still(finished=2)
        await run.release()
        await run.until_still(settled=3)
        with pytest.raises(ScenarioOver, match="drained"):
            await run.until_still(settled=4)
    waits = [event.detail.partition(" ")[0] for event in exam.histories[0].of(Kind.EXPECTED)]
    assert waits == ["stalled", "met", "drained"]


KEEPING = """
    kept = {}
    async def run(source, handle, *, workers, stop):
        async for message in source:
            await handle(message)
            await message.ack()
            kept[message.key] = 1
    """


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize(("forgets", "most"), [(False, 200), (True, 3)])
async def test_a_weighing_tells_which_keys_are_kept(make, manner, forgets, most):
    exam = make(
        KEEPING.replace("= 1", "= 1; kept.clear()") if forgets else KEEPING, Schedule(1, manner)
    )
    orders = [replace(each, key=f"key {n}") for n, each in enumerate(exam.messages(200))]
    async with exam.start(workers=1) as run:
        await run.publish(orders)
        await run.until(settled=200)
        await run.weigh()
    kept, _, seen, _ = exam.histories[0].of(Kind.WEIGHED)[0].detail.split()
    assert int(seen) == 200
    assert most - 3 <= int(kept) <= most
