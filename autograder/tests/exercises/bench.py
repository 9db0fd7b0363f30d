"""A source in memory, for edges of a contract that no broker can show.

A stream never ends by itself, and a network's latencies are never equal. This source may end, and
it may hand out everything without suspending once.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections import Counter, deque
from pathlib import Path
from types import ModuleType

import pytest  # noqa: TC002 - a type everywhere else too

from autograder.messaging import SettleFailed

PATIENCE_S = 20  # for a run that takes milliseconds, on a machine that may be busy


class InMemory:
    """A source that ends when nothing is unsettled; takes and settlements suspend `turns` times."""

    def __init__(self, turns: int, *, ends: bool) -> None:
        self.turns, self.ends = turns, ends
        self.waiting: deque[tuple[str, int]] = deque()
        self.in_hand: set[Delivered] = set()
        self.settled: Counter[tuple[str, str]] = Counter()
        self.peak = 0
        self.stopped = self.broken = False
        self.changed = asyncio.Event()

    def __aiter__(self):
        return self

    async def __anext__(self):
        await turns(self.turns)
        while not self.stopped and not self.waiting:
            if self.ends and not self.in_hand:
                raise StopAsyncIteration
            changed = self.changed
            await changed.wait()
        if self.stopped:
            raise StopAsyncIteration
        message = Delivered(self, *self.waiting.popleft())
        self.in_hand.add(message)
        self.peak = max(self.peak, len(self.in_hand))
        return message

    async def stop_receiving(self):
        self.stopped = True
        self.change()
        await turns(self.turns)

    def publish(self, *names: str) -> None:
        self.waiting.extend((name, 1) for name in names)
        self.change()

    def change(self):
        self.changed.set()
        self.changed = asyncio.Event()


class Delivered:
    """One delivery; settling it on a broken connection fails. `a/1` is a message of the key `a`."""

    body, headers = b"", {}

    def __init__(self, source: InMemory, name: str, attempt: int) -> None:
        self.source, self.id, self.attempt = source, name, attempt
        self.key = name.rpartition("/")[0]

    async def ack(self):
        await self.settle("ack")

    async def nack(self, *, requeue, delay_s=0.0):
        await self.settle("requeue" if requeue else "give up")

    async def settle(self, verb):
        source = self.source
        assert self in source.in_hand, f"{self.id} was settled twice"
        await turns(source.turns)
        source.in_hand.remove(self)
        if source.broken:
            verb = "requeue"
        if verb == "requeue":
            source.waiting.append((self.id, self.attempt + 1))
        else:
            source.settled[self.id, verb] += 1
        source.change()
        if source.broken:
            raise SettleFailed


async def ended(running: asyncio.Task[object], before: set[asyncio.Task[object]]) -> None:
    """The student's function has come back, and beside the tasks of `before` nobody stays behind."""
    await asyncio.wait({running}, timeout=PATIENCE_S)
    assert running.done(), "run() does not end"
    await turns(3)
    left = {task for task in asyncio.all_tasks() - before if not task.done()}
    assert not left, "tasks were left behind"


def loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A program as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"{path.parents[1].name}_{path.stem}", path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)
