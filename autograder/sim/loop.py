"""An event loop in virtual time: asyncio's own order, no waiting, and nothing from outside.

Ready callbacks run first in, first out, as `call_soon` promises; a uniform shuffle would fail
correct programs that create tasks in a batch. Time stands still while anybody works; only after
many turns without a pause each one takes a little, so that a program that polls with `sleep(0)`
gets somewhere, as it does on a real loop.

It is a `BaseEventLoop` with `_run_once` written anew. Of asyncio's inside it relies on `_ready`
and `Handle._run`, which are the same from Python 3.11 to 3.14.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import base_events
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, NoReturn, Protocol

from autograder.sim.clock import Appointment, Clock
from autograder.sim.waits import who_waits

TURN_S = 100e-6
"""Virtual seconds of one turn, once there were many without a pause: what a busy machine takes."""

FREE_TURNS = 200
"""Turns in a row that take no time: more than any chain of wake-ups, fewer than polling needs."""

MOST_STEPS = 2_000_000
"""Callbacks of one loop, at most. The largest scenario needs a tenth of a percent of it."""


class NotSimulated(RuntimeError):  # noqa: N818 - a limit of the simulation, no error of the program's
    """The program asked for something that only a real process on a real machine has."""


class Deadlock(RuntimeError):  # noqa: N818 - the field's word
    """No task can go on, and nothing is due: the text says who waits for what."""


class Endless(RuntimeError):  # noqa: N818 - the same
    """The loop took more steps than any program needs: something spins."""


class SignalTable(Protocol):
    """What a loop needs of `autograder.sim.signals.Signals`."""

    def add(self, number: int, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        """As `loop.add_signal_handler`."""

    def remove(self, number: int) -> bool:
        """As `loop.remove_signal_handler`."""


class _Timer(asyncio.TimerHandle):
    """A timer that takes its appointment with it when it is cancelled."""

    __slots__ = ("appointment",)
    appointment: Appointment

    def cancel(self) -> None:
        """It will not fire, and time does not stop for it."""
        self.appointment.cancel()
        super().cancel()


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set is its number: sets of tasks have the same order in every run."""

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        self._number = number  # before it is registered anywhere
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class SimLoop(base_events.BaseEventLoop):
    """An event loop on a `Clock`. Several may share one, as processes share a world."""

    _ready: deque[asyncio.Handle]

    def __init__(self, clock: Clock | None = None, *, most_steps: int = MOST_STEPS) -> None:
        super().__init__()
        self.clock = clock or Clock()
        self.steps = 0
        self.refused = ""  # what the program asked for and is not there
        self.tasks: list[asyncio.Task[Any]] = []  # all that were made, in order, and are not done
        self.takes_turns = False  # with another loop: then neither of them makes time go on
        self.after_step: Callable[[], bool] | None = None  # asked whether to stop right here
        self._most_steps = most_steps
        self._made = 0
        self._turns = 0  # since time last jumped
        self._dead = False
        self.signals: SignalTable | None = None  # of the process, if the program owns them
        self.set_task_factory(_new_task)  # type: ignore[arg-type]  # it is only called with us

    # -- time

    def time(self) -> float:
        """Virtual seconds."""
        return self.clock.now

    def call_at(  # type: ignore[override]  # the stubs name the callback's arguments
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Have it called at this time; equal times in the order of asking."""
        timer = _Timer(when, callback, args, self, context)

        def fire() -> None:
            if not self._dead:
                self._ready.append(timer)

        timer.appointment = self.clock.call_at(when, fire)
        return timer

    # -- turns

    def _run_once(self) -> None:
        """One turn: what is due becomes ready, and what is ready by now runs."""
        self._turns += 1
        if self._turns > FREE_TURNS:
            self.clock.pass_by(TURN_S)
        self.clock.call_due()
        # what fell due may be all that was waited for: do not go on to a deadline far ahead
        if not self._ready and self.after_step is not None and self.after_step():
            self.stop()
            return
        if self.takes_turns:
            self.stop()
            if not self._ready:
                self._turns = 0
                return
        while not self._ready:
            self._turns = 0
            if not self.clock.jump():
                raise Deadlock(f"nothing can go on: {who_waits(self.tasks)}")
            self.clock.call_due()
            if self.after_step is not None and self.after_step():
                self.stop()
                return
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle.cancelled():
                continue
            self.steps += 1
            if self.steps > self._most_steps:
                raise Endless(f"more than {self._most_steps:,} steps: {who_waits(self.tasks)}")
            handle._run()  # noqa: SLF001 - what BaseEventLoop does
            if self.after_step is not None and self.after_step():
                self.stop()
                return

    @property
    def has_work(self) -> bool:
        """Whether somebody could have a turn now, without waiting for anything."""
        return bool(self._ready)

    # -- tasks

    def create_task(  # type: ignore[override]  # name is a text, whatever the stubs say
        self, coro: Any, *, name: str | None = None, **options: Any
    ) -> asyncio.Task[Any]:
        """A task with a name that repeats: asyncio's own numbers count whatever ran before."""
        self._made += 1
        task: asyncio.Task[Any] = super().create_task(
            coro, name=name or f"Task-{self._made}", **options
        )
        self.tasks.append(task)
        if len(self.tasks) > 100 and self._made % 100 == 0:
            self.tasks = [each for each in self.tasks if not each.done()]
        return task

    def new_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """What a task factory on this loop makes."""
        return SimTask(self._made, coro, loop=self, **options)

    # -- the end

    def kill(self) -> None:
        """Nothing of this loop runs any more, as after SIGKILL: no `finally`, no callback."""
        self._dead = True
        self._ready.clear()

    def bury(self) -> None:
        """Throw a dead loop's tasks away, in order and without their being told by the collector.

        Closing a coroutine runs its `finally` blocks, which happens to nobody who is killed: call
        it when nothing that they say is listened to any more.
        """
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio's own way
            coro: Any = task.get_coro()
            try:
                coro.close()
            except BaseException:  # noqa: BLE001, S112 - whatever a dead program still says
                continue
        self.tasks.clear()
        self._ready.clear()
        self.close()

    # -- signals

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]  # the stubs name the callback's arguments
        """Have it called in the turn after the signal came."""
        if self.signals is None:
            self.refuse("signals (loop.add_signal_handler)")
        self.signals.add(sig, callback, args)

    def remove_signal_handler(self, sig: int) -> bool:
        """Leave the signal to its default again."""
        if self.signals is None:
            self.refuse("signals (loop.remove_signal_handler)")
        return self.signals.remove(sig)

    # -- what is not there

    def refuse(self, what: str) -> NoReturn:
        """Say that this is not simulated; the program may catch it, the loop remembers it."""
        self.refused = self.refused or what
        raise NotSimulated(
            f"The simulation has no {what}: this program is then graded on a real broker only."
        )

    def call_soon_threadsafe(  # type: ignore[override]  # the stubs name the callback's arguments
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """There is one thread: as `call_soon`."""
        if self._thread_id is not None and self._thread_id != threading.get_ident():
            self.refuse("threads (call_soon_threadsafe from another one)")
        return self.call_soon(callback, *args, context=context)

    _thread_id: int | None = None

    def _process_events(self, event_list: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps who would have to be woken."""


def _new_task(loop: SimLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    return loop.new_task(coro, **options)


_ABSENT = {
    "network": (
        "add_reader add_writer remove_reader remove_writer create_connection create_server "
        "create_datagram_endpoint create_unix_connection create_unix_server connect_accepted_socket "
        "sock_recv sock_recv_into sock_recvfrom sock_recvfrom_into sock_sendall sock_sendto "
        "sock_connect sock_accept sock_sendfile getaddrinfo getnameinfo start_tls sendfile"
    ),
    "threads": "run_in_executor",
    "processes": "subprocess_exec subprocess_shell connect_read_pipe connect_write_pipe",
}


def _absent(what: str, name: str) -> Callable[..., NoReturn]:
    def refuse(self: SimLoop, *_: object, **__: object) -> NoReturn:
        self.refuse(f"{what} (loop.{name})")

    refuse.__name__ = name
    refuse.__doc__ = f"Refused: there is no {what} here."
    return refuse


for _what, _names in _ABSENT.items():
    for _name in _names.split():
        setattr(SimLoop, _name, _absent(_what, _name))
