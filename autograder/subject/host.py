"""The host: calls the student's function with the port, the handler and the stop event.

It runs inside the student's process. It knows no hidden test, no broker's administrator and no
verdict: it obeys orders from the examiner and reports what happens.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import weakref
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import Any

from autograder.messaging import Message, Permanent, Transient
from autograder.messaging.adapter import AdapterSource, Lane, Standing, connect
from autograder.messaging.route import Route, open_route
from autograder.model import Call, Kind
from autograder.storage import Database, Lease, Transaction
from autograder.subject import effects, wire
from autograder.subject.exits import (  # fmt: skip
    EXIT_BROKEN,
    EXIT_NO_BROKER,
    EXIT_OK,
    exit_status,
    report_exit,
    status_of,
)
from autograder.subject.gates import HANDLER, POINTS, Gates
from autograder.subject.keeping import kept
from autograder.subject.leased import RecordedLease
from autograder.subject.letters import RecordedDeadLetters, RecordedPublish
from autograder.subject.module import (  # fmt: skip
    Broken,
    StudentFunction,
    load,
    student_line,
    student_trace,
    summary,
)
from autograder.subject.recorded import (  # fmt: skip
    TURNS_OF_GRACE,
    Book,
    RecordedConnection,
    RecordedMessage,
    RecordedSource,
    StopEvent,
)
from autograder.subject.reporter import Reporter
from autograder.subject.stored import RecordedDatabase
from autograder.subject.work import Worker

BEAT_S = 0.05  # how often the subject says that its loop turns
_STUDENT: ContextVar[bool] = ContextVar("student", default=False)


def main(channel: socket.socket, job: dict[str, Any]) -> int:
    """Run one job to its end; the result is the process's exit status."""
    if job["engine"] == "sim":
        # by name: the simulation builds on this host, and a real subject never loads it
        status: int = import_module("autograder.sim.child").main(channel, job)
        return status
    reporter = Reporter(channel)
    _forbid_forks(reporter)
    call = Call(**job["call"])
    if call.is_main:  # what a process begins with, whatever ours was started from
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        function = load(Path(job["module"]), call)
    except Broken as broken:
        reporter.event(Kind.BROKEN, detail=broken.detail)
        _flush()
        return EXIT_BROKEN
    status = _run(Host(channel, reporter, job), function, reporter, Path(job["module"]))
    reporter.flush()
    _flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _run(host: Host, function: StudentFunction, reporter: Reporter, path: Path) -> int:
    """Run the event loop. What tears it down is reported at once, and nothing is tidied up then.

    A module that is all of its process may tear it down: then tasks are cancelled, as `asyncio.run`
    does it, and the status is its own.
    """
    with asyncio.Runner() as runner:
        try:
            return runner.run(host.run(function))
        except (SystemExit, KeyboardInterrupt) as error:
            # It came out of one of the student's own tasks: asyncio lets it end the loop.
            if host.is_main:
                host.torn_down = True
                return status_of(error)
            if not isinstance(error, SystemExit):
                raise
            report_exit(reporter, error, path)
        except BaseException as error:
            if not host.called:
                raise
            text = f"loop: the event loop broke down under the module: {summary(error)}"
            reporter.event(Kind.BROKEN, detail=f"{text}.\n{student_trace(error, path)}")
        _flush()
        os._exit(EXIT_BROKEN)


class Host:
    """One run of the student's function in this process."""

    store_waits = True  # a database's answer may take long, and nobody stands still meanwhile

    def __init__(self, channel: socket.socket, reporter: Reporter, job: dict[str, Any]) -> None:
        self._channel = channel
        self._reporter = reporter
        self._job = job
        self._path = Path(job["module"])
        self._call = Call(**job["call"])
        self._book = Book(self._path)
        self._gates = {point: Gates() for point in POINTS}
        self._may_connect = asyncio.Event()  # the gate of `connect()`
        self._may_connect.set()
        self._worker = Worker(reporter)
        self._stop = StopEvent(reporter)
        self._pending = bytearray()
        self._students: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._run: asyncio.Task[int] | None = None
        self._source: AdapterSource | None = None  # until there is a connection
        self._to_lose: list[bool] = []  # commits
        self._leases_to_lose: list[str] = []  # takes and releases
        self._connecting = False
        self._interrupted = False  # by Ctrl-C, as `asyncio.run` passes it on
        self.torn_down = False  # the loop is: whoever tears it down cancels every task itself
        self.called = False  # the student's function was
        for order in job["orders"]:
            self._obey(order)

    async def run(self, function: StudentFunction) -> int:
        """Connect, call the student's function, close. Returns the exit status."""
        loop = asyncio.get_running_loop()
        self._reporter.use_loop(loop)
        loop.set_task_factory(self._remember_task)
        if not self.is_main:
            loop.add_signal_handler(signal.SIGTERM, self._stop.ask)
        loop.add_reader(self._channel, self._read_orders)
        self._keep_telling()
        try:
            async with AsyncExitStack() as stack:
                status = await self._play(function, stack)
        except OSError as error:
            print(f"ackademy: no connection to the broker: {error}", file=sys.stderr)
            return EXIT_NO_BROKER
        finally:
            loop.remove_reader(self._channel)
        return status

    @property
    def is_main(self) -> bool:
        """Whether the student's function is all there is to this process."""
        return self._call.is_main

    async def _play(self, function: StudentFunction, stack: AsyncExitStack) -> int:
        """Provide what the call names, and call; what was opened is closed with the stack."""
        given = {name: await self._provide(name, stack) for name in self._call.names}
        self._tell()
        if self._job["stop_first"]:
            self._stop.ask()
        self.called = True
        self._reporter.event(Kind.RUN_STARTED, detail=self._called() if self.is_main else "")
        call = self._guarded(function, given)
        self._run = run = asyncio.get_running_loop().create_task(call, name="run")
        try:
            await asyncio.wait({run})
        except asyncio.CancelledError:
            if not self.is_main:
                raise
            if not self.torn_down:
                self._interrupted = True
                run.cancel()
            await asyncio.wait({run})
        finally:
            self._run = None
        return run.result()

    def _called(self) -> str:
        """`main workers=4 deadline_s=2`: what was called, with which options."""
        options = (f"{name}={value}" for name, value in self._job["options"].items())
        return " ".join([self._call.function, *options])

    async def _provide(self, name: str, stack: AsyncExitStack) -> Any:
        """One thing that the student's function is given. Raises `OSError` if there is no broker."""
        match name:
            case "source":
                self._source = await self._open_source(stack)
                return RecordedSource(self._source, self._reporter, self._book)
            case "connect":
                return self._connect
            case "dead_letters":
                letters = await self._open_route("dead_letters", stack)
                return RecordedDeadLetters(letters, self._reporter, self._book)
            case "publish":
                route = await self._open_route("lane", stack)
                kinds, gate = (Kind.REPUBLISH, Kind.REPUBLISHED), self._gates[HANDLER].wait_open
                return RecordedPublish(route, self._reporter, self._book, kinds, gate)
            case "handle" if "db" in self._call.names:
                return self._handle_in
            case "handle":
                return self._handle
            case "stop":
                return self._stop
            case "db":
                inner = await self._open_database(stack)
                return RecordedDatabase(
                    inner, self._reporter, self._book, self._to_lose, waits=self.store_waits
                )
            case "lease":
                keys = await self._open_lease(stack)
                return RecordedLease(
                    keys,
                    self._reporter,
                    self._book,
                    self._gates,
                    self._leases_to_lose,
                    waits=self.store_waits,
                )
            case _:
                return self._job["options"][name]

    async def _open_source(self, stack: AsyncExitStack) -> AdapterSource:
        """A connection of the run's lane, closed with the stack."""
        source = await self._new_source()
        stack.push_async_callback(source.close)
        return source

    async def _open_route(self, which: str, stack: AsyncExitStack) -> Route:
        """A connection of its own, to the dead letters or to the run's own lane."""
        opening = open_route(self._job["engine"], Lane(**self._job[which]))
        return await stack.enter_async_context(opening)

    async def _open_database(self, stack: AsyncExitStack) -> Database:
        """The run's schema. By name: most exercises have no database, and never load its client."""
        opening = import_module("autograder.storage.postgres").open_postgres
        database: Database = await stack.enter_async_context(opening(self._job["stores"]["db"]))
        return database

    async def _open_lease(self, stack: AsyncExitStack) -> Lease:
        """The run's keys."""
        url, prefix = self._job["stores"]["lease"]
        opening = import_module("autograder.storage.valkey").open_valkey
        lease: Lease = await stack.enter_async_context(opening(url, prefix=prefix))
        return lease

    async def _new_source(self) -> AdapterSource:
        lane = Lane(**self._job["lane"])
        return await connect(self._job["engine"], lane, prefetch=self._job["prefetch"])

    async def _connect(self) -> RecordedConnection:
        """What a module is given that opens its connection itself. Nobody closes it for it."""
        if self._connecting:
            raise RuntimeError("connect() was called before: a process has one connection")
        self._connecting = True
        if not self._may_connect.is_set():
            for _ in range(TURNS_OF_GRACE):  # whoever listens for signals in a task has begun to
                await asyncio.sleep(0)
            self._reporter.event(Kind.CONNECTING)
            await self._may_connect.wait()
        try:
            self._source = await self._new_source()
        except OSError as error:  # ours to answer for: the module has done nothing yet
            print(f"ackademy: no connection to the broker: {error}", file=sys.stderr)
            _flush()
            os._exit(EXIT_NO_BROKER)
        self._reporter.event(Kind.CONNECTED)
        return RecordedConnection(self._source, self._reporter, self._book)

    async def _guarded(self, function: StudentFunction, given: Mapping[str, Any]) -> int:
        """The student's call itself, and the status that comes of it.

        What comes out of it is an event, never an exception.
        """
        token = _STUDENT.set(True)
        try:
            call = self._call
            named = {name: given[name] for name in call.named}
            try:
                result = await function(*(given[name] for name in call.positional), **named)
            finally:
                self._run = None  # it is over: an order to cancel it would hit us
        except SystemExit as error:
            if self.is_main:
                return status_of(error)
            report_exit(self._reporter, error, self._path)
            return EXIT_OK
        except BaseException as error:  # noqa: BLE001 - whatever the student's code raises
            _STUDENT.reset(token)
            where = student_line(error, self._path)
            text = f"{summary(error)} ({where})" if where else summary(error)
            left = await self._left_behind()
            text += f"; left behind: {left}" if left else ""
            trace = student_trace(error, self._path)
            self._reporter.event(Kind.RUN_RAISED, detail=f"{text}\n{trace}")
            if self._interrupted and isinstance(error, asyncio.CancelledError):
                error = KeyboardInterrupt()
            return status_of(error) if self.is_main else EXIT_OK
        else:
            _STUDENT.reset(token)
            self._reporter.event(Kind.RUN_RETURNED, detail=await self._left_behind())
            return exit_status(result) if self.is_main else EXIT_OK

    async def _left_behind(self) -> str:
        """Names of tasks that outlive the run; one that was cancelled gets some turns to end.

        A process that ends takes them with it: those of a main are nobody's business.
        """
        if self.is_main:
            return ""
        for _ in range(5):
            await asyncio.sleep(0)
        return ", ".join(sorted(_describe(task) for task in self._students if not task.done())[:20])

    async def _handle_in(self, message: Message, tx: Transaction) -> None:
        """The handler of an exercise with a database: its effect is a row, written through `tx`."""
        if not callable(getattr(tx, "execute", None)):
            raise TypeError("handle(message, tx) takes the transaction that its effect belongs to")
        await self._handle(message, tx)

    async def _handle(self, message: Message, tx: Transaction | None = None) -> None:
        """The handler a student calls: report, wait at the gate, do the work."""
        if not isinstance(message, RecordedMessage):
            raise TypeError("handle() takes a message that came from the source")
        self._book.busy += 1
        try:
            message.report(Kind.STARTED)
            if self._gates[HANDLER].closed_for(message):
                await self._hold(message)
            if tx is not None:
                await effects.write(message, tx)
            await self._worker.do(message)
        except BaseException as error:
            message.report(*_how_it_ended(error))
            self._book.raised.known(error)
            raise
        else:
            message.report(Kind.FINISHED)
        finally:
            self._book.busy -= 1

    async def _hold(self, message: RecordedMessage) -> None:
        self._book.held += 1
        try:
            message.report(Kind.HELD)
            await self._gates[HANDLER].wait_open(message)
        finally:
            self._book.held -= 1

    def _keep_telling(self) -> None:
        self._tell()
        asyncio.get_running_loop().call_later(BEAT_S, self._keep_telling)

    def _tell(self) -> None:
        """Say that the loop turns, and how things stand: the examiner tells slow from stuck by it."""
        self._reporter.line([wire.BEAT, *self.figures()])

    def figures(self) -> list[int]:
        """What a heartbeat says: buffered, in hand, busy, held, settling, connections."""
        source, book = self._source, self._book
        standing = source.standing() if source else Standing(0, 0, connected=False, connections=0)
        counts = [standing.buffered, book.in_hand, book.busy, book.held, book.settling]
        return [*counts, standing.connections]

    def _remember_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:  # fmt: skip
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
        self._remember(task, coro)
        return task

    def _remember(self, task: asyncio.Task[Any], coro: Any) -> None:
        if _STUDENT.get() and not _is_library(coro):
            self._students.add(task)

    def _read_orders(self) -> None:
        with suppress(BlockingIOError):
            data = self._channel.recv(1 << 16, socket.MSG_DONTWAIT)
            if not data:  # the examiner is gone; the keeper will see to the rest
                asyncio.get_running_loop().remove_reader(self._channel)
            self._pending += data
        for line in wire.split(self._pending):
            order = wire.decode(line)
            self._obey(order)
            self._reporter.line([wire.DONE, order["number"]])

    def _obey(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "hold" | "release" as do:
                self._gates[order["at"]].rule(order["match"], hold=do == "hold")
            case "hold connect":
                self._may_connect.clear()
            case "release connect":
                self._may_connect.set()
            case "break":
                self._reporter.break_at(Kind(order["kind"]), order["count"])
            case "lose_commits":
                self._to_lose += order["done"]
            case "lose_lease_commands":
                self._leases_to_lose += order["points"]
            case "tell":
                self._tell()
            case "weigh":
                keys = self._book.keys
                self._reporter.event(Kind.WEIGHED, detail=f"{kept(keys)} of {len(keys)} keys")
            case "cancel" if self._run is not None:
                self._run.cancel()


def _how_it_ended(error: BaseException) -> tuple[Kind, str]:
    """What a handler that did not finish is reported as."""
    if isinstance(error, GeneratorExit):
        return Kind.CANCELLED, "thrown away"
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        # `cancelling` counts requests from outside; the work's own error leaves it at 0.
        if task is not None and task.cancelling():
            return Kind.CANCELLED, ""
        return Kind.FAILED, "cancelled"
    for kind, name in (Permanent, "permanent"), (Transient, "transient"):
        if isinstance(error, kind):
            return Kind.FAILED, name
    return Kind.FAILED, "error"


_LIBRARIES = ("site-packages", f"{os.sep}messaging{os.sep}", f"{os.sep}storage{os.sep}")


def _is_library(coro: Any) -> bool:
    """Whether a task runs a client's, an adapter's or asyncio's own code: not the student's to end.

    What closes an abandoned async generator is a task of the loop's, and has no code at all.
    """
    code = getattr(coro, "cr_code", None) or getattr(coro, "gi_code", None)
    filename = code.co_filename if code else ""
    return not code or any(part in filename for part in _LIBRARIES)


def _describe(task: asyncio.Task[Any]) -> str:
    coro: Any = task.get_coro()
    return f"{getattr(coro, '__qualname__', coro)} ({task.get_name()})"


def _forbid_forks(reporter: Reporter) -> None:
    """A forked copy of a running loop shares its sockets and would speak in the subject's name."""

    def in_child() -> None:
        os._exit(0)

    def before() -> None:
        text = "fork: the module forks: two copies of one event loop would share its connections"
        reporter.event(Kind.BROKEN, detail=f"{text}.\n")

    os.register_at_fork(before=before, after_in_child=in_child)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the student may have closed or replaced it
            stream.flush()
