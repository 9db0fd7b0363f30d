"""Programs that own their process, and how each of them ends: the same on a broker and simulated."""

from __future__ import annotations

from dataclasses import dataclass

from autograder.model import Call, Kind

MAIN = Call.read("main", "connect, handle, *, workers, deadline_s")

FRAME = """
import asyncio, os, signal, sys

async def main(connect, handle, *, workers, deadline_s):
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    {install}
    source = await connect()
    message = await anext(source)
    await handle(message)
    await message.ack()
    try:
        {wait}
    finally:
        {close}
    {end}
"""


@dataclass(frozen=True)
class Program:
    """What differs from the frame, the signals that are sent, and the end they make."""

    name: str
    tells: tuple[str, ...]
    end: str
    install: str = "pass"
    wait: str = "await told.wait()"
    close: str = "await source.close()"
    ending: str = "return 0"

    @property
    def source(self) -> str:
        """The whole module."""
        return FRAME.format(install=self.install, wait=self.wait, close=self.close, end=self.ending)


BY_LOOP = "for n in (signal.SIGTERM, signal.SIGINT): loop.add_signal_handler(n, told.set)"
BY_PYTHON = "for n in (2, 15): signal.signal(n, lambda n, _: loop.call_soon_threadsafe(told.set))"

PROGRAMS = (
    Program("a status of its own", ("terminate",), "status 7", BY_LOOP, ending="return 7"),
    Program("the same for Ctrl-C", ("interrupt",), "status 7", BY_LOOP, ending="return 7"),
    Program("a handler of Python's", ("terminate",), "status 0", BY_PYTHON),
    Program("no status is 0", ("terminate",), "status 0", BY_LOOP, ending="pass"),
    Program("a large one is cut", ("terminate",), "status 1", BY_LOOP, ending="return 257"),
    Program("an exception is 1", ("terminate",), "status 1", BY_LOOP, ending="raise ValueError"),
    Program("sys.exit at the end", ("terminate",), "status 3", BY_LOOP, ending="sys.exit(3)"),
    Program(
        "sys.exit in a handler of the loop's", ("terminate",), "status 4",
        "loop.add_signal_handler(15, sys.exit, 4)",
    ),
    Program(
        "sys.exit in a handler of Python's", ("terminate",), "status 5",
        "signal.signal(15, lambda n, _: sys.exit(5))",
    ),
    Program("no handler", ("terminate",), "signal SIGTERM"),
    Program("no handler for Ctrl-C", ("interrupt",), "signal SIGINT"),
    Program(
        "Ctrl-C cancels main, which may go on", ("interrupt",), "status 6",
        wait="await asyncio.sleep(100)", close="await source.close(); return 6",
    ),
    Program(
        "the first signal takes the handler away", ("terminate", "terminate"), "signal SIGTERM",
        "loop.add_signal_handler(15, loop.remove_signal_handler, 15)",
    ),
    Program(
        "os._exit at the second signal", ("terminate", "interrupt"), "status 130",
        "loop.add_signal_handler(15, loop.add_signal_handler, 2, os._exit, 386)",
    ),
    Program("os._exit at the end", ("terminate",), "status 3", BY_LOOP, ending="os._exit(3)"),
    Program("ignored", ("terminate", "interrupt"), "status 8",
        "signal.signal(15, signal.SIG_IGN); loop.add_signal_handler(2, told.set)",
        ending="return 8",
    ),
    Program(
        "it kills itself", ("interrupt",), "signal SIGTERM", BY_LOOP,
        ending="signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)",
    ),
    Program(
        "it signals itself", ("terminate",), "status 9",
        "loop.add_signal_handler(15, signal.raise_signal, 2); loop.add_signal_handler(2, told.set)",
        ending="return 9",
    ),
)  # fmt: skip


IN_A_TASK = (
    "loop.create_task(asyncio.sleep(0)).add_done_callback("
    "lambda _: loop.add_signal_handler(15, told.set))"
)
"""The handler is there some turns after connect() was called."""


async def told_at_the_gate(exam) -> list[Kind]:
    """Tell a process to end while its connect() is held, let it connect: what happened, in order."""
    async with exam.start(workers=1, deadline_s=5, hold_connect=True) as run:
        await run.publish(exam.messages(1))
        await run.until(connecting=True)
        await run.terminate()
        await run.let_connect()
        await run.until(exited=True, timeout_s=5)
    kinds = Kind.CONNECTING, Kind.FAULT, Kind.CONNECTED, Kind.RUN_RETURNED
    return [event.kind for event in exam.histories[-1].events if event.kind in kinds]


async def end_of(exam, tells: tuple[str, ...]) -> str:
    """Have one message worked on, then send the signals: how the process ends."""
    async with exam.start(workers=1, deadline_s=5) as run:
        await run.publish(exam.messages(1))
        await run.until(settled=1)
        for tell in tells:
            await getattr(run, tell)()
        await run.until(exited=True, timeout_s=5)
    return str(exam.histories[-1].of(Kind.EXITED)[-1].detail)
