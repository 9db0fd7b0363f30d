"""The host beside a student's function that has just come back."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import pytest

from autograder.model import Call, Kind
from autograder.subject.host import Host

JOB = {"module": "pool.py", "call": asdict(Call("run")), "orders": [], "options": {}}
GIVEN = dict.fromkeys(("source", "handle", "workers", "stop"))


class Listening:
    def __init__(self) -> None:
        self.kinds: list[Kind] = []

    def event(self, kind: Kind, *_: Any, **__: Any) -> None:
        self.kinds.append(kind)


async def returns(source, handle, *, workers, stop):
    return


async def raises(source, handle, *, workers, stop):
    raise ValueError


@pytest.mark.parametrize("turns", range(1, 9))
@pytest.mark.parametrize(
    ("function", "kind"), [(returns, Kind.RUN_RETURNED), (raises, Kind.RUN_RAISED)]
)
async def test_a_cancel_that_comes_too_late_does_not_hit_the_host(function, kind, turns):
    reporter: Any = Listening()
    channel: Any = None
    host = Host(channel, reporter, JOB)
    running = host._run = asyncio.ensure_future(host._guarded(function, GIVEN))
    for _ in range(turns):
        await asyncio.sleep(0)
    host._obey({"do": "cancel"})
    await asyncio.wait({running})
    assert not running.cancelled()
    assert reporter.kinds == [kind]
