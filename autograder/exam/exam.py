"""The exam: what one scenario is given. It makes messages, starts runs and keeps their histories."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from autograder.exam.engines import PATIENCE_S, Engine
from autograder.exam.orders import Order, altered, make_orders
from autograder.exam.process import Subject, Zygote
from autograder.exam.run import Run
from autograder.exam.setup import Setup
from autograder.exam.stores import Stores
from autograder.model import BrokerState, Call, Event, GraderError, History
from autograder.subject.work import Work

T = TypeVar("T")
NO_STORES = Stores()


class Exam:
    """One scenario's examiner: one submission, one engine, one seed."""

    def __init__(
        self,
        *,
        engine: Engine,
        zygote: Zygote,
        submission: Path,
        call: Callable[[str], Call],
        seed: int,
        test: str = "",
        exercise: str = "",
        stores: Stores = NO_STORES,
    ) -> None:
        self.engine = engine
        self.stores = stores
        self.zygote = zygote
        self._call = call
        self.seed = seed
        self.test = test
        self.exercise = exercise
        self.random = random.Random(f"{exercise} {test} {seed}")  # noqa: S311 - repeatable, not secret
        self.timer: asyncio.Timeout | None = None  # ends the scenario; see `of_broker`
        self.histories: list[History] = []
        self.output = ""
        self.notices: list[str] = []
        self._submission = submission
        self._made = 0

    def messages(
        self,
        count: int,
        *,
        keys: int = 0,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **work: Any,
    ) -> list[Order]:
        """Orders over `keys` customers (0: the empty key), asking for `work` (see `Work`).

        Ids cannot be guessed; everything else repeats with the seed. A `body` of your own
        replaces the order as JSON, and with it the work. `headers` are the same on each.
        """
        orders = make_orders(
            count,
            first=self._made,
            keys=keys,
            work=Work(**work),
            randomness=self.random,
            nonce=self._nonce,
        )
        self._made += count
        if body is not None:
            orders = [replace(each, body=body) for each in orders]
        return [replace(each, headers=headers) for each in orders] if headers else orders

    def altered(self, orders: Sequence[Order]) -> list[Order]:
        """Other messages under the same ids: each with another amount, as no producer should send."""
        return [altered(order, self.random) for order in orders]

    def _nonce(self) -> str:
        """What makes an id unguessable."""
        return secrets.token_hex(3)

    def start(
        self,
        *,
        function: str = "",
        prefetch: int = 256,
        proxy: bool = False,
        stop_first: bool = False,
        hold_connect: bool = False,
        bears: Sequence[str] = (),
        letters: Sequence[Order] = (),
        **options: Any,
    ) -> AbstractAsyncContextManager[Run]:
        """A run of the submission's entry, or of another `function` that its exercise knows.

        `options` are what the function is given beside the host's own: `workers`, say. With
        `proxy`, its network can be faulted. `stop_first`: the stop event is set before the call.
        `hold_connect`: connect() waits until `run.let_connect()`.
        `bears`: what may go wrong by itself in the simulation, `duplicates` and `cuts`.
        `letters` lie among the dead letters before it.
        Raises `GraderError` for an option the function does not have, or lacks.
        """
        setup = Setup(
            self.call_of(function),
            options,
            prefetch,
            proxy,
            stop_first,
            hold_connect,
            bears=bears,
            letters=tuple(letters),
        )
        return self._run(setup)

    def _run(self, setup: Setup) -> Run:
        return Run(self, setup)

    def call_of(self, function: str) -> Call:
        """How this function is called; the entry, if none is named."""
        try:
            return self._call(function)
        except KeyError:
            raise GraderError(f"exercise.toml does not say how {function} is called.") from None

    async def of_broker(self, work: Awaitable[T]) -> T:
        """Await something of the broker's. The time it takes is not the submission's."""
        timer = self.timer
        deadline = timer.when() if timer is not None and not timer.expired() else None
        if timer is None or deadline is None:
            return await work
        clock = asyncio.get_running_loop().time
        began = clock()
        timer.reschedule(deadline + 2 * PATIENCE_S)  # the engine gives up by itself before that
        try:
            return await work
        finally:
            if not timer.expired():
                timer.reschedule(deadline + clock() - began)

    def workspace(self) -> Path:
        """A fresh copy of the submission for one run."""
        return self.zygote.workspace(self._submission)

    def record(
        self, run: Run, events: tuple[Event, ...], state: BrokerState, *, truncated: bool
    ) -> None:
        """Keep a run's history for judging."""
        self.histories.append(
            History(
                events=events,
                workers=run.workers,
                exercise=self.exercise,
                test=self.test,
                engine=self.engine.name,
                seed=self.seed,
                broker=state,
                truncated=truncated,
            )
        )

    def printed(self, subject: Subject) -> None:
        """Keep what a subject printed, and say what it left behind."""
        if subject.printed.size and not self.output:
            self.output = subject.printed.text()
        if subject.printed.size > 1 << 20:
            self.notices.append(
                f"The module printed {subject.printed.size:,} bytes; most were left out."
            )
        if subject.stragglers:
            self.notices.append(
                f"The module left {subject.stragglers} processes behind; they were ended."
            )
