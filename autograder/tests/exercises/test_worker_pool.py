"""Edges of the worker pool's contract that no broker can show, for reference and variants.

A stream never ends by itself, and a network's latencies are never equal. Here the source is in
memory: it may end, it may hand out everything without suspending once, and every pool is stopped
and cancelled in each of its first loop turns.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from autograder.messaging import Permanent, Transient
from autograder.tests.exercises.bench import InMemory, ended, loaded, turns

FOLDER = Path(__file__).parents[3] / "solutions/03_concurrency/01_worker_pool"
PROGRAMS = [FOLDER / "worker_pool.py", *sorted(FOLDER.glob("variants/*.py"))]
TURNS = range(30)

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the student edition has no solutions")


class Bench:
    """One pool of three workers on one source, with a handler that fails as the ids say."""

    workers = 3

    def __init__(
        self, run, *, suspensions: int, ends: bool = False, handler_turns: int = 2
    ) -> None:
        self.source = InMemory(suspensions, ends=ends)
        self.handler_turns = handler_turns
        self.running = self.peak = 0
        self.stop = asyncio.Event()
        self.others = asyncio.all_tasks()
        arguments = {"workers": self.workers, "stop": self.stop}
        self.pool = asyncio.create_task(run(self.source, self.handle, **arguments))

    async def handle(self, message):
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await turns(self.handler_turns)
        finally:
            self.running -= 1
        failure = {"t": Transient, "e": ValueError, "c": asyncio.CancelledError}.get(message.id[0])
        if failure and message.attempt == 1:
            raise failure
        if message.id[0] == "p":
            raise Permanent

    async def end(self) -> None:
        """The pool has come back; nothing may be too much, and nobody may have stayed behind."""
        await ended(self.pool, self.others)
        assert self.peak <= self.workers
        assert self.source.peak <= 2 * self.workers + 2


@pytest.fixture(params=PROGRAMS, ids=lambda path: path.stem)
def run(request, monkeypatch):
    return loaded(request.param, monkeypatch).run


@pytest.mark.parametrize("suspensions", [0, 1, 3])
async def test_a_source_that_ends_ends_the_pool(run, suspensions):
    bench = Bench(run, suspensions=suspensions, ends=True)
    names = [f"{kind}{number}" for number in range(5) for kind in "atecp"]
    bench.source.publish(*names)

    await bench.end()

    assert bench.pool.exception() is None
    assert bench.source.settled == {
        (name, "give up" if name[0] == "p" else "ack"): 1 for name in names
    }


@pytest.mark.parametrize("suspensions", [0, 1, 3])
async def test_a_stop_in_any_turn_settles_or_returns_everything(run, suspensions):
    for turn in TURNS:
        bench = Bench(run, suspensions=suspensions)
        bench.source.publish(*(f"{kind}{number}" for number in range(8) for kind in "atc"))
        await turns(turn)

        bench.stop.set()
        await turns(10)  # a take that completes in the turn of the stop is nobody's fault
        bench.source.publish("a-late")
        await bench.end()

        assert bench.pool.exception() is None
        assert not bench.source.in_hand, f"stopped in turn {turn}"
        assert "a-late" in {name for name, _ in bench.source.waiting}


@pytest.mark.parametrize("suspensions", [0, 1, 3])
async def test_a_cancel_in_any_turn_gets_out_and_settles_nothing_more(run, suspensions):
    for turn in TURNS:
        bench = Bench(run, suspensions=suspensions, handler_turns=5)
        bench.source.publish(*(f"{kind}{number}" for number in range(8) for kind in "atc"))
        await turns(turn)

        bench.pool.cancel()
        await bench.end()

        assert bench.pool.cancelled(), f"cancelled in turn {turn}"
        assert bench.running == 0


async def test_settlements_that_fail_end_nothing(run):
    bench = Bench(run, suspensions=1, ends=True)
    bench.source.broken = True
    bench.source.publish(*(f"a{number}" for number in range(10)))
    await turns(40)

    bench.source.broken = False
    await bench.end()

    assert bench.pool.exception() is None
    assert bench.source.settled == {(f"a{number}", "ack"): 1 for number in range(10)}


async def test_an_idle_pool_stops_and_can_be_cancelled(run):
    for end in "stop", "cancel":
        bench = Bench(run, suspensions=0)
        await turns(10)

        bench.stop.set() if end == "stop" else bench.pool.cancel()
        await bench.end()

        assert bench.pool.cancelled() is (end == "cancel")
