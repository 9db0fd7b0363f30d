"""Edges of a graceful shutdown that no broker can show, for reference and variants.

The signal comes in each of the first loop turns after `connect()` was called, to a connection that
suspends as often as it is told, never included; the loop, its time and its signals are simulated.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter, deque
from pathlib import Path

import pytest

from autograder.messaging import Permanent, SettleFailed, Transient
from autograder.sim import SimLoop
from autograder.sim.signals import Signals
from autograder.sim.walls import Walls
from autograder.tests.exercises.bench import loaded

FOLDER = Path(__file__).parents[3] / "solutions/04_reliability/05_graceful_shutdown"
PROGRAMS = [FOLDER / "graceful_shutdown.py", *sorted(FOLDER.glob("variants/*.py"))]
TURNS = range(25)
WORKERS, DEADLINE_S = 3, 20

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the student edition has no solutions")


class Died(SystemExit):
    """The process ended by a signal. A loop lets nothing else out of a callback."""


class InMemory:
    """A connection; taking, settling and closing suspend `turns` times."""

    def __init__(self, turns: int, names: list[str]) -> None:
        self.turns = turns
        self.waiting: deque[str] = deque(names)
        self.in_hand: set[Delivered] = set()
        self.settled: Counter[tuple[str, str]] = Counter()
        self.stopped = self.closed = False
        self.peak = 0
        self.changed = asyncio.Event()

    def __aiter__(self):
        return self

    async def __anext__(self):
        await turns(self.turns)
        while not self.stopped and not self.waiting:
            await self.changed.wait()
        if self.stopped:
            raise StopAsyncIteration
        message = Delivered(self, self.waiting.popleft())
        self.in_hand.add(message)
        self.peak = max(self.peak, len(self.in_hand))
        return message

    async def stop_receiving(self):
        self.stopped = True
        self.changed.set()
        await turns(self.turns)

    async def close(self):
        await self.stop_receiving()
        self.closed = True
        self.waiting.extend(message.id for message in self.in_hand)
        self.in_hand.clear()
        await turns(self.turns)


class Delivered:
    """One delivery."""

    key, body, headers, attempt = "", b"", {}, 1

    def __init__(self, source: InMemory, name: str) -> None:
        self.source, self.id, self.is_settled = source, name, False

    async def ack(self):
        await self.settle("ack")

    async def nack(self, *, requeue, delay_s=0.0):
        await self.settle("requeue" if requeue else "give up")

    async def settle(self, verb):
        assert not self.is_settled, f"{self.id} was settled twice"
        self.is_settled = True
        await turns(self.source.turns)
        if self not in self.source.in_hand:
            raise SettleFailed
        self.source.in_hand.remove(self)
        if verb == "requeue":
            self.source.waiting.append(self.id)
        else:
            self.source.settled[self.id, verb] += 1


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


class Bench:
    """One process of three workers; a message whose id begins with `h` hangs in its handler."""

    def __init__(self, main, names: list[str], *, suspensions: int) -> None:
        self.names, self.suspensions, self.main = names, suspensions, main
        self.loop = SimLoop()
        self.loop.signals = Signals(self.loop, self.die, self.interrupt, self.leave)
        self.finished: list[str] = []
        self.running = self.torn = 0
        self.connecting = asyncio.Event()
        self.source: InMemory

    def die(self, number):
        raise Died(number)

    def leave(self, status):
        assert status > 0
        raise Died(signal.SIGINT)  # for the broker it is the same

    def interrupt(self):
        raise AssertionError("nobody listens for SIGINT")

    async def connect(self):
        self.connecting.set()
        self.source = InMemory(self.suspensions, self.names)
        await turns(self.suspensions)
        return self.source

    async def handle(self, message):
        self.running += 1
        try:
            await turns(2)
            if message.id[0] == "h":
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.torn += 1
            raise
        finally:
            self.running -= 1
        failure = {"t": Transient, "p": Permanent, "c": asyncio.CancelledError}.get(message.id[0])
        if failure:
            raise failure
        self.finished.append(message.id)

    async def status(self) -> int:
        """What main returns, or says with `sys.exit` instead."""
        try:
            return await self.main(
                self.connect, self.handle, workers=WORKERS, deadline_s=DEADLINE_S
            )
        except SystemExit as left:
            return left.code

    def play(self, *signals: tuple[int, int]) -> int:
        """Send each signal so many turns after the one before; the status, or minus the signal."""

        async def whole() -> int:
            program = asyncio.create_task(self.status())
            await self.connecting.wait()
            for after, number in signals:
                await turns(after)
                self.loop.signals.deliver(number)
            return await program

        with Walls() as walls:
            walls.surround(self.loop.clock, pytest.fail, seed=1, signals=lambda: self.loop.signals)
            try:
                return self.loop.run_until_complete(whole())
            except Died as died:
                return -died.args[0]
            finally:
                self.loop.bury()

    def check_books(self) -> None:
        """Whatever was settled for good was done; whatever was done was settled; the rest waits."""
        assert self.source.closed
        assert self.running == 0
        acked = [name for name, verb in self.source.settled.elements() if verb == "ack"]
        given_up = [name for name, verb in self.source.settled.elements() if verb == "give up"]
        assert sorted(acked) == sorted(self.finished)
        assert all(name[0] == "p" for name in given_up)
        assert Counter([*acked, *given_up, *self.source.waiting]) == Counter(self.names)
        assert self.source.peak <= 2 * WORKERS + 2


@pytest.fixture(params=PROGRAMS, ids=lambda path: path.stem)
def main(request, monkeypatch):
    return loaded(request.param, monkeypatch).main


def names(kinds: str, number: int) -> list[str]:
    return [f"{kind}{each}" for each in range(number) for kind in kinds]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("suspensions", [0, 1, 3])
def test_a_signal_in_any_turn_drains(main, suspensions, number):
    for turn in TURNS:
        bench = Bench(main, names("apap", 10), suspensions=suspensions)
        assert bench.play((turn, number)) == 0, f"told in turn {turn}"
        assert bench.torn == 0
        bench.check_books()


@pytest.mark.parametrize("suspensions", [0, 1, 3])
def test_an_idle_process_ends_at_once(main, suspensions):
    for turn in TURNS:
        bench = Bench(main, [], suspensions=suspensions)
        assert bench.play((turn, signal.SIGTERM)) == 0
        assert bench.source.closed
        assert bench.loop.time() < 1


@pytest.mark.parametrize("suspensions", [0, 1, 3])
def test_what_hangs_is_torn_off_at_the_deadline(main, suspensions):
    for turn in TURNS:
        bench = Bench(main, names("ah", 8), suspensions=suspensions)
        status = bench.play((turn, signal.SIGTERM))
        assert (status != 0) is (bench.torn > 0)
        assert bench.loop.time() < DEADLINE_S + 1
        assert bench.torn == 0 or bench.loop.time() >= DEADLINE_S
        bench.check_books()


@pytest.mark.parametrize("suspensions", [0, 1, 3])
def test_a_second_signal_in_any_turn_ends_it(main, suspensions):
    for turn in TURNS:
        bench = Bench(main, names("h", 8), suspensions=suspensions)
        status = bench.play((20, signal.SIGTERM), (turn, signal.SIGINT))
        assert bench.loop.time() < 1
        if status < 0:
            assert status == -signal.SIGINT
        else:
            assert status > 0
            bench.check_books()


@pytest.mark.parametrize("suspensions", [1, 3])
def test_failures_of_a_handlers_own_end_nothing(main, suspensions):
    bench = Bench(main, names("apct", 3), suspensions=suspensions)
    assert bench.play((200, signal.SIGTERM)) == 0
    bench.check_books()
