"""Deploy a new version of a consumer while it is busy: the old process is told to end, a new one begins.

Nothing is left to luck: handlers of the old process are held until it has been told, and what
comes next waits for a condition. The signals, the kernel's word on the end and the broker are real.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from autograder.exam import Exam, Run
from autograder.exam.engines import Engine
from autograder.exam.orders import Order
from autograder.messaging.adapter import Lane
from autograder.model import BrokerState, Call, Kind
from lessonkit.program import as_module, examined
from lessonkit.rollout import Rollout

WORKERS, BUFFERED, WAITING = 4, 8, 4
ORDERS = WORKERS + BUFFERED + WAITING
LEASE_S = 5.0
"""How long the broker keeps back what a dead process had; JetStream's `ack_wait` is 30 s by default."""

WORK_S = 0.3
SEEN_S = 0.5  # of work before the signal: what goes on by then should be seen in a picture
_CALL = Call("main", ("connect", "handle"), ("workers", "deadline_s"))
_IMPORTS = """import asyncio
import signal
import sys
from contextlib import suppress
from autograder.messaging import Connect, Connection, Handler, Message, Permanent, SettleFailed
"""


async def deploy(
    program: Callable[..., Any],
    *needs: Callable[..., Any],
    stuck: bool = False,
    deadline_s: float = 20.0,
    patience_s: float = 25.0,
    signals: Sequence[str] = ("terminate",),
) -> Rollout:
    """Run a lesson's program, tell its process to end when it is busy, start it anew, wait for all orders.

    Sixteen orders: four at work with its four workers, eight buffered in its client, four with the
    broker. Once the process has been told, handlers go on; if `stuck`, the first order's hangs until
    the new process begins it. Who has not ended `patience_s` after the signal is killed, as a
    platform does it. `signals` are `terminate` (SIGTERM) or `interrupt` (SIGINT). `needs` are the
    other functions that the program calls. Raises `RuntimeError` if the machine was too slow for
    the broker's answer to mean anything.
    """
    async with (
        examined(_module(program, needs), _CALL, _LongLease) as exam,
        exam.start(workers=WORKERS, deadline_s=deadline_s, prefetch=BUFFERED) as run,
    ):
        orders = exam.messages(ORDERS, sleep_s=WORK_S)
        await _get_busy(run, orders)
        await asyncio.sleep(SEEN_S)
        for number in signals:
            await getattr(run, number)()
        await _closed(run)
        await run.release(orders[1:] if stuck else None)
        await _ended(run, patience_s)
        after = await _with_broker(exam, run)
        await run.release()
        await run.restart()
        await run.until(settled=ORDERS, timeout_s=3 * LEASE_S)
    return Rollout(exam.histories[0], after)


class _LongLease:
    """An engine on which leases are long, and run out by themselves: nobody hurries the broker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def open_lane(self, label: str) -> Lane:
        return await self._engine.open_lane(label, lease_s=LEASE_S)

    async def expire(self, lane: Lane) -> None:
        """Nothing: a deploy has nobody who would do this."""


async def _get_busy(run: Run, orders: list[Order]) -> None:
    """Publish, and wait until the process has all it can have: at work, and in its buffer."""
    await run.hold()
    await run.publish(orders)
    await run.until(running=WORKERS)
    while run.recorder.beat.buffered < BUFFERED and run.alive:
        await run.changed(within_s=0.1)


async def _closed(run: Run) -> None:
    """If the process has begun to close its connection, wait until it has: then handlers go on."""
    kinds = [event.kind for event in run.recorder.events]
    if Kind.DISCONNECTING not in kinds:
        return
    while run.alive and Kind.DISCONNECTED not in kinds:
        await run.changed(within_s=0.1)
        kinds = [event.kind for event in run.recorder.events]


async def _ended(run: Run, patience_s: float) -> None:
    """Wait for the end of the process; kill it when patience is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            await run.recorder.life.exited.wait()
    if run.alive:
        await run.kill()


async def _with_broker(exam: Exam, run: Run) -> BrokerState:
    """The broker's counts, as they are right after the end of the process."""
    began = time.monotonic()
    state = await exam.of_broker(exam.engine.at_rest(run.lane))
    if time.monotonic() - began > LEASE_S / 2:
        raise RuntimeError("the broker took so long to answer that leases ran out: build again")
    return state


def _module(program: Callable[..., Any], needs: Sequence[Callable[..., Any]]) -> str:
    """The program and what it calls as a module; it is given what its signature asks for."""
    asked = inspect.signature(program).parameters
    given = ", ".join(f"{name}={name}" for name in _CALL.names if name in asked)
    return as_module(
        _IMPORTS,
        (*needs, program),
        "async def main(connect, handle, *, workers, deadline_s):\n"
        f"    return await {program.__name__}({given})\n",
    )
