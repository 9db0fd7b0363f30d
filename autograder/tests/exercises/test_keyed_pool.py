"""Edges of the keyed pool's contract that no broker can show, for reference and variants.

As for the worker pool: every pool is stopped and cancelled in each of its first loop turns, on a
source that may end and that may hand out everything without suspending once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from autograder.messaging import Permanent, Transient
from autograder.tests.exercises.bench import PATIENCE_S, InMemory, ended, loaded, turns

FOLDER = Path(__file__).parents[3] / "solutions/03_concurrency/02_keyed_pool"
PROGRAMS = [FOLDER / "keyed_pool.py", *sorted(FOLDER.glob("variants/*.py"))]
TURNS = range(30)

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the student edition has no solutions")


class Bench:
    """One pool of three workers; `a/t1` is of the key `a`, and its first try fails."""

    workers = 3

    def __init__(self, run, *, suspensions: int, ends: bool = False) -> None:
        self.source = InMemory(suspensions, ends=ends)
        self.tries: Counter[str] = Counter()
        self.running: list[str] = []  # keys
        self.done: dict[str, list[str]] = {}
        self.stop = asyncio.Event()
        self.others = asyncio.all_tasks()
        arguments = {"workers": self.workers, "stop": self.stop}
        self.pool = asyncio.create_task(run(self.source, self.handle, **arguments))

    async def handle(self, message):
        assert message.key not in self.running, f"two of {message.key!r} at once"
        self.running.append(message.key)
        assert len(self.running) <= self.workers
        try:
            await turns(2)
        finally:
            self.running.remove(message.key)
        kind = message.id.rpartition("/")[2][0]
        self.tries[message.id] += 1
        failure = {"t": Transient, "e": ValueError, "c": asyncio.CancelledError}.get(kind)
        if failure and self.tries[message.id] == 1:
            raise failure
        self.done.setdefault(message.key, []).append(message.id)
        if kind == "p":
            raise Permanent

    async def end(self) -> None:
        """The pool has come back; nothing may be too much, and nobody may have stayed behind."""
        await ended(self.pool, self.others)
        assert self.source.peak <= 2 * self.workers + 2
        for key, finished in self.done.items():
            numbers = [int(name[-1]) for name in finished]
            assert numbers == sorted(numbers), f"{key!r}: {finished}"


def orders(*kinds: str, keys=("a", "b", "", "a b")) -> list[str]:
    """Messages of these kinds for every key, in turn."""
    return [f"{key}/{kind}{number}" for number, kind in enumerate(kinds) for key in keys]


@pytest.fixture(params=PROGRAMS, ids=lambda path: path.stem)
def run(request, monkeypatch):
    return loaded(request.param, monkeypatch).run


@pytest.mark.parametrize("suspensions", [0, 1, 3])
async def test_a_source_that_ends_ends_the_pool_in_order(run, suspensions):
    bench = Bench(run, suspensions=suspensions, ends=True)
    names = orders("a", "t", "p", "e", "c", "a")
    bench.source.publish(*names)

    await bench.end()

    assert bench.pool.exception() is None
    assert bench.source.settled == {
        (name, "give up" if "/p" in name else "ack"): 1 for name in names
    }


@pytest.mark.parametrize("suspensions", [0, 1, 3])
async def test_a_stop_in_any_turn_settles_or_returns_everything(run, suspensions):
    for turn in TURNS:
        bench = Bench(run, suspensions=suspensions)
        bench.source.publish(*orders("a", "t", "a", "c", "a"))
        await turns(turn)

        bench.stop.set()
        await turns(10)  # a take that completes in the turn of the stop is nobody's fault
        bench.source.publish("a/a9")
        await bench.end()

        assert bench.pool.exception() is None
        assert not bench.source.in_hand, f"stopped in turn {turn}"
        assert "a/a9" in {name for name, _ in bench.source.waiting}
        back = [name for name, _ in bench.source.waiting if name.startswith("a/")]
        assert not {*back} & {*bench.done.get("a", [])}, f"stopped in turn {turn}"


@pytest.mark.parametrize("suspensions", [0, 1, 3])
async def test_a_cancel_in_any_turn_gets_out_and_settles_nothing_more(run, suspensions):
    for turn in TURNS:
        bench = Bench(run, suspensions=suspensions)
        bench.source.publish(*orders("a", "t", "a", "c", "a"))
        await turns(turn)

        bench.pool.cancel()
        await bench.end()

        assert bench.pool.cancelled(), f"cancelled in turn {turn}"
        assert not bench.running


async def test_a_stop_ends_a_pause_at_once(run):
    bench = Bench(run, suspensions=0)
    bench.source.publish("a/t1", "a/a2", "a/a3")
    await turns(40)
    assert bench.tries["a/t1"] == 1

    bench.stop.set()
    await turns(40)

    assert bench.pool.done(), "it waits for the end of the pause"
    await bench.end()
    assert {name for name, _ in bench.source.waiting} == {"a/t1", "a/a2", "a/a3"}
    assert not bench.done


async def test_settlements_that_fail_end_nothing(run):
    bench = Bench(run, suspensions=1, ends=True)
    bench.source.broken = True
    bench.source.publish(*(f"{key}/a{number}" for number in range(5) for key in "ab"))
    await turns(40)

    bench.source.broken = False
    await asyncio.wait({bench.pool}, timeout=PATIENCE_S)

    assert bench.pool.exception() is None
    settled = {name for name, _ in bench.source.settled}
    assert settled == {f"{key}/a{number}" for number in range(5) for key in "ab"}


async def test_an_idle_pool_stops_and_can_be_cancelled(run):
    for end in "stop", "cancel":
        bench = Bench(run, suspensions=0)
        await turns(10)

        bench.stop.set() if end == "stop" else bench.pool.cancel()
        await bench.end()

        assert bench.pool.cancelled() is (end == "cancel")
