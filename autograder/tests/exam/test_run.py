"""A run does to the subject what it says, and the history tells it in order."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest

from autograder.checks.pool import no_message_is_lost, stop_means_no_new_work
from autograder.exam import Exam, ScenarioOver
from autograder.exam.waiting import SILENT_S, STILL_S
from autograder.model import BY_THE_MODULE, Call, GraderError, Kind, Status

from .conftest import MakeExam

pytestmark = pytest.mark.nats


def kinds(exam: Exam, message: str) -> list[Kind]:
    """What became of a message. A broker may deliver it before it has confirmed it."""
    publishing = {Kind.PUBLISHED, Kind.CONFIRMED}
    events = exam.histories[0].about(message)
    return [event.kind for event in events if event.kind not in publishing]


async def test_a_message_travels_from_publish_to_settled(make_exam: MakeExam):
    exam = make_exam()
    orders = exam.messages(3, keys=2)
    async with exam.start(workers=2) as run:
        await run.publish(orders)
        await run.until(settled=3)
    assert kinds(exam, orders[0].id) == [
        Kind.TAKEN, Kind.STARTED, Kind.FINISHED, Kind.ACK, Kind.SETTLED,
    ]  # fmt: skip
    history = exam.histories[0]
    assert history.about(orders[0].id)[0].kind is Kind.PUBLISHED
    assert len(history.of(Kind.CONFIRMED)) == 3
    assert history.broker.waiting == 0
    assert history.broker.unsettled == 0
    assert history.workers == 2
    assert [event.at for event in history.events] == sorted(event.at for event in history.events)


async def test_a_gate_holds_until_it_is_released(make_exam: MakeExam):
    exam = make_exam()
    first, second = exam.messages(2)
    async with exam.start(workers=2) as run:
        await run.hold(first)
        await run.publish([first, second])
        await run.until(finished=1, running=1)
        assert Kind.HELD in kinds_of(run, first.id)
        assert Kind.FINISHED not in kinds_of(run, first.id)
        await run.release(first)
        await run.until(settled=2)
    ends = [e.message for e in exam.histories[0].of(Kind.FINISHED)]
    assert ends == [second.id, first.id]


async def test_gates_match_keys_and_everything(make_exam: MakeExam):
    exam = make_exam()
    orders = exam.messages(8, keys=2)
    of_one_key = [order for order in orders if order.key == orders[0].key]
    async with exam.start(workers=8) as run:
        await run.hold()
        await run.publish(orders)
        await run.until(running=8)
        await run.release(key=orders[0].key)
        await run.until(finished=len(of_one_key), running=8 - len(of_one_key))
        await run.release()
        await run.until(settled=8)


async def test_a_gate_survives_a_restart(make_exam: MakeExam):
    exam = make_exam()
    orders = exam.messages(2)
    async with exam.start(workers=2) as run:
        await run.hold()
        await run.publish(orders)
        await run.until(running=2)
        await run.kill()
        assert run.count("running") == 0
        await run.restart()
        await run.until(running=2)
        await run.release()
        await run.until(settled=2)
    assert {event.process for event in exam.histories[0].of(Kind.STARTED)} == {1, 2}
    deliveries = [event.delivery for event in exam.histories[0].of(Kind.TAKEN)]
    assert len(set(deliveries)) == len(deliveries)


async def test_break_at_freezes_between_finish_and_ack(make_exam: MakeExam):
    exam = make_exam()
    orders = exam.messages(5)
    async with exam.start(workers=1) as run:
        await run.break_at("finished", 3)
        await run.publish(orders)
        await run.until(at_break=True)
        assert run.count("finished") == 3
        assert run.count("settled") == 2
        await run.kill()
        await run.restart()
        await run.until(settled=5)
    third = exam.histories[0].of(Kind.FINISHED)[2].message
    assert kinds(exam, third).count(Kind.FINISHED) == 2


async def test_what_the_broker_knows_the_history_knows(make_exam: MakeExam):
    """Frozen right behind the call of ack(): its cause is reported, and the broker has not heard."""
    exam = make_exam()
    async with exam.start(workers=1) as run:
        await run.break_at("ack", 1)
        await run.publish(exam.messages(1))
        await run.until(at_break=True)
        state = await run.broker_state()
        assert state.waiting + state.unsettled == 1
        await run.kill()
    message = exam.histories[0].of(Kind.ACK)[0].message
    assert kinds(exam, message)[-3:] == [Kind.STARTED, Kind.FINISHED, Kind.ACK]


async def test_what_is_settled_between_the_end_of_a_scenario_and_the_kill_is_told(
    make_exam: MakeExam,
):
    exam = make_exam()
    orders = exam.messages(1_000)
    async with exam.start(workers=4) as run:
        await run.publish(orders)
        await run.until(settled=10)
    [history] = exam.histories
    acked = {event.message for event in history.of(Kind.ACK)}
    left = history.broker.waiting + history.broker.unsettled
    assert len(acked) < len(orders) <= len(acked) + left
    assert not history.of(Kind.EXITED)


async def test_a_storm_of_redeliveries_ends_the_wait(make_exam: MakeExam):
    exam = make_exam("""
        async def run(source, handle, *, workers, stop):
            async for message in source:
                await message.nack(requeue=True)
    """)
    with pytest.raises(ScenarioOver, match="storm finished=1 seen=0"):
        async with exam.start(workers=1) as run:
            await run.publish(exam.messages(1))
            await run.until(finished=1)


async def test_a_break_can_be_resumed(make_exam: MakeExam):
    exam = make_exam()
    async with exam.start(workers=1) as run:
        await run.break_at("taken", 1)
        await run.publish(exam.messages(2))
        await run.until(at_break=True)
        await run.resume()
        await run.until(settled=2)


async def test_stop_sets_the_event_and_says_when_it_is_in_force(make_exam: MakeExam):
    exam = make_exam()
    async with exam.start(workers=2) as run:
        await run.publish(exam.messages(2))
        await run.until(settled=2)
        await run.stop()
        await run.until(returned=True, exited=True)
    history = exam.histories[0]
    told = [e.kind for e in history.of(Kind.STOP_SET, Kind.SOURCE_STOPPED, Kind.RUN_RETURNED)]
    assert told == [Kind.STOP_SET, Kind.SOURCE_STOPPED, Kind.RUN_RETURNED]
    assert len(history.of(Kind.STOP_IN_FORCE)) == 1
    assert history.of(Kind.EXITED)[0].detail == "status 0"


async def test_stop_may_come_before_the_start(make_exam: MakeExam):
    exam = make_exam()
    async with exam.start(workers=2, stop_first=True) as run:
        await run.until(returned=True)
    events = [e.kind for e in exam.histories[0].of(Kind.STOP_SET, Kind.RUN_STARTED)]
    assert events == [Kind.STOP_SET, Kind.RUN_STARTED]


async def test_a_stop_of_the_modules_own_is_told_from_ours(make_exam: MakeExam):
    exam = make_exam("""
        async def run(source, handle, *, workers, stop):
            stop.set()
    """)
    async with exam.start(workers=1) as run:
        await run.until(returned=True)
    history = exam.histories[0]
    assert [event.detail for event in history.of(Kind.STOP_SET)] == [BY_THE_MODULE]
    assert not history.of(Kind.STOP_IN_FORCE)


async def test_messages_can_be_held_weakly(make_exam: MakeExam):
    exam = make_exam("""
        import weakref

        async def run(source, handle, *, workers, stop):
            book = weakref.WeakKeyDictionary()
            async for message in source:
                book[message] = "in hand"
                await handle(message)
                await message.ack()
    """)
    async with exam.start(workers=1) as run:
        await run.publish(exam.messages(1))
        await run.until(settled=1)


async def test_cancel_cancels_the_students_function(make_exam: MakeExam):
    exam = make_exam("""
        import asyncio

        async def run(source, handle, *, workers, stop):
            async def work():
                async for message in source:
                    await handle(message)

            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(work())
    """)
    async with exam.start(workers=2) as run:
        await run.hold()
        await run.publish(exam.messages(2))
        await run.until(running=2)
        await run.cancel()
        await run.until(returned=True)
    history = exam.histories[0]
    assert history.of(Kind.RUN_RAISED)[0].detail.startswith("CancelledError")
    assert len(history.of(Kind.CANCELLED)) == 2


async def test_tasks_left_behind_are_named(make_exam: MakeExam):
    exam = make_exam("""
        import asyncio

        async def forgotten():
            await asyncio.sleep(1000)

        async def run(source, handle, *, workers, stop):
            task = asyncio.create_task(forgotten(), name="the forgotten one")
            await asyncio.sleep(0)
    """)
    async with exam.start(workers=1) as run:
        await run.until(returned=True)
    assert exam.histories[0].of(Kind.RUN_RETURNED)[0].detail == "forgotten (the forgotten one)"


@pytest.mark.parametrize(
    ("work", "detail"),
    [
        ({"transient": 1}, "transient"),
        ({"error": 1}, "error"),
        ({"permanent": True}, "permanent"),
        ({"cancelled": 1}, "cancelled"),
    ],
)
async def test_work_fails_as_the_message_says(make_exam: MakeExam, work, detail):
    exam = make_exam()
    async with exam.start(workers=1) as run:
        await run.publish(exam.messages(1, **work))
        await run.until(failed=1)
    assert exam.histories[0].of(Kind.FAILED)[0].detail == detail


async def test_a_message_that_kills_the_process_is_not_the_submissions_fault(make_exam: MakeExam):
    exam = make_exam()
    async with exam.start(workers=1) as run:
        await run.publish(exam.messages(1, dies=True))
        await run.until(exited=True)
    assert not exam.histories[0].of(Kind.BROKEN)
    assert exam.histories[0].of(Kind.FAULT)[0].detail == "died at work"


async def test_a_pool_that_stands_is_told_from_one_that_waits(make_exam: MakeExam):
    exam = make_exam("""
        async def run(source, handle, *, workers, stop):
            message = await anext(aiter(source))
            await stop.wait()
    """)
    with pytest.raises(ScenarioOver, match="stalled started=1 seen=0 buffered=2 in_hand=1"):
        async with exam.start(workers=2) as run:
            await run.publish(exam.messages(3))
            await run.until(started=1)
    assert exam.histories[0].of(Kind.EXPECTED)[0].detail.startswith("stalled")


async def test_an_empty_broker_ends_the_wait(make_exam: MakeExam):
    exam = make_exam()
    with pytest.raises(ScenarioOver, match="drained settled=4 seen=3"):
        async with exam.start(workers=2) as run:
            await run.publish(exam.messages(3))
            await run.until(settled=4)


async def test_a_blocked_loop_is_seen(make_exam: MakeExam):
    exam = make_exam("""
        import time

        async def run(source, handle, *, workers, stop):
            time.sleep(1000)
    """)
    with pytest.raises(ScenarioOver, match="blocked"):
        async with exam.start(workers=2) as run:
            await run.until(started=1)


async def test_an_order_to_a_blocked_loop_is_not_waited_for_for_ever(make_exam: MakeExam):
    exam = make_exam("""
        import asyncio
        import time

        async def run(source, handle, *, workers, stop):
            async for message in source:
                await asyncio.sleep(0)  # the take is reported
                time.sleep(1000)
    """)
    with pytest.raises(ScenarioOver, match="blocked answered=1 seen=0"):
        async with exam.start(workers=2) as run:
            await run.publish(exam.messages(1))
            await run.until(taken=1)
            await run.hold()
    assert no_message_is_lost(exam.histories[0]).status is Status.FAIL


async def test_connecting_is_the_brokers_time(make_exam: MakeExam):
    """A process whose heart beats and that is not connected yet waits for us: it does not stand."""
    exam = make_exam()
    with pytest.raises(ScenarioOver, match="late returned=1"):
        async with exam.start(workers=1) as run:
            while not run.recorder.life.called:
                await run.changed(within_s=1)
            run.recorder.life.called = False  # as if it had not come so far
            await run.until(returned=True, timeout_s=STILL_S + SILENT_S)


async def test_stop_returns_when_a_take_would_be_new_work(make_exam: MakeExam):
    exam = make_exam("""
        import asyncio

        async def run(source, handle, *, workers, stop):
            await stop.wait()
            async for message in source:
                await message.nack(requeue=True)
                await asyncio.sleep(0)
                return
    """)
    async with exam.start(workers=1) as run:
        await run.stop()
        await run.publish(exam.messages(1))
        await run.until(returned=True)
    assert stop_means_no_new_work(exam.histories[0]).status is Status.FAIL


async def test_every_process_gets_a_fresh_copy_of_the_module(make_exam: MakeExam):
    exam = make_exam("""
        from pathlib import Path

        Path(__file__).write_text("raise SystemExit('rewritten')")

        async def run(source, handle, *, workers, stop):
            async for message in source:
                await handle(message)
                await message.ack()
    """)
    async with exam.start(workers=1) as run:
        await run.publish(exam.messages(1))
        await run.until(settled=1)
        await run.kill()
        await run.restart()
        await run.publish(exam.messages(1))
        await run.until(settled=2)


async def test_a_paused_subject_is_late_and_nothing_worse(make_exam: MakeExam):
    exam = make_exam()
    with pytest.raises(ScenarioOver, match="late started=1"):
        async with exam.start(workers=2) as run:
            await run.pause()
            await run.publish(exam.messages(1))
            await run.until(started=1, timeout_s=1)


async def test_a_cut_connection_comes_back(make_exam: MakeExam):
    exam = make_exam("""
        from autograder.messaging import SettleFailed

        async def run(source, handle, *, workers, stop):
            async for message in source:
                await handle(message)
                try:
                    await message.ack()
                except SettleFailed:
                    pass
    """)
    orders = exam.messages(3)
    async with exam.start(workers=1, proxy=True) as run:
        await run.hold(orders[0])
        await run.publish(orders)
        await run.until(running=1)
        await run.cut()
        await run.until(reconnected=1)
        await run.release(orders[0])
        await run.until(settled=3, timeout_s=20)
    assert exam.histories[0].of(Kind.FAULT)[0].detail == "cut"


async def test_network_faults_need_a_proxy(make_exam: MakeExam):
    exam = make_exam()
    async with exam.start(workers=1) as run:
        with pytest.raises(GraderError, match="proxy=True"):
            await run.cut()


async def test_an_unknown_condition_is_our_mistake(make_exam: MakeExam):
    exam = make_exam()
    async with exam.start(workers=1) as run:
        with pytest.raises(GraderError, match="setled"):
            await run.until(setled=3)


async def test_nothing_of_a_subject_is_left(make_exam: MakeExam):
    """Not the process, not its children, not those that went into sessions of their own."""
    exam = make_exam("""
        import os, subprocess, sys

        async def run(source, handle, *, workers, stop):
            script = "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"
            for own_session in (False, True):
                child = subprocess.Popen(
                    [sys.executable, "-c", script], start_new_session=own_session
                )
                print("child", child.pid, flush=True)
            grandparent = "import subprocess, sys; print('child', subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], start_new_session=True).pid, flush=True)"
            subprocess.run([sys.executable, "-c", grandparent])
            async for message in source:
                await handle(message)
                await message.ack()
    """)
    async with exam.start(workers=1) as run:
        await run.publish(exam.messages(1))
        await run.until(settled=1)
    pids = [int(line.split()[1]) for line in exam.output.splitlines() if line.startswith("child")]
    assert len(pids) == 3
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert "left 3 processes behind" in exam.notices[0]


async def test_runs_side_by_side_do_not_mix(make_exam: MakeExam):
    exam = make_exam()

    async def one(count: int) -> None:
        async with exam.start(workers=2) as run:
            await run.publish(exam.messages(count))
            await run.until(settled=count)

    await asyncio.gather(*(one(count) for count in (3, 5, 7)))
    assert sorted(len(each.of(Kind.FINISHED)) for each in exam.histories) == [3, 5, 7]


def kinds_of(run, message: str) -> list[Kind]:
    return [event.kind for event in run.recorder.events if event.message == message]


async def test_an_option_must_be_one_that_the_function_takes(make_exam: MakeExam):
    exam = make_exam("async def run(source, handle, *, workers, stop): ...")
    for options in {}, {"workers": 2, "limit": 3}:
        with pytest.raises(GraderError, match=r"run\(source, handle, workers.* takes workers, not"):
            exam.start(**options)


async def test_another_call_is_given_what_it_names(make_exam: MakeExam):
    exam = make_exam("""
        async def replay(source, *, limit):
            async for message in source:
                await message.ack()
                limit -= 1
                if not limit:
                    return
    """)
    exam.call_of = lambda _: Call("replay", ("source",), ("limit",))
    async with exam.start(function="replay", limit=2) as run:
        await run.publish(exam.messages(3))
        await run.until(returned=True)
    assert run.count("settled") == 2


async def test_another_hash_seed_is_another_hash(make_exam: MakeExam):
    exam = make_exam("""
        async def run(source, handle, *, workers, stop):
            raise RuntimeError(hash("account-17"))
        """)
    async with exam.start(workers=1) as run:
        await run.until(exited=True)
        for seed in 5, 0, 5:
            await run.restart(hash_seed=seed)
            await run.until(exited=True)
    said = [event.detail.partition("\n")[0] for event in exam.histories[0].of(Kind.RUN_RAISED)]
    first, five, plain, again = said
    assert first == plain
    assert five == again
    assert five != plain


async def test_a_weighing_tells_which_keys_are_kept(make_exam: MakeExam):
    exam = make_exam("""
        kept = {}
        async def run(source, handle, *, workers, stop):
            async for message in source:
                await handle(message)
                await message.ack()
                if message.key.endswith("7"):
                    kept[message.key] = 1
        """)
    orders = [replace(each, key=f"key {n}") for n, each in enumerate(exam.messages(200))]
    async with exam.start(workers=1) as run:
        await run.publish(orders)
        await run.until(settled=200)
        await run.weigh()
    kept, _, seen, _ = exam.histories[0].of(Kind.WEIGHED)[0].detail.split()
    assert int(seen) == 200
    assert 20 <= int(kept) <= 23
