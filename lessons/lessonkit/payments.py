"""Lavka's payments: a handler in a process of its own, beside a real broker and a real PostgreSQL.

What a page may have happen to it is what the graders of the exercise have happen: messages that
come twice, one after the other or at the same time, and SIGKILL at a named step.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from autograder.exam import Exam, Order, Run, ScenarioOver
from autograder.exam.stores import Stores
from autograder.model import Call, History, Kind
from autograder.storage import Database, Lease
from autograder.storage.postgres import open_postgres
from autograder.storage.valkey import open_valkey
from lessonkit.broker import LEASES, STORE, server, store
from lessonkit.program import as_module, examined

PAYMENTS = {"lamp": 4_900, "teapot": 2_490, "carpet": 18_000}
PATIENCE_S = 10.0

IN_HANDLE, IN_ACK, AFTER_ACK = "killed in handle()", "killed in ack()", "killed after ack()"
AGAIN, AT_ONCE = "published again", "two at once"
FAULTS = {
    IN_HANDLE: "SIGKILL at the teapot, before its row is written; then a new process",
    IN_ACK: "the same, when ack() has been called and the broker cannot have heard of it",
    AFTER_ACK: "the same, when the broker has heard it and ack() has not returned",
    AGAIN: "all three come a second time when they are settled",
    AT_ONCE: "the teapot alone, twice, for two workers; whoever books it waits until both have come as far as they can",
}
BREAKS = {IN_ACK: "ack", AFTER_ACK: "settled"}

_CALL = Call("main", ("source", "handle", "db"), ("workers", "stop"))
_IMPORTS = """import asyncio
from contextlib import suppress
from autograder.messaging import Message, SettleFailed
from autograder.storage import Database, Transaction
"""
_RUN = """async def main(source, handle, db, *, workers, stop):
    async def work():
        async for message in source:
            with suppress(SettleFailed):
                await {design}(message, handle, db)

    async def close():
        await stop.wait()
        await source.stop_receiving()

    closing = asyncio.create_task(close())
    await asyncio.gather(*(work() for _ in range(workers)))
    closing.cancel()
"""
_WAITING = "select count(*) as waiting from pg_stat_activity where wait_event_type = 'Lock'"
_STEPS = frozenset(
    {Kind.PUBLISHED, Kind.TAKEN, Kind.STARTED, Kind.FINISHED, Kind.ACK, Kind.SETTLED, Kind.EFFECT}
)
_TIMES = {0: "never", 1: "once", 2: "twice"}


@dataclass(frozen=True)
class Books:
    """What became of each payment: by the broker's deliveries, and by the rows in the database."""

    history: History

    @property
    def rows(self) -> Counter[str]:
        """How often each payment is in the database, as the examiner counted."""
        return Counter(event.message for event in self.history.of(Kind.EFFECT))

    @property
    def delivered(self) -> Counter[str]:
        """How often each payment's message was taken."""
        return Counter(event.message for event in self.history.of(Kind.TAKEN))

    @property
    def acked(self) -> Counter[str]:
        """How often the broker heard an ack of it."""
        called = {event.delivery for event in self.history.of(Kind.ACK)}
        settled = [e for e in self.history.of(Kind.SETTLED) if e.delivery in called]
        return Counter(event.message for event in settled)

    def story(self, name: str) -> History:
        """What befell one payment, and nothing else: its steps, its commits, the end of its process."""
        kept, in_hand = [], set[int]()  # deliveries of it
        for event in self.history.events:
            about_it = event.message == name
            if about_it and event.kind is Kind.TAKEN:
                in_hand.add(event.delivery)
            beside_it = bool(in_hand) and event.kind in {Kind.COMMITTED, Kind.FAULT}
            if (about_it and event.kind in _STEPS) or beside_it:
                kept.append(replace(event, key=""))
            if event.kind is Kind.FAULT:
                in_hand.clear()
            elif event.kind is Kind.SETTLED:
                in_hand.discard(event.delivery)
        return replace(self.history, events=tuple(kept))

    def __str__(self) -> str:
        published = dict.fromkeys(event.message for event in self.history.of(Kind.PUBLISHED))
        counts = (self.delivered, self.acked, self.rows)
        lines = [f"{'payment':<10}{'delivered':<12}{'acked':<9}booked"]
        for name in published:
            told = [_TIMES.get(count[name], f"{count[name]} times") for count in counts]
            lines.append(f"{name:<10}{told[0]:<12}{told[1]:<9}{told[2]}")
        return "\n".join(lines)


async def take_payments(design: Callable[..., Any], tables: str, fault: str = "") -> Books:
    """Have `design(message, handle, db)` book three payments in these tables, and count the rows.

    One worker, and each message comes once, unless a fault of `FAULTS` is asked for. Raises
    `ValueError` for another one.
    """
    if fault not in {"", *FAULTS}:
        raise ValueError(f"there is no fault {fault!r}; there are {', '.join(FAULTS)}")
    text = as_module(_IMPORTS, (design,), _RUN.format(design=design.__name__))
    opened = await asyncio.to_thread(store)
    async with examined(text, _CALL, stores=Stores({STORE: opened}, tables)) as exam:
        with suppress(ScenarioOver):  # what it waits for cannot come: that is the thing to see
            await _play(exam, opened.url, fault)
    return Books(exam.histories[0])


async def _play(exam: Exam, url: str, fault: str) -> None:
    """The teapot is what it happens to; the examiner looks at the end of every run."""
    lamp, teapot, carpet = (_order(name) for name in PAYMENTS)
    orders = [teapot] if fault == AT_ONCE else [lamp, teapot, carpet]
    times = 2 if fault in {AGAIN, AT_ONCE} else 1
    async with exam.start(workers=2 if fault == AT_ONCE else 1) as run:
        if fault == IN_HANDLE:
            await run.hold(teapot)
        elif fault in BREAKS:
            await run.break_at(BREAKS[fault], 2)  # the lamp's is the first
        elif fault == AT_ONCE:
            await run.hold()
            await run.publish([teapot])
        await run.publish(orders)
        if fault == AT_ONCE:
            await _until_both_have_come_far(run, url)
        elif fault == IN_HANDLE:
            await run.until(started=2)
        elif fault in BREAKS:
            await run.until(at_break=True)
            await run.count_effects()
        if fault.startswith("killed"):
            await run.kill()
            await run.restart()
        await run.release()
        await run.until(settled=len(orders))
        if fault == AGAIN:
            await run.publish(orders)
        if times == 2:
            await _reached(run, partial(_have_settled, run, 2 * len(orders)))
        await run.stop()
        await run.until(returned=True)


def _order(name: str) -> Order:
    return Order(name, "anna", body=json.dumps({"amount": PAYMENTS[name]}).encode())


async def _until_both_have_come_far(run: Run, url: str) -> None:
    """The second one books, too, or is done, or stands in the database and waits for the first."""
    async with open_postgres(url, connections=1) as database:

        async def far_enough() -> bool:
            row = await database.fetch_one(_WAITING)
            waits = row is not None and row["waiting"] > 0
            return waits or _count(run, Kind.STARTED) == 2 or _count(run, Kind.SETTLED) > 0

        await _reached(run, far_enough)


async def _have_settled(run: Run, deliveries: int) -> bool:
    return _count(run, Kind.SETTLED) >= deliveries


async def _reached(run: Run, condition: Callable[[], Awaitable[bool]]) -> None:
    """Return when it holds. Raises `TimeoutError` if it does not for long: the page is wrong then."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await run.changed(within_s=0.02)


def _count(run: Run, kind: Kind) -> int:
    return sum(event.kind is kind for event in run.recorder.events)


_opened = AsyncExitStack()  # connections stay open for as long as the kernel lives


async def open_payments(tables: str) -> Database:
    """These tables, empty, for a page's own statements."""
    opening = open_postgres((await asyncio.to_thread(store)).url)
    database = await _opened.enter_async_context(opening)
    await database.execute("drop table if exists payments, processed")
    for statement in filter(None, map(str.strip, tables.split(";"))):
        await database.execute(statement)
    return database


async def open_leases() -> Lease:
    """Keys that expire, in a real Valkey. Starts the server if no cell has."""
    url = (await asyncio.to_thread(server, LEASES)).url
    return await _opened.enter_async_context(open_valkey(url))
