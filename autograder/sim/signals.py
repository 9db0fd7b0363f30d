"""What signals do to a simulated process: handlers of a loop, handlers of Python's, and none.

As `asyncio` does it on Unix: a loop's handler is called in one of the loop's next turns, and in front
of a handler that `signal.signal` has set nobody waits. Both of a process's own tables start out as
Python leaves them: SIGINT raises `KeyboardInterrupt`, which `asyncio.run` turns into cancelling the
main task the first time, and SIGTERM ends the process.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Callable
from typing import Any

from autograder.sim.loop import SimLoop

UNCATCHABLE = (signal.SIGKILL, signal.SIGSTOP)
ENDS_NOTHING = (signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT)
"""Signals whose default is to do nothing that shows here."""


class Signals:
    """One process's table, and its ways to end: `die` by a signal, `leave` with a status.

    `interrupt` is the default of SIGINT.
    """

    def __init__(
        self,
        loop: SimLoop,
        die: Callable[[int], None],
        interrupt: Callable[[], None],
        leave: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._die = die
        self._interrupt = interrupt
        self._leave = leave
        self._handlers: dict[int, Any] = {signal.SIGINT: signal.default_int_handler}
        self._of_loop: dict[int, asyncio.Handle] = {}

    def deliver(self, number: int) -> None:
        """A signal has come. Raises what a handler of `signal.signal` raises."""
        handler = self.get(number)
        if handler == signal.SIG_DFL:
            if number not in ENDS_NOTHING:
                self._die(number)
        elif handler is signal.default_int_handler:
            self._interrupt()
        elif handler != signal.SIG_IGN:
            if number in self._of_loop:
                handle = self._of_loop[number]
                self._loop.call_soon(handle._run)  # noqa: SLF001 - what the loop itself does
            handler(number, None)

    def exit(self, status: int) -> None:
        """As `os._exit`."""
        self._leave(status & 0xFF)

    def get(self, number: int) -> Any:
        """As `signal.getsignal`."""
        return self._handlers.get(signal.Signals(number), signal.SIG_DFL)

    def set(self, number: int, handler: Any) -> Any:
        """As `signal.signal`."""
        number, before = signal.Signals(number), self.get(number)
        if number in UNCATCHABLE:
            raise OSError(22, "Invalid argument")
        if not (callable(handler) or handler in {signal.SIG_DFL, signal.SIG_IGN}):
            raise TypeError(
                "signal handler must be signal.SIG_IGN, signal.SIG_DFL, or a callable object"
            )
        self._handlers[number] = handler
        return before

    def add(self, number: int, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        """As `loop.add_signal_handler`."""
        if asyncio.iscoroutine(callback) or inspect.iscoroutinefunction(callback):
            raise TypeError("coroutines cannot be used with add_signal_handler()")
        if number in UNCATCHABLE:
            raise RuntimeError(f"sig {number} cannot be caught")
        number = signal.Signals(number)
        self._of_loop[number] = asyncio.Handle(callback, arguments, self._loop)
        self._handlers[number] = _noted

    def remove(self, number: int) -> bool:
        """As `loop.remove_signal_handler`."""
        if self._of_loop.pop(number, None) is None:
            return False
        is_interrupt = number == signal.SIGINT
        self._handlers[number] = signal.default_int_handler if is_interrupt else signal.SIG_DFL
        return True


def _noted(number: int, frame: object) -> None:
    """The handler that Python has while the loop has its own."""
