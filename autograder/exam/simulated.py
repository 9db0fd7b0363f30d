"""An exam in the simulation: the same scenarios, the same `Run`, in virtual time.

The scenario stays here, in the examiner. The world it acts on (broker, clock, the student's process)
lives in a child process behind the same walls as any subject, and moves only while an order is
being carried out: see `autograder.sim.world`. A child serves one exam after the other.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from signal import Signals
from typing import Any, Self

from autograder.exam import endings
from autograder.exam.consumers import alone
from autograder.exam.engines import Outgoing
from autograder.exam.exam import Exam
from autograder.exam.notebook import Notebook
from autograder.exam.orders import Match, Order
from autograder.exam.process import exit_text
from autograder.exam.recorder import Life
from autograder.exam.run import ANOTHER, Run
from autograder.exam.scenario import ScenarioOver
from autograder.exam.setup import Setup
from autograder.exam.simulated_child import NAME, Asked, Child, ChildGoneError
from autograder.exam.stores import Effect, Held
from autograder.exam.waiting import check_names, detail_of
from autograder.model import BrokerState, Call, GraderError, Kind, Wait
from autograder.sim.schedule import Schedule
from autograder.sim.world import CUT
from autograder.subject.gates import HANDLER
from autograder.subject.leased import lease_key

CUT_AFTER_S = (None, None, 0.0, 0.0005, 0.003, 0.02)
"""Seconds after which a connection breaks by itself while a scenario waits, where it bears that."""

_LATER = frozenset(
    {"open", "spawn", "react", "publish", "order"}
    | {"lease", "called", "stop", "cancel", "end_source"}
)
"""Orders that may wait for the next one: no scenario looks at how things stand after them."""

_OF_MESSAGES = ("taken", "started", "finished", "settled")


class NotSimulatedError(Exception):
    """The scenario or the submission needs what the simulation has not: a real broker decides."""


@dataclass(frozen=True)
class SimEngine:
    """What stands where a real engine would: a name."""

    name: str = NAME
    version: str = ""


class SimExam(Exam):
    """One scenario's examiner in the simulation: one submission, one schedule."""

    def __init__(
        self,
        *,
        child: Child,
        call: Callable[[str], Call],
        schedule: Schedule,
        test: str = "",
        exercise: str = "",
        tables: str = "",
        share: int = 1,
    ) -> None:
        """With a `share` of n, scenarios get one message of each n that they ask for."""
        super().__init__(
            engine=SimEngine(),  # type: ignore[arg-type]  # nobody asks it for more than its name
            zygote=None,  # type: ignore[arg-type]  # the child has it
            submission=Path(),
            call=call,
            seed=schedule.seed,
            test=test,
            exercise=exercise,
        )
        self.child = child
        self.tables = tables
        self.schedule = schedule
        self.share = share
        self._nonces = random.Random(f"nonce {exercise} {test} {schedule.seed}")  # noqa: S311 - repeatable

    def messages(self, count: int, **content: Any) -> list[Order]:
        """Orders as in any exam; fewer of them, where a smaller run is looked for."""
        return super().messages(-(-count // self.share), **content)

    def _nonce(self) -> str:
        return f"{self._nonces.getrandbits(24):06x}"

    def _run(self, setup: Setup) -> Run:
        return SimRun(self, setup)


class SimRun(Run):
    """A run in a simulated world.

    Nothing moves between two orders, so they need not go there one by one: those whose answer says
    nothing wait for the next one that a scenario looks at.
    """

    _exam: SimExam
    recorder: Notebook

    def __init__(self, exam: SimExam, setup: Setup) -> None:
        super().__init__(exam, setup)
        self._now = 0.0
        self._chance = exam.schedule.chance("trouble")
        self._queue: deque[Asked] = deque()  # orders, first come, first carried out
        self.recorder = Notebook(lambda: self._now, self._queue)
        self._keys: dict[str, str] = {}
        self._lives: list[Life] = []  # of processes that were started to live together
        self._world_is_gone = False  # with its child: there is nothing left to ask

    # --- life cycle

    async def __aenter__(self) -> Self:
        self._exam.child.serve(self)
        how = self._exam.schedule
        await self._do(
            "open",
            seed=how.seed,
            manner=how.manner,
            pace=how.pace,
            trouble=how.trouble,
            prefetch=self._setup.prefetch,
            tables=self._exam.tables,
        )
        if self._setup.letters:
            await self.put_letters(self._setup.letters)
        await self.restart()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, ScenarioOver):
            return  # ours, or not simulated: there is no history to keep
        state = BrokerState()
        if not self._world_is_gone:
            try:
                if self._queue:
                    await self._carry_out()
                await self._let_it_close()
                events = self.recorder.events
                if self._end_lives():
                    self._queue.append(Asked("kill", {}))
                state, found = await self._last_look()
                events += found
            except ScenarioOver:
                events = self.recorder.events
        else:
            events = self.recorder.events
        self._exam.record(self, events, state, truncated=False)

    async def _state_at_rest(self) -> BrokerState:
        """A simulated broker has no way within it: it is asked once."""
        return await self.broker_state()

    async def _let_it_close(self) -> None:
        if not self.paused and any(
            each.returned and not each.gone and not each.broken for each in self._lives
        ):
            await self._do("close")

    def _end_lives(self) -> bool:
        """Whether any process still lives; it is to be ended by us."""
        living = [each for each in self._lives if not each.gone]
        for each in living:
            each.ended_by_us = True
        return bool(living)

    async def restart(self, *, hash_seed: int = 0, function: str = "", **options: Any) -> None:
        """Start a process: the first one, or the next after a kill or an exit.

        All processes of a world live in one real process, which has one hash seed. So with another
        `hash_seed` the module finds a `hash` that is salted; what a set of texts looks like stays.
        """
        if self._lives:
            await self._let_it_close()
            if self._end_lives():
                await self._do("kill")
        self._set_up(function, options)
        self._lives = [self.recorder.begin_life()]
        await self._begin(hash_seed=hash_seed)

    async def add_consumer(self) -> None:
        """Start a second process in this world, with a fresh copy of the module and a loop of its own."""
        await self._react()
        alone(self._setup, self.recorder)
        self._lives.append(self.recorder.begin_life(beside=True))
        await self._begin(beside=True)
        await self._do("called")

    async def _begin(self, *, hash_seed: int = 0, beside: bool = False) -> None:
        self.recorder.note(Kind.SPAWNED, self._setup.told)
        self._paused = False
        await self._do(
            "spawn",
            orders=list(self._gates),
            stop_first=self._setup.stop_first,
            call=asdict(self._setup.call),
            options=dict(self._setup.options),
            hash_seed=hash_seed,
            beside=beside,
        )

    # --- orders

    async def _do(self, do: str, **details: Any) -> Any:
        """One order to the world. It goes there with the next one whose answer is waited for."""
        self._queue.append(Asked(do, details))
        return None if do in _LATER else await self._carry_out()

    async def _carry_out(self) -> Any:
        """All orders so far; the last one's answer.

        What cannot be answered ends the scenario, and the history says why.
        """
        try:
            answer, refused = await self._exam.child.carry_out(tuple(self._queue))
        except ChildGoneError as gone:
            unanswered = self._queue[0].details
            self._queue.clear()
            self._gone(gone, unanswered.get("conditions", {"answered": 1}))
            raise ScenarioOver(str(gone)) from None
        if refused:
            raise NotSimulatedError(refused)
        return answer

    def on_answer(self, at: float) -> None:
        """The first of the orders was carried out: what was noted after it takes its place."""
        self._now = max(self._now, at)
        for note in self._queue.popleft().notes:
            note()

    def _gone(self, gone: ChildGoneError, conditions: dict[str, int | bool]) -> None:
        """The child was blocked, or is gone: note what a real run would have noted."""
        life = self.recorder.life
        self._world_is_gone = True
        if gone.blocked:
            self.recorder.note(Kind.EXPECTED, detail_of(self, Wait.BLOCKED, conditions))
            return
        self.recorder.note(Kind.EXITED, exit_text(gone.subject.exit_code))
        sentence = endings.unasked(self._setup.call, gone.subject, life)
        if sentence:
            life.broken = True
            self.recorder.note(Kind.BROKEN, sentence)
        self.recorder.end_life(life)

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
        """One event of the world's, stamped with its own time. Raises `ValueError` for what is none."""
        self._now = max(self._now, float(at))
        if kind == Kind.FAULT and detail == CUT:
            self.recorder.note_now(Kind.FAULT, CUT)
        elif kind == Kind.CONFIRMED:
            key = self._keys.get(message, "")
            self.recorder.note_now(Kind.CONFIRMED, message=message, key=key)
        elif kind == Kind.EXITED:
            life = self._life(process)
            self.recorder.note_now(Kind.EXITED, detail, life=life)
            self._unasked(detail, life)
            self.recorder.end_life(life)
        else:
            line = [kind, message, key, delivery, attempt, detail]
            self.recorder.from_subject(self._now, self._life(process), line)

    def _life(self, process: int) -> Life:
        for life in self._lives:
            if life.number == process:
                return life
        raise ValueError(f"not a process: {process!r:.80}")

    def _unasked(self, how: str, life: Life) -> None:
        """A process that ends by itself in the middle of the run breaks the submission."""
        sentence = (
            "" if life.broken else endings.told_by_kernel(self._setup.call, code_of(how), life)
        )
        if sentence:
            life.broken = True
            self.recorder.note_now(Kind.BROKEN, sentence, life=life)

    async def _react(self) -> None:
        """The time between what a scenario saw and what it does next."""
        if not self.paused:
            await self._do("react")

    async def publish(self, orders: Sequence[Order]) -> None:
        """Publish, and wait until the broker has confirmed each."""
        await self._react()
        orders = self._some_twice(orders)
        for order in orders:
            self._keys[order.id] = order.key
            self._note_publishing(order)
        await self._do("publish", messages=_wired(orders))

    async def put_letters(self, orders: Sequence[Order]) -> None:
        """Put letters among the dead ones."""
        await self._react()
        await self._do("put_letters", messages=_wired(orders))
        for order in orders:
            self._note_letter(Kind.LETTER_PUT, order.outgoing)

    async def _read_what_is_left(self) -> list[tuple[Kind, Outgoing]]:
        wanted = {Kind.LETTER_FOUND} | ({Kind.MESSAGE_FOUND} if self._setup.publishes else set())
        return [
            (Kind(where), Outgoing(name, key, body.encode("latin-1"), headers))
            for where, name, key, body, headers in await self._do("read")
            if where in wanted
        ]

    async def _read_effects(self) -> list[Effect]:
        return [(name, detail) for name, detail in await self._do("effects")]

    def _troubled_by(self, what: str) -> bool:
        """Whether this goes wrong by itself here: the seed says so, and the scenario bears it."""
        return what == self._exam.schedule.trouble and what in self._setup.bears

    def _some_twice(self, orders: Sequence[Order]) -> list[Order]:
        """A producer that got no confirmation in time publishes again: nobody has asked it not to."""
        again = 0.15 if self._troubled_by("duplicates") else 0.0
        return [
            each for order in orders for each in [order] * (1 + (self._chance.random() < again))
        ]

    async def _at_lease(self, do: str, order: Order) -> Held:
        key = lease_key(order.id)
        if do == "look":  # nothing moves meanwhile: it sees what the scenario has just seen
            value, left_s = await self._do("look", key=key)
            return value, left_s
        await self._react()
        await self._do("lease", what=do, key=key, value=ANOTHER)
        return "", -1.0

    async def release(
        self, match: Match = None, *, key: str | None = None, at: str = HANDLER
    ) -> None:
        """Open the gate for these orders, this key, or all; those that wait go on."""
        await self._react()
        await super().release(match, key=key, at=at)

    async def _order(self, do: str, **details: Any) -> None:
        await self._do("order", order={"do": do, **details})

    async def _order_all(self, do: str, **details: Any) -> None:
        await self._do("order", order={"do": do, **details}, all=True)

    async def until(
        self, *, timeout_s: float = 10, within_s: float = inf, **conditions: int | bool
    ) -> None:
        """Move the world until all conditions hold; see `autograder.exam.waiting`.

        Time costs nothing here: what moves for ever ends as a storm, and `within_s` is not asked for.
        """
        del within_s
        check_names(self, conditions)
        if self._exam.share > 1:  # no more of them than there are
            there = len(self._keys)
            conditions |= {
                name: min(wanted, there)
                for name, wanted in conditions.items()
                if name in _OF_MESSAGES
            }
        cut = self._chance.choice(CUT_AFTER_S) if self._troubled_by("cuts") else None
        answer = await self._do(
            "until", conditions=conditions, timeout_s=timeout_s, cut_after_s=cut
        )
        why = Wait(answer)
        self.recorder.note(Kind.EXPECTED, detail_of(self, why, conditions))
        if why is not Wait.MET:
            raise ScenarioOver(str(why))

    async def broker_state(self) -> BrokerState:
        """What the simulated broker says about this run's messages now."""
        return BrokerState(*await self._do("state"))

    async def ask_broker(self) -> None:
        """Note what the simulated broker says: it knows all there is to know at once."""
        self._note_broker(await self.broker_state())

    @property
    def alive(self) -> bool:
        """Whether the simulated process still exists."""
        return not self.recorder.life.gone

    # --- faults

    async def stop(self) -> None:
        """The stop event is set; returns when a take would be new work."""
        await self._react()
        await self._do("called")
        for life in self._lives:
            if self.recorder.awaits_stop(life):
                self.recorder.note(Kind.FAULT, "terminate", life=life)
        await self._do("stop")

    async def _tell_to_end(self, fault: str, number: Signals) -> None:
        await self._react()
        await self._do("called")
        if self.recorder.life.gone:
            return
        self._fault(fault)
        self.recorder.life.told = True
        await self._do("signal", signal=int(number))

    async def kill(self) -> None:
        """Nothing of the process runs any more; what it left unsettled comes back."""
        await self._react()
        self._end_lives()
        self._fault("kill")
        await self._do("kill")

    async def pause(self) -> None:
        """The process has no turn, and keeps its connections."""
        await self._react()
        self._fault("pause")
        self._paused = True
        await self._do("pause")

    async def resume(self) -> None:
        """It goes on, unless it stands at a break point: that is not simulated."""
        self._fault("resume")
        self._paused = self.recorder.life.at_break = False
        await self._do("resume")

    async def cancel(self) -> None:
        """Cancel the task that runs the student's function."""
        await self._react()
        self._fault("cancel")
        await self._do("cancel")

    async def weigh(self) -> None:
        """Note how many of the keys that the subject has seen it still holds."""
        await self._do("weigh")

    async def end_source(self) -> None:
        """The source comes to its end once nobody can take anything more from it."""
        await self._react()
        self._fault("end of the source")
        await self._do("end_source")

    async def cut(self) -> None:
        """Take the subject's connection away, and with it what it delivered; it comes back."""
        self._simulated_proxy()
        await self._react()
        self._fault("cut")
        await self._do("cut")
        self.recorder.connections_at_cut = self.recorder.connections

    async def letters_down(self) -> None:
        """Silence between the subject and the dead letters, and only there."""
        await self._react()
        await self._do("called")
        self._fault("letters-down")
        await self._do("letters_down")

    async def letters_up(self) -> None:
        """The dead letters answer again."""
        await self._react()
        self._fault("letters-up")
        await self._do("letters_up")

    def stall(self) -> None:
        """Silence between the queue and what publishes to it; for consumers it is not simulated."""
        self._on_the_way("stall", "a stalled network")

    def slow(self, latency_s: float) -> None:
        """Not simulated."""
        raise NotSimulatedError(f"a network that is slower by {latency_s:g} s")

    def heal(self) -> None:
        """The queue answers again."""
        self._on_the_way("heal", "a network that heals")

    def _on_the_way(self, fault: str, what: str) -> None:
        self._simulated_proxy()
        if not self._setup.publishes:
            raise NotSimulatedError(what)
        self._queue.append(Asked("react", {}))
        self._fault(fault)
        self._queue.append(Asked(fault, {}))

    def _simulated_proxy(self) -> None:
        if not self._setup.proxy:
            raise GraderError("This run has no fault proxy: use exam.start(..., proxy=True).")


def code_of(how: str) -> int:
    """What a parent process would be told: 3 for `status 3`, -15 for `signal SIGTERM`."""
    word, _, what = how.partition(" ")
    return int(what) if word == "status" else -Signals[what]


def _wired(orders: Sequence[Order]) -> list[tuple[Any, ...]]:
    """Orders as they travel to the world."""
    return [(each.id, each.key, each.body.decode("latin-1"), dict(each.headers)) for each in orders]
