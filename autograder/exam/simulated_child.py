"""The process that simulated worlds live in, seen from the examiner: orders out, events in.

Forked from the zygote as any subject is. It serves one run after the other; after a death, or a loop
that is blocked, the next order goes to a new one.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from autograder.exam.process import Job, Subject, Zygote, exit_text
from autograder.exam.recorder import Recorder
from autograder.messaging.adapter import Lane
from autograder.model import Call, Wait
from autograder.sim import child
from autograder.subject import wire

NAME = "sim"
SILENT_S = 6.0
"""Seconds without an answer after which the child's loop is blocked: as on a real broker."""

CPU_S = 600
"""Processor time of one child, which serves hundreds of exams."""


@dataclass
class Asked:
    """One order to the world, and what is noted once it is carried out."""

    do: str
    details: dict[str, Any]
    notes: list[Callable[[], None]] = field(default_factory=list)


class Listener(Protocol):
    """A run, as far as its child speaks to it."""

    @property
    def recorder(self) -> Recorder:
        """What keeps its events."""

    def on_event(
        self,
        at: float,
        process: int,
        kind: str,
        message: str,
        key: str,
        delivery: int,
        attempt: int,
        detail: str,
    ) -> None:
        """One event of the world's."""

    def on_answer(self, at: float) -> None:
        """The next of the orders was carried out, and this is the time now."""


class Child:
    """A process that worlds live in. Started when it is first needed, and again after it died."""

    def __init__(self, zygote: Zygote, submission: Path) -> None:
        self._zygote = zygote
        self._submission = submission
        self._subject: Subject | None = None
        self._run: Listener | None = None
        self._asked: deque[Asked] = deque()  # and not answered yet
        self._answer: Any = None
        self._heard_at = 0.0

    @property
    def printed(self) -> str:
        """What the submission printed in the present process."""
        return self._subject.printed.text() if self._subject is not None else ""

    def _started(self) -> Subject:
        if self._subject is None:
            module = self._zygote.workspace(self._submission)
            job = Job(module, Call(""), NAME, Lane("", "", ""), {}, 0, (), cpu_s=CPU_S)
            self._subject = self._zygote.fork(job, self._on_line)
        return self._subject

    def serve(self, run: Listener) -> None:
        """Events belong to this run from now on."""
        self._run = run

    def _on_line(self, _: float, line: list[Any]) -> None:
        run = self._run
        if line[0] == child.ANSWER:
            self._hear(line[1:])
        elif run is not None and line[0] == child.EVENTS:
            for event in line[1]:
                run.on_event(*event)
        elif run is not None and line[0] == wire.BEAT:
            run.recorder.heartbeat(0.0, line[1:])

    async def carry_out(self, orders: Sequence[Asked]) -> tuple[Any, str]:
        """Have orders carried out, one after the other: the last one's answer, and what was refused.

        The listener hears of each answer as it comes. Raises `ChildGoneError` when the process does
        not live to give them all, or is blocked: then it is killed, and the next orders go to a new one.
        """
        subject = self._started()
        self._asked, self._answer = deque(orders), None
        self._heard_at = time.monotonic()
        waiting = asyncio.ensure_future(
            subject.orders([(each.do, each.details) for each in orders])
        )
        try:
            while not waiting.done():
                await asyncio.wait({waiting}, timeout=0.5)
                if time.monotonic() - self._heard_at > SILENT_S and not waiting.done():
                    await self.end()
                    raise ChildGoneError(subject, blocked=True)
        finally:
            waiting.cancel()
        if self._asked:
            if not subject.garbage:
                await asyncio.wait({subject.gone}, timeout=SILENT_S)
            await self.end()
            raise ChildGoneError(subject, blocked=False)
        _, answer, refused = self._answer
        return answer, str(refused)

    def _hear(self, said: list[Any]) -> None:
        """One answer. What cannot be one comes from somebody who speaks for the child."""
        subject, run = self._subject, self._run
        if subject is None or run is None or subject.garbage:
            return
        if not self._asked or not _is_answer(self._asked[0].do, said):
            subject.refuse(f"no answer: {said!r}")
            return
        self._heard_at = time.monotonic()
        self._asked.popleft()
        self._answer = said
        run.on_answer(float(said[0]))

    async def end(self) -> None:
        """Kill the process, if there is one."""
        subject, self._subject = self._subject, None
        if subject is not None:
            await subject.end()


def _is_answer(do: str, said: list[Any]) -> bool:
    """Whether this can be the answer to that order."""
    if len(said) != 3 or type(said[0]) not in {int, float} or not math.isfinite(said[0]):
        return False
    answer = said[1]
    if said[2] and answer is None:  # something was refused: nothing was done after that
        return True
    if do == "until":
        return answer in set(Wait)
    if do == "state":
        return isinstance(answer, list) and [type(each) for each in answer] == [int] * 5
    if do == "read":
        shape = [str, str, str, str, dict]
        return isinstance(answer, list) and all(
            isinstance(each, list) and [type(part) for part in each] == shape for each in answer
        )
    if do == "effects":
        return isinstance(answer, list) and all(map(_is_effect, answer))
    if do == "look":
        return isinstance(answer, list) and [type(each) for each in answer] == [str, float]
    return answer is None


def _is_effect(row: Any) -> bool:
    return isinstance(row, list) and [type(each) for each in row] == [str, str]


class ChildGoneError(Exception):
    """The child did not live to answer, or did not come to it."""

    def __init__(self, subject: Subject, *, blocked: bool) -> None:
        super().__init__("blocked" if blocked else exit_text(subject.exit_code))
        self.subject = subject
        self.blocked = blocked
