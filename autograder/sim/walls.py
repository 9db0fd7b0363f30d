"""Around a program in virtual time: virtual clocks, seeded chance, and no way out of the loop.

What would block the loop or leave the process is refused by name.
Walls against accidents, not against malice: a program that wants out is held by the process around
it (see `autograder.subject.isolation`).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, Self

from autograder.sim import dates
from autograder.sim.clock import Clock
from autograder.sim.signals import Signals

EPOCH_S = 1_800_000_000.0
"""What `time.time()` says when a world begins: any day, but always the same one."""

OF_THE_KERNEL = (
    "alarm", "setitimer",
    "pause", "pthread_kill", "pthread_sigmask", "set_wakeup_fd", "sigpending",
    "sigtimedwait", "sigwait", "sigwaitinfo",
)  # fmt: skip
"""What the module `signal` has beside handlers: timers in real time, and signals that somebody waits for."""


class Walls:
    """Up as long as the context lasts; `surround` says around which world.

    They stay the same from one world to the next, because a library that is imported within
    keeps what it was given.
    """

    def __init__(self) -> None:
        self._clock = Clock()
        self._refuse: Callable[[str], NoReturn] = _nobody
        self._signals: Callable[[], Signals | None] = lambda: None
        self._saved: list[tuple[Any, str, Any]] = []

    def surround(
        self,
        clock: Clock,
        refuse: Callable[[str], NoReturn],
        *,
        seed: int,
        signals: Callable[[], Signals | None] = lambda: None,
    ) -> None:
        """From now on this is the time, and this is told what is not there.

        `signals` are those of the program that has its turn, if it owns them.
        """
        self._clock = clock
        self._refuse = refuse
        self._signals = signals
        random.seed(seed)

    def __enter__(self) -> Self:
        self._chance = random.getstate()
        for name, offset in (("monotonic", 0.0), ("perf_counter", 0.0), ("time", EPOCH_S)):
            self._replace(time, name, self._seconds(offset))
            self._replace(time, f"{name}_ns", self._nanoseconds(offset))
        for owner, name, by in list(dates.virtual(self._seconds(EPOCH_S))):
            self._replace(owner, name, by)
        self._replace(time, "sleep", self._sleep)
        self._replace(threading.Thread, "start", self._refusing("threads"))
        self._replace(socket.socket, "connect", self._refusing("network"))
        self._replace(socket.socket, "bind", self._refusing("network"))
        self._replace(subprocess.Popen, "__init__", self._refusing("processes"))
        self._replace(os, "fork", self._refusing("processes (os.fork)"))
        for name in "signal", "getsignal", "raise_signal":
            self._replace(signal, name, self._with_signals(name, getattr(signal, name)))
        self._replace(os, "kill", self._kill(os.kill))
        self._replace(os, "_exit", self._exit(os._exit))
        self._replace(os, "killpg", self._refusing("processes (os.killpg)"))
        for name in OF_THE_KERNEL:
            self._replace(signal, name, self._refusing(f"kernel behind signal.{name}"))
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, original in reversed(self._saved):
            setattr(owner, name, original)
        self._saved.clear()
        random.setstate(self._chance)

    def _sleep(self, seconds: float) -> None:
        """`time.sleep`: nobody minds it while a module is imported, but a loop stands still."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._clock.pass_by(seconds)
        else:
            self._refuse("time.sleep, which would hold up the loop")

    def _seconds(self, offset: float) -> Callable[[], float]:
        return lambda: offset + self._clock.now

    def _nanoseconds(self, offset: float) -> Callable[[], int]:
        return lambda: round((offset + self._clock.now) * 1e9)

    def _replace(self, owner: Any, name: str, by: Any) -> None:
        self._saved.append((owner, name, getattr(owner, name)))
        setattr(owner, name, by)

    def _with_signals(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the module `signal`, on the program's own table if it has one."""

        def instead(*arguments: Any) -> Any:
            signals = self._signals()
            return (
                original(*arguments) if signals is None else _OF_SIGNALS[name](signals, *arguments)
            )

        return instead

    def _kill(self, original: Callable[[int, int], None]) -> Callable[[int, int], None]:
        """`os.kill`: there is one process, and it may send itself a signal."""

        def kill(pid: int, number: int) -> None:
            signals = self._signals()
            if signals is None:
                original(pid, number)
            elif pid == os.getpid():
                signals.deliver(number)
            else:
                self._refuse("processes (os.kill)")

        return kill

    def _exit(self, original: Callable[[int], NoReturn]) -> Callable[[int], None]:
        """`os._exit`: the program's own process ends by it, and the world's goes on."""

        def leave(status: int) -> None:
            signals = self._signals()
            if signals is None:
                original(status)
            else:
                signals.exit(status)

        return leave

    def _refusing(self, what: str) -> Callable[..., NoReturn]:
        def refuse(*_: object, **__: object) -> NoReturn:
            self._refuse(what)

        return refuse


_OF_SIGNALS: dict[str, Callable[..., Any]] = {
    "signal": Signals.set,
    "getsignal": Signals.get,
    "raise_signal": Signals.deliver,
}


def _nobody(what: str) -> NoReturn:
    raise RuntimeError(f"{what}: and no world to be refused in")
