"""Around a program in virtual time: virtual clocks, seeded chance, and no way out of the loop.

What would block the loop or leave the process is refused by name.
Walls against accidents, not against malice: a program that wants out is held by the process around
it (see `autograder.subject.isolation`).
"""

from __future__ import annotations

import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, Self

from autograder.sim.loop import SimLoop

EPOCH_S = 1_800_000_000.0
"""What `time.time()` says when a world begins: any day, but always the same one."""


class Walls:
    """Put them up around every moment in which student code may run; they come down at the end."""

    def __init__(self, loop: SimLoop, *, seed: int) -> None:
        self.loop = loop
        self._seed = seed
        self._saved: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Self:
        def virtual(offset: float = 0.0, unit: float = 0) -> Callable[[], float]:
            if unit:
                return lambda: int((offset + self.loop.clock.now) * unit)
            return lambda: offset + self.loop.clock.now

        for name, offset in (("monotonic", 0.0), ("perf_counter", 0.0), ("time", EPOCH_S)):
            self._replace(time, name, virtual(offset))
            self._replace(time, f"{name}_ns", virtual(offset, 1e9))
        self._replace(time, "sleep", self._refusing("time.sleep, which would hold up the loop"))
        self._replace(threading.Thread, "start", self._refusing("threads"))
        self._replace(socket.socket, "connect", self._refusing("network"))
        self._replace(socket.socket, "bind", self._refusing("network"))
        self._replace(subprocess.Popen, "__init__", self._refusing("processes"))
        self._chance = random.getstate()
        random.seed(self._seed)
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, original in reversed(self._saved):
            setattr(owner, name, original)
        self._saved.clear()
        random.setstate(self._chance)

    def _replace(self, owner: Any, name: str, by: Any) -> None:
        self._saved.append((owner, name, getattr(owner, name)))
        setattr(owner, name, by)

    def _refusing(self, what: str) -> Callable[..., NoReturn]:
        def refuse(*_: object, **__: object) -> NoReturn:
            self.loop.refuse(what)

        return refuse
