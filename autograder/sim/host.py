"""One simulated process: the host in virtual time, and everything that makes it end."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from autograder.messaging.adapter import Lane
from autograder.model import Call, Kind
from autograder.sim.broker import SimBroker
from autograder.sim.clock import Clock
from autograder.sim.loop import SimLoop
from autograder.sim.route import SimRoute
from autograder.sim.signals import Signals
from autograder.sim.source import SimSource
from autograder.sim.stores import SimStores
from autograder.storage import Database, Lease
from autograder.subject import exits, host
from autograder.subject.module import Broken, StudentFunction, load, student_trace, summary
from autograder.subject.recorded import StopEvent
from autograder.subject.reporter import Reporter
from autograder.subject.work import EXIT_DIED_AT_WORK, Worker

if TYPE_CHECKING:
    from autograder.storage.sqlite import SqliteDatabase

Tell = Callable[[Kind, str, str, int, int, str], None]
MOMENT_S = 1e-6
"""Virtual seconds: shorter than anything a schedule draws, and over only when the loop was idle, or
when it had so many turns without a pause that they take time (see `autograder.sim.loop`)."""

PATIENCE_S = 5.0
"""Virtual seconds that tasks have to end in after run() is over and they were cancelled."""


class Frozen(BaseException):
    """The process stands still from here on, for good.

    It unwinds a stack that would never go on. Whoever catches it meets it again at the next event,
    and nothing that is reported any more is heard.
    """


class SimStop(StopEvent):
    """A stop that is in force when whoever noticed it has done what takes no time.

    How many turns a task needs to notice differs between versions of Python: here the turns of grace
    are followed by a moment of virtual time, which passes only when nobody has anything to do.
    """

    def _grace_is_over(self) -> None:
        asyncio.get_running_loop().call_later(MOMENT_S, super()._grace_is_over)


class SimReporter(Reporter):
    """Tells the world of each event at once: there is no socket, and nobody else's turn meanwhile."""

    def __init__(self, tell: Tell) -> None:
        self._tell_world = tell
        self._breaks = {}
        self.frozen = False
        self.silent = False  # the process is dead: what its remains say is nobody's business

    def event(
        self,
        kind: Kind,
        message: str = "",
        key: str = "",
        delivery: int = 0,
        attempt: int = 0,
        detail: str = "",
    ) -> None:
        """Report one event; stand still afterwards if the examiner asked for it."""
        if self.silent or self.frozen:
            raise Frozen
        self._tell_world(kind, message, key, delivery, attempt, detail)
        if self._breaks:
            self._maybe_break(kind)

    async def all_sent(self) -> None:
        """It has been, at once."""

    def line(self, line: list[Any]) -> None:
        """Heartbeats: a world needs none."""

    def flush(self) -> None:
        """Nothing waits."""

    def _stand_still(self, kind: Kind) -> None:
        self._tell_world(Kind.BREAK, "", "", 0, 0, str(kind))
        self.frozen = True
        raise Frozen


class SimWorker(Worker):
    """Work in virtual time."""

    def __init__(self, reporter: SimReporter, process: Process) -> None:
        super().__init__(reporter)
        self._process = process
        self._sim_reporter = reporter

    def _burn(self, seconds: float) -> None:
        """The loop is blocked so long: time goes by, and nobody has a turn."""
        self._process.loop.clock.pass_by(seconds)

    def _die(self) -> None:
        self._process.status = EXIT_DIED_AT_WORK
        self._sim_reporter.frozen = True
        raise Frozen


class SimHost(host.Host):
    """The host without signals and sockets."""

    store_waits = False

    def __init__(self, process: Process, job: dict[str, Any]) -> None:
        super().__init__(cast("Any", None), process.reporter, job)
        self._process = process
        self._worker = SimWorker(process.reporter, process)
        self._stop = SimStop(process.reporter)

    async def run(self, function: StudentFunction) -> int:
        """Connect, call the student's function, close."""
        loop = self._process.loop
        loop.set_task_factory(self._remember_task)
        async with AsyncExitStack() as stack:
            return await self._play(function, stack)

    async def _new_source(self) -> SimSource:
        return await self._process.connect(self._job["prefetch"])

    async def _open_source(self, stack: AsyncExitStack) -> SimSource:
        source = await self._new_source()

        async def close() -> None:
            await asyncio.sleep(
                2 * MOMENT_S
            )  # a real one closes when the grace of a stop is long over
            await source.close()

        stack.push_async_callback(close)
        return source

    async def _open_route(self, which: str, stack: AsyncExitStack) -> SimRoute:
        route = self._process.route(which)
        stack.push_async_callback(route.close)
        return route

    async def _open_database(self, stack: AsyncExitStack) -> Database:
        self._process.database = self._process.stores.database()
        return self._process.database

    async def _open_lease(self, stack: AsyncExitStack) -> Lease:
        return self._process.stores.lease()

    def obey(self, order: dict[str, Any]) -> None:
        """Do what the examiner asks for."""
        self._obey(order)

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        self._stop.ask()

    def _remember_task(self, loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = loop.new_task(coro, **options)
        self._remember(task, coro)
        return task


def salted(hash_seed: int) -> dict[str, object]:
    """The `hash` that a module finds in a process with this seed; 0 is the one there is."""
    if not hash_seed:
        return {}

    def salted_hash(value: object) -> int:
        return hash((hash_seed, value)) if isinstance(value, str | bytes) else hash(value)

    return {"hash": salted_hash}


class Process:
    """A loop, a host and a source: killed, nothing of them runs any more."""

    def __init__(
        self,
        clock: Clock,
        broker: SimBroker,
        lane: Lane,
        stores: SimStores,
        job: dict[str, Any],
        tell: Tell,
    ) -> None:
        self.loop = SimLoop(clock)
        self.loop.set_exception_handler(lambda *_: None)  # a real one logs, and goes on
        self.reporter = SimReporter(tell)
        self.status: int | None = None  # how it ended, if it did
        self.source: SimSource | None = None
        self.stores = stores
        self.database: SqliteDatabase | None = None
        self._broker, self._lane, self._job = broker, lane, job
        self._main: asyncio.Task[int] | None = None
        self._is_main = Call(**job["call"]).is_main
        self._interrupts = 0
        self.signals = self._table() if self._is_main else None
        self.loop.signals = self.signals
        self.host = SimHost(self, job)

    def _table(self) -> Signals:
        return Signals(self.loop, self._die, self._interrupt, self._end)

    @property
    def frozen(self) -> bool:
        """Whether it stands still in the middle of a step."""
        return self.reporter.frozen

    def start(self) -> None:
        """Import the module anew and call its function."""
        path = Path(self._job["module"])
        sys.modules.pop(path.stem, None)
        try:
            run = load(path, Call(**self._job["call"]), given=salted(self._job["hash_seed"]))
        except Broken as broken:
            self.reporter.event(Kind.BROKEN, detail=broken.detail)
            self.status = exits.EXIT_BROKEN
            return
        finally:
            if sys.path and sys.path[0] == str(path.parent):
                del sys.path[0]
        self._main = self.loop.create_task(self._life(run), name="main")

    async def connect(self, prefetch: int) -> SimSource:
        """A consumer of the run's lane."""
        self.source = await self._broker.connect(self._lane, prefetch=prefetch)
        return self.source

    def route(self, which: str) -> SimRoute:
        """The way to the dead letters, or to the run's lane."""
        return self._broker.route(self._lane, letters=which == "dead_letters")

    async def _life(self, function: StudentFunction) -> int:
        return await self._unwind(await self.host.run(function))

    async def _unwind(self, status: int) -> int:
        """Cancel what is left, as `asyncio.run` does when the loop was torn down, and end so."""
        rest = [task for task in self.loop.tasks if not task.done() and task is not self._main]
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=PATIENCE_S)
        return status

    def _interrupt(self) -> None:
        """SIGINT, where the program has no handler: what `asyncio.run` does."""
        self._interrupts += 1
        if self._interrupts > 1 or self._main is None:
            raise KeyboardInterrupt
        self._main.cancel()

    def _die(self, number: int) -> NoReturn:
        """End by a signal, here and now."""
        self._end(-number)

    def _end(self, status: int) -> NoReturn:
        """End with this status, here and now: no line of the program runs any more."""
        self.status = status
        self.reporter.frozen = True
        raise Frozen

    def look(self) -> None:
        """Notice that the main task has ended, and how."""
        if self.status is not None or self._main is None or not self._main.done():
            return
        if self._main.cancelled():
            if self._is_main:
                self.status = -signal.SIGINT
            else:
                self.broke_down(asyncio.CancelledError())
        elif (error := self._main.exception()) is not None:
            if not self.frozen:
                self.broke_down(error)
        else:
            self.status = self._main.result()

    def broke_down(self, error: BaseException) -> None:
        """Something came out of the loop itself: report it, as the real host does."""
        path = Path(self._job["module"])
        if self._is_main and isinstance(error, SystemExit | KeyboardInterrupt):
            status = exits.status_of(error)
            self.host.torn_down = True
            self._main = self.loop.create_task(self._unwind(status), name="unwind")
            return
        if isinstance(error, SystemExit):
            exits.report_exit(self.reporter, error, path)
        else:
            text = f"loop: the event loop broke down under the module: {summary(error)}"
            self.reporter.event(Kind.BROKEN, detail=f"{text}.\n{student_trace(error, path)}")
        self.status = exits.EXIT_BROKEN

    def kill(self) -> None:
        """SIGKILL, or the end of what ended by itself: the broker loses a consumer."""
        self.loop.kill()
        self.reporter.silent = True
        if self.source is not None and not self.source.closed:
            self.source.crash()
        self._broker.letters(self._lane).expire()
        self._broker.way(self._lane).expire()
        if self.database is not None:
            self.database.crash()

    def bury(self) -> None:
        """Throw away what is left."""
        self.loop.bury()
