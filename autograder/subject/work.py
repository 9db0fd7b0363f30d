"""The work a message asks for, as data in its body: the examiner writes it, the host does it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from dataclasses import dataclass

from autograder.messaging import Message, Permanent, Transient
from autograder.model import DIED_AT_WORK, Kind
from autograder.subject.reporter import Reporter

ERRORS = ValueError, TimeoutError, KeyError, ConnectionResetError, StopAsyncIteration
"""What `error` raises, one after the other: a pool of today or tomorrow may know some by name."""

EXIT_DIED_AT_WORK = 113  # the handler was told to kill the process


@dataclass(frozen=True, slots=True)
class Work:
    """What the handler does with one message, in this order. All zero: it returns at once."""

    sleep_s: float = 0.0  # wait, as for a database
    burn_s: float = 0.0  # keep the processor busy and the event loop blocked
    dies: bool = False  # kill the process, as a segmentation fault would
    transient: int = 0  # the first n tries in a process raise Transient,
    error: int = 0  # then n raise one of `ERRORS`, the first, the second and so on,
    cancelled: int = 0  # then n raise CancelledError although nobody cancelled
    permanent: bool = False  # and at last, instead of returning, raise a kind of Permanent


class UnknownCustomer(Permanent):
    """Handlers raise kinds of their own."""


class Worker:
    """Does the work of one process and counts its tries per message."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._tries: Counter[str] = Counter()

    async def do(self, message: Message) -> None:
        """Do what the body says. A body of any other form is an order with nothing to do."""
        work = _read(message.body)
        if work.sleep_s:
            await asyncio.sleep(work.sleep_s)
        if work.burn_s:
            self._reporter.flush()  # the loop's turn will not end for a while
            self._burn(work.burn_s)
        if work.dies:
            self._reporter.event(Kind.FAULT, detail=DIED_AT_WORK)
            self._die()
        self._fail(message, work)

    def _burn(self, seconds: float) -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    def _die(self) -> None:
        os._exit(EXIT_DIED_AT_WORK)

    def _fail(self, message: Message, work: Work) -> None:
        failures = work.transient + work.error + work.cancelled
        if failures:
            self._tries[message.id] += 1
            tries = self._tries[message.id]
            if tries <= work.transient:
                raise Transient(f"order {message.id}: the database did not answer")
            if tries <= work.transient + work.error:
                error = ERRORS[(tries - work.transient - 1) % len(ERRORS)]
                raise error(f"order {message.id}: a bug in the handler")
            if tries <= failures:
                raise asyncio.CancelledError
        if work.permanent:
            raise UnknownCustomer(f"order {message.id}: this customer does not exist")


def _read(body: bytes) -> Work:
    try:
        return Work(**json.loads(body)["work"])
    except (ValueError, TypeError, KeyError):
        return Work()
