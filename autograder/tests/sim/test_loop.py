"""The loop in virtual time: asyncio's order, no waiting, and a sentence for what is not there."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from autograder.sim import Clock, Deadlock, Endless, NotSimulated, SimLoop
from autograder.sim.walls import Walls


def run(coro, **options):
    loop = SimLoop(**options)
    try:
        return loop.run_until_complete(coro)
    finally:
        loop.kill()
        loop.bury()


def test_an_hour_takes_no_time():
    began = time.monotonic()

    async def main():
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert run(main()) == pytest.approx(3600)
    assert time.monotonic() - began < 60


def test_a_thousand_messages_in_virtual_time():
    async def main():
        queue = asyncio.Queue()
        for number in range(1000):
            queue.put_nowait(0.05 + number % 11 / 100)
        handled = []

        async def work():
            while not queue.empty():
                await asyncio.sleep(queue.get_nowait())
                handled.append(asyncio.get_running_loop().time())

        await asyncio.gather(*(work() for _ in range(10)))
        assert handled == sorted(handled)
        return len(handled)

    assert run(main()) == 1000


def test_ready_callbacks_run_first_in_first_out():
    async def main():
        order = []

        async def note(number):
            order.append(number)
            await asyncio.sleep(0)
            order.append(number + 100)

        await asyncio.gather(*(note(number) for number in range(20)))
        return order

    assert run(main()) == [*range(20), *range(100, 120)]


def test_equal_times_come_in_the_order_of_asking():
    async def main():
        loop, order = asyncio.get_running_loop(), []
        for number in range(100):
            loop.call_later(1.0, order.append, number)
        await asyncio.sleep(2)
        return order

    assert run(main()) == list(range(100))


def test_a_cancelled_timer_does_not_make_time_pass():
    async def main():
        for _ in range(5_000):
            async with asyncio.timeout(1000):
                await asyncio.sleep(0.001)
        return asyncio.get_running_loop().time()

    assert run(main()) < 10


def test_polling_gets_somewhere():
    async def main():
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        loop.call_later(0.5, done.set_result, None)
        turns = 0
        while not done.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert run(main()) > 100


def test_timeouts_work():
    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        return asyncio.get_running_loop().time()

    assert run(main()) == pytest.approx(5)


def test_a_deadlock_says_who_waits_for_what():
    async def main():
        queue = asyncio.Queue()
        stop = asyncio.Event()

        async def work():
            await queue.get()

        async def close():
            await stop.wait()

        worker = asyncio.create_task(work(), name="worker-1")
        asyncio.create_task(close(), name="closer")  # noqa: RUF006 - kept by the loop
        await worker

    with pytest.raises(Deadlock) as caught:
        run(main())
    text = str(caught.value)
    assert "worker-1 waits in Queue.get (test_loop.py line" in text
    assert "closer waits in Event.wait (test_loop.py line" in text
    assert "waits for worker-1 (test_loop.py line" in text


def test_a_program_that_spins_for_ever_is_ended():
    async def main():
        while True:  # noqa: ASYNC110 - that is the mistake
            await asyncio.sleep(0)

    with pytest.raises(Endless, match="more than 1,000 steps"):
        run(main(), most_steps=1000)


def test_sets_of_tasks_have_one_order():
    async def main():
        async def nothing():
            pass

        tasks = [asyncio.create_task(nothing(), name=str(n)) for n in range(40)]
        done, _ = await asyncio.wait(set(tasks))
        return [task.get_name() for task in done]

    ordered = run(main())
    assert [run(main()) for _ in range(3)] == [ordered] * 3


def test_names_of_tasks_do_not_depend_on_what_ran_before():
    async def main():
        return asyncio.create_task(asyncio.sleep(0)).get_name()

    assert run(main()) == run(main()) == "Task-2"


def test_two_loops_share_a_clock():
    clock = Clock()
    first, second = SimLoop(clock), SimLoop(clock)
    first.run_until_complete(asyncio.sleep(2))
    second.run_until_complete(asyncio.sleep(3))
    assert first.time() == second.time() == pytest.approx(5)
    first.close()
    second.close()


def test_nothing_of_a_killed_loop_runs_again():
    clock = Clock()
    loop, seen = SimLoop(clock), []

    async def life():
        try:
            while True:
                await asyncio.sleep(1)
                seen.append("alive")
        finally:
            seen.append("finally")

    async def main():
        asyncio.create_task(life())  # noqa: RUF006 - kept by the loop
        await asyncio.sleep(2.5)

    loop.run_until_complete(main())
    loop.kill()
    while clock.jump():
        clock.call_due()
    assert seen == ["alive", "alive"]
    loop.bury()


@pytest.mark.parametrize(
    ("what", "attempt"),
    [
        ("network", lambda: asyncio.open_connection("127.0.0.1", 1)),
        ("threads", lambda: asyncio.to_thread(print)),
        ("threads", lambda: asyncio.get_running_loop().run_in_executor(None, print)),
        ("processes", lambda: asyncio.create_subprocess_exec("true")),
        ("network", lambda: asyncio.get_running_loop().getaddrinfo("localhost", 80)),
        ("network", lambda: asyncio.get_running_loop().add_reader(0, print)),
        ("signals", lambda: asyncio.get_running_loop().add_signal_handler(15, print)),
    ],
)
def test_what_is_not_simulated_is_named(what, attempt):
    async def main():
        await attempt()

    loop = SimLoop()
    with pytest.raises(NotSimulated, match=f"The simulation has no {what}.*real broker only"):
        loop.run_until_complete(main())
    assert loop.refused.startswith(what)
    loop.close()


def connect():
    with socket.socket() as one:
        one.connect(("127.0.0.1", 9))


@pytest.mark.parametrize(
    ("what", "attempt"),
    [
        ("time.sleep", lambda: time.sleep(1)),
        ("threads", lambda: threading.Thread(target=print).start()),
        ("network", connect),
        ("processes", lambda: subprocess.run([sys.executable, "--version"], check=True)),
        ("processes", lambda: os.killpg(0, signal.SIGTERM)),
        ("kernel behind signal.alarm", lambda: signal.alarm(1)),
        ("kernel behind signal.sigtimedwait", lambda: signal.sigtimedwait([15], 0)),
    ],
)
def test_walls_name_what_would_block(what, attempt):
    loop = SimLoop()
    real = time.sleep, threading.Thread.start, socket.socket.connect

    async def main():
        try:
            attempt()
        except NotSimulated:
            return "caught"  # a program may swallow it; the loop does not forget

    with Walls() as walls:
        walls.surround(loop.clock, loop.refuse, seed=1)
        assert loop.run_until_complete(main()) == "caught"
    assert loop.refused.startswith(what)
    assert (time.sleep, threading.Thread.start, socket.socket.connect) == real
    loop.close()


def test_within_the_walls_it_is_the_same_day_everywhere():
    """Dates, times of day, and their zone: whatever this machine's are."""
    loop, program = SimLoop(), {}
    code = """
import asyncio, datetime, time
from datetime import UTC, date, datetime as moment, timedelta, timezone

async def look():
    await asyncio.sleep(1.5)
    east = timezone(timedelta(hours=2))
    return [
        moment.now(UTC).isoformat(), moment.now().isoformat(), moment.now(east).isoformat(),
        datetime.datetime.utcnow().isoformat(), moment.today().isoformat(), date.today().isoformat(),
        time.strftime("%Y-%m-%dT%H:%M:%S"), time.strftime("%H", time.gmtime(3600)), time.asctime(),
        time.ctime(), tuple(time.localtime())[:6], tuple(time.gmtime(0))[:3],
    ]

given = moment(2026, 1, 2, tzinfo=UTC)
kinds = [
    isinstance(given, moment), isinstance(given, date), isinstance(date(2026, 1, 2), moment),
    isinstance(moment.fromisoformat("2026-01-02"), moment), issubclass(moment, date),
    type(given) is type(moment.now(UTC)), moment.strptime("2026", "%Y").year,
    (moment.now(UTC) - given).days, moment.min.year, repr(given),
]
"""
    with Walls() as walls:
        walls.surround(loop.clock, loop.refuse, seed=1)
        exec(code, program)  # noqa: S102 - as a student's module is run
        found = loop.run_until_complete(program["look"]())
    loop.close()
    assert found == [
        "2027-01-15T08:00:01.500000+00:00",
        "2027-01-15T08:00:01.500000",
        "2027-01-15T10:00:01.500000+02:00",
        *["2027-01-15T08:00:01.500000"] * 2,
        "2027-01-15",
        "2027-01-15T08:00:01",
        "01",
        *["Fri Jan 15 08:00:01 2027"] * 2,
        (2027, 1, 15, 8, 0, 1),
        (1970, 1, 1),
    ]
    assert program["kinds"] == [
        *(True, True, False, True, True, True, 2026, 378, 1),
        "datetime.datetime(2026, 1, 2, 0, 0, tzinfo=datetime.timezone.utc)",
    ]
    assert dt.datetime is not program["moment"]  # the walls are down


def test_within_the_walls_clocks_are_virtual_and_chance_is_seeded():
    import random  # noqa: PLC0415 - as a program would

    async def main():
        before = time.monotonic(), time.time(), time.perf_counter()
        await asyncio.sleep(100)
        after = time.monotonic(), time.time(), time.perf_counter()
        passed = [late - early for early, late in zip(before, after, strict=True)]
        return passed, random.random()  # noqa: S311 - no secret

    seen = []
    for _ in range(2):
        loop = SimLoop()
        with Walls() as walls:
            walls.surround(loop.clock, loop.refuse, seed=7)
            seen.append(loop.run_until_complete(main()))
        loop.close()
    assert seen[0] == seen[1]
    assert seen[0][0] == pytest.approx([100, 100, 100])
