"""Edges of the dead letter queue's contract that no broker can show, for reference and variants.

The source may end, and takes, letters and settlements may not suspend once. Every consumer is stopped
and cancelled in each of its first loop turns.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from pathlib import Path

import pytest

from autograder.messaging import Permanent, PublishFailed, Transient
from autograder.tests.exercises.bench import PATIENCE_S, InMemory, ended, loaded, turns

FOLDER = Path(__file__).parents[3] / "solutions/04_reliability/03_dead_letter_queue"
PROGRAMS = [FOLDER / "dead_letter_queue.py", *sorted(FOLDER.glob("variants/*.py"))]
TURNS = range(30)
ATTEMPTS = 3

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the student edition has no solutions")


class Orders(InMemory):
    """Names that begin with `g` have a body that is no JSON."""

    async def __anext__(self):
        message = await super().__anext__()
        message.body = b"\xff" if message.id[0] == "g" else b"{}"
        return message


class Letters:
    """Dead letters in memory; of the first few nobody hears."""

    def __init__(self, suspensions: int, unconfirmed: int = 0, names: str = "") -> None:
        self.suspensions, self.unconfirmed = suspensions, unconfirmed
        self.waiting = deque(Letter(self, name) for name in names)
        self.written: Counter[str] = Counter()

    async def publish(self, body, *, id, key="", headers=None):
        await turns(self.suspensions)
        if self.unconfirmed:
            self.unconfirmed -= 1
            raise PublishFailed
        assert {name for name in headers if name.startswith("dead-letter-")} >= {
            "dead-letter-reason", "dead-letter-error", "dead-letter-attempts",
            "dead-letter-first-failed-at", "dead-letter-last-failed-at",
        }  # fmt: skip
        self.written[id] += 1

    async def count(self):
        await turns(self.suspensions)
        return len(self.waiting)

    def __aiter__(self):
        return self

    async def __anext__(self):
        await turns(self.suspensions)
        if not self.waiting:
            raise StopAsyncIteration
        return self.waiting.popleft()


class Letter:
    body, key, attempt = b"{}", "k", 1

    def __init__(self, box: Letters, name: str) -> None:
        self.box, self.id, self.settled = box, name, ""
        self.headers = {"trace": "7", "dead-letter-attempts": "5"}

    async def ack(self):
        await turns(self.box.suspensions)
        assert not self.settled
        self.settled = "ack"

    async def nack(self, *, requeue, delay_s=0.0):
        assert not self.settled
        self.settled = "back"


class Bench:
    """One consumer with a handler that fails as the ids say."""

    def __init__(self, module, *, suspensions: int, ends: bool = False, unconfirmed: int = 0):
        self.source = Orders(suspensions, ends=ends)
        self.letters = Letters(suspensions, unconfirmed)
        self.running = 0
        self.tries: Counter[str] = Counter()
        self.stop = asyncio.Event()
        self.others = asyncio.all_tasks()
        arguments = {"max_attempts": ATTEMPTS, "stop": self.stop}
        run = module.run(self.source, self.handle, self.letters, **arguments)
        self.consumer = asyncio.create_task(run)

    async def handle(self, message):
        assert message.id[0] != "g"
        self.tries[message.id] += 1
        self.running += 1
        try:
            await turns(2)
        finally:
            self.running -= 1
        failure = {"t": Transient, "e": ValueError, "c": asyncio.CancelledError}.get(message.id[0])
        if failure and message.attempt < ATTEMPTS:
            raise failure
        if message.id[0] == "x":
            raise Transient
        if message.id[0] == "p":
            raise Permanent

    async def end(self) -> None:
        """The consumer has come back, and nobody has stayed behind."""
        await ended(self.consumer, self.others)


@pytest.fixture(params=PROGRAMS, ids=lambda path: path.stem)
def module(request, monkeypatch):
    return loaded(request.param, monkeypatch)


@pytest.mark.parametrize("suspensions", [0, 1, 3])
@pytest.mark.parametrize("unconfirmed", [0, 1])
async def test_a_source_that_ends_ends_the_consumer(module, suspensions, unconfirmed):
    bench = Bench(module, suspensions=suspensions, ends=True, unconfirmed=unconfirmed)
    names = [f"{kind}{number}" for number in range(3) for kind in "atecpxg"]
    bench.source.publish(*names)

    await bench.end()

    assert bench.consumer.exception() is None
    assert bench.letters.written == {name: 1 for name in names if name[0] in "pxg"}
    assert {name for name, _ in bench.source.settled} == set(names)
    assert set(bench.source.settled.values()) == {1}
    assert max(bench.tries.values()) <= ATTEMPTS


@pytest.mark.parametrize("suspensions", [0, 1, 3])
async def test_a_stop_in_any_turn_settles_or_returns_everything(module, suspensions):
    for turn in TURNS:
        bench = Bench(module, suspensions=suspensions, unconfirmed=turn % 2)
        bench.source.publish(*(f"{kind}{number}" for number in range(5) for kind in "atcpxg"))
        await turns(turn)

        bench.stop.set()
        await turns(10)  # a take that completes in the turn of the stop is nobody's fault
        bench.source.publish("a-late")
        await bench.end()

        assert bench.consumer.exception() is None
        assert not bench.source.in_hand, f"stopped in turn {turn}"
        assert "a-late" in {name for name, _ in bench.source.waiting}


@pytest.mark.parametrize("suspensions", [0, 1, 3])
async def test_a_cancel_in_any_turn_gets_out(module, suspensions):
    for turn in TURNS:
        bench = Bench(module, suspensions=suspensions)
        bench.source.publish(*(f"{kind}{number}" for number in range(5) for kind in "atcpxg"))
        await turns(turn)

        bench.consumer.cancel()
        await bench.end()

        assert bench.consumer.cancelled(), f"cancelled in turn {turn}"
        assert bench.running == 0


async def test_settlements_that_fail_end_nothing(module):
    bench = Bench(module, suspensions=1, ends=True)
    bench.source.broken = True
    bench.source.publish(*(f"{kind}{number}" for number in range(3) for kind in "apg"))
    await turns(20)

    bench.source.broken = False
    await bench.end()

    assert bench.consumer.exception() is None
    assert len(bench.source.settled) == 9


@pytest.mark.parametrize("limit", [0, 1, 3, 9])
@pytest.mark.parametrize("suspensions", [0, 1, 3])
async def test_a_replay_moves_so_many_and_no_more(module, limit, suspensions):
    letters = Letters(suspensions, names="abcde")
    everything, sent = list(letters.waiting), []

    async def publish(body, *, id, key="", headers=None):
        await turns(suspensions)
        assert (body, key) == (b"{}", "k")
        assert headers["trace"] == "7"
        assert "dead-letter-attempts" not in headers
        sent.append(id)
        letters.waiting.append(Letter(letters, id))  # it fails again, at once

    await asyncio.wait_for(module.replay(letters, publish, limit=limit), PATIENCE_S)

    assert sorted(sent) == list("abcde")[:limit]
    assert [each.id for each in everything if each.settled == "ack"] == list("abcde")[:limit]


async def test_a_replay_that_cannot_publish_loses_nothing(module):
    letters = Letters(1, names="abc")
    everything = list(letters.waiting)

    async def publish(body, *, id, key="", headers=None):
        await turns(1)
        if id == "b":
            raise PublishFailed

    await asyncio.gather(module.replay(letters, publish, limit=3), return_exceptions=True)

    assert everything[1].settled != "ack"
