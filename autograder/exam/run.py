"""A run: one lane on a broker, one subject process at a time, and every event of both."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from math import inf
from signal import Signals
from typing import TYPE_CHECKING, Any, Self

from autograder.exam import endings
from autograder.exam.consumers import Consumer, alone, shown_with_two
from autograder.exam.engines import Outgoing
from autograder.exam.orders import Match, Order, gate_rule, match_text
from autograder.exam.process import Job, Subject, Zygote, exit_text
from autograder.exam.proxy import FaultProxy, seen_through
from autograder.exam.recorder import Life, Recorder
from autograder.exam.scenario import ScenarioOver
from autograder.exam.setup import Setup
from autograder.exam.stores import Effect, Held
from autograder.exam.waiting import wait_for_answer, wait_for_life, wait_until
from autograder.messaging.adapter import Lane
from autograder.model import BrokerState, Content, Event, GraderError, Holder, Kind, Wait
from autograder.subject import wire
from autograder.subject.effects import amount_of
from autograder.subject.gates import HANDLER, POINTS
from autograder.subject.leased import lease_key

if TYPE_CHECKING:
    from autograder.exam.exam import Exam

LOOK_AGAIN_AFTER_S = 0.1, 0.3, 1.0
CLOSING_S = 10  # more than any adapter needs to close
NOTICE_BEATS = 5  # heartbeats (0.05 s each) in which a process notices a signal that it handles
WEIGHING_BEATS = 20  # heartbeats in which what is kept for a moment is forgotten
PATIENCE_S = 2.0  # in which a broker notices that a process is gone: less than any lease
ANOTHER = f"another consumer {secrets.token_hex(8)}"
"""What the examiner sets a lease to, in the part of another consumer."""


class Run:
    """What a scenario holds in its hand. Made by `Exam.start`."""

    def __init__(self, exam: Exam, setup: Setup) -> None:
        setup.check()
        self._exam = exam
        self._setup = setup
        self.workers: int = setup.options.get("workers", 1)
        self._proxy: FaultProxy | None = None
        self._letters_proxy: FaultProxy | None = None  # the dead letters' connection has its own
        self._lane: Lane | None = None
        self._letters: Lane | None = None
        self._consumers: list[Consumer] = []  # that were started to live together
        self._gates: list[dict[str, Any]] = [{"do": "hold connect"}] * setup.hold_connect
        self._paused = False
        self._stores = exam.stores.open(setup.call) if exam.engine.name != "sim" else None
        self._effects: Counter[Effect] = Counter()
        self._published: dict[str, Order] = {}  # by id
        self._tokens: list[str] = []  # found in leases, in the order they were first seen
        self.recorder = Recorder()

    # --- life cycle -------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._lane = await self._exam.of_broker(self._exam.engine.open_lane("run"))
        if self._setup.dead_letters:
            opening = self._exam.engine.open_letters(self._lane)
            self._letters = await self._exam.of_broker(opening)
        if self._setup.proxy:
            self._proxy = await self._new_proxy()
            if self._letters is not None:
                self._letters_proxy = await self._new_proxy()
        if self._setup.letters:
            await self.put_letters(self._setup.letters)
        if self._stores is not None:
            await self._exam.of_broker(self._stores.prepare())
        await self.restart()
        return self

    async def _new_proxy(self) -> FaultProxy:
        proxy = FaultProxy(self._broker_address(), kafka=self._exam.engine.name == "kafka")
        await proxy.start()
        return proxy

    @property
    def _proxies(self) -> list[FaultProxy]:
        return [each for each in (self._proxy, self._letters_proxy) if each is not None]

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        truncated = kind is not None and not issubclass(kind, ScenarioOver)
        try:
            if not truncated:
                await self._let_it_close()
            over = self.recorder.size
            await self._end_subject()
            events = self.recorder.told_until(over)
            state, found = await self._last_look()
            self._exam.record(self, events + found, state, truncated=truncated)
        finally:
            for proxy in self._proxies:
                await proxy.close()
            if self._stores is not None:
                await self._exam.of_broker(self._stores.drop())
            for lane in self._lanes:
                with suppress(GraderError):  # the names are unguessable: a left-over hurts nobody
                    await self._exam.of_broker(self._exam.engine.drop_lane(lane))

    @property
    def _lanes(self) -> list[Lane]:
        return [each for each in (self._letters, self._lane) if each is not None]

    async def _last_look(self) -> tuple[BrokerState, tuple[Event, ...]]:
        """What the broker says at the end; as events, what lies in the database and among the dead letters."""
        state = await self._state_at_rest()
        before = self.recorder.size
        if self._setup.has_effects:
            if self._stores is not None:
                await self._exam.of_broker(self._stores.settle())
            await self.count_effects()
        if self._setup.has_leases:
            await self.look_at_leases(list(self._published.values()))
        if not self._setup.dead_letters:
            return state, self.recorder.since(before)
        found = await self._read_what_is_left()
        for kind, message in found:
            self._note_letter(kind, message)
        letters = sum(kind is Kind.LETTER_FOUND for kind, _ in found)
        return replace(state, dead_letters=letters), self.recorder.since(before)

    async def _state_at_rest(self) -> BrokerState:
        """What the broker says when nothing is on its way within it any more.

        A message whose delay is over moves from one queue to another, and is in neither meanwhile: on a
        busy machine for longer than an engine looks twice. So a broker that seems to have lost what
        nobody has settled is asked again before it is believed.
        """
        state = await self.broker_state()
        owed = self.recorder.owed()
        for pause_s in LOOK_AGAIN_AFTER_S:
            if state.waiting < 0 or state.waiting + max(state.unsettled, 0) >= owed:
                break
            await asyncio.sleep(pause_s)
            state = await self.broker_state()
        return state

    async def _read_what_is_left(self) -> list[tuple[Kind, Outgoing]]:
        """The dead letters, and what waits in the queue if anything was put back there."""
        engine, found = self._exam.engine, []
        if self._letters is not None:
            letters = await self._exam.of_broker(engine.read(self._letters))
            found += [(Kind.LETTER_FOUND, each) for each in letters]
        if self._setup.publishes:
            waiting = await self._exam.of_broker(engine.read(self.lane))
            found += [(Kind.MESSAGE_FOUND, each) for each in waiting]
        return found

    async def _let_it_close(self) -> None:
        """A subject whose function came back is closing its connection: settlements may be on it."""
        for _, life in self._consumers:
            if life.returned and not life.broken and not life.ended_by_us and not self.paused:
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLOSING_S):
                        await life.exited.wait()

    @property
    def _subject(self) -> Subject | None:
        """The newest process."""
        return self._consumers[-1].subject if self._consumers else None

    @property
    def lane(self) -> Lane:
        """Where this run's messages travel."""
        if self._lane is None:
            raise GraderError("The run is not open: use `async with exam.start(...) as run`.")
        return self._lane

    async def restart(self, *, hash_seed: int = 0, function: str = "", **options: Any) -> None:
        """Start a subject process: the first one, or the next after a kill or an exit.

        It calls what the process before did, or another `function` of the same exercise, with
        `options` of its own. With another `hash_seed`, `hash` of a text is another number there than
        in other processes.
        """
        await self._let_it_close()
        await self._end_subject()
        self._set_up(function, options)
        await self._spawn(self._exam.zygote.with_hash_seed(hash_seed), self.recorder.begin_life())

    async def add_consumer(self) -> None:
        """Start one more process of the same submission beside the one there is, which lives on.

        Both consume from one subscription (a durable, a queue, a group) and share the databases. It
        returns when the new one takes part: a group has shared its partitions out anew by then. From
        then on gates are those of both, `stop` tells both, `until` counts what both do, and `kill` ends
        both; a break point is the newer one's. Raises `GraderError` where nobody can be beside it.
        """
        alone(self._setup, self.recorder)
        life = self.recorder.begin_life(beside=True)
        await self._spawn(self._exam.zygote, life)
        await self._exam.of_broker(wait_for_life(self, lambda life: life.called))

    async def _spawn(self, zygote: Zygote, life: Life) -> None:
        """A process that lives this life."""
        lane = seen_through(self.lane, self._proxy)
        letters = self._letters and seen_through(self._letters, self._letters_proxy)
        proxied = tuple(proxy.port for proxy in self._proxies)
        if zygote is not self._exam.zygote:
            await self._exam.of_broker(asyncio.to_thread(zygote.wait_ready))
        job = Job(
            module=self._exam.workspace(),  # a fresh copy: the process before may have changed its own
            call=self._setup.call,
            engine=self._exam.engine.name,
            lane=lane,
            options=self._setup.options,
            prefetch=self._setup.prefetch,
            ports=(*(proxied or (self._broker_address()[1],)), *self._store_ports()),
            dead_letters=letters,
            names=not all(map(_is_here, self._hosts())),
            stop_first=self._setup.stop_first,
            stores=self._stores.job if self._stores else {},
            orders=tuple(self._gates),
        )

        def on_line(now: float, line: list[Any]) -> None:
            if line[0] == wire.BEAT:
                self.recorder.heartbeat(now, line[1:], life)
            else:
                self.recorder.from_subject(now, life, line)
            self.recorder.changed.set()

        self.recorder.note(Kind.SPAWNED, self._setup.told)
        self._paused = False
        subject = zygote.fork(job, on_line)
        self._consumers.append(Consumer(subject, life))
        subject.gone.add_done_callback(lambda _: self._exited(subject, life))

    def _set_up(self, function: str, options: Mapping[str, Any]) -> None:
        """What the next process is to call. Raises `GraderError` for what it does not take."""
        if not function:
            return
        setup = replace(self._setup, call=self._exam.call_of(function), options=options)
        setup.check()
        if setup.dead_letters != self._setup.dead_letters:
            raise GraderError(f"{setup.call} cannot follow {self._setup.call} in one run.")
        self._setup = setup

    def _store_ports(self) -> tuple[int, ...]:
        return self._stores.ports if self._stores else ()

    def _hosts(self) -> tuple[str, ...]:
        stores = self._stores.hosts if self._stores else ()
        return (self._broker_address()[0], *stores)

    def _broker_address(self) -> tuple[str, int]:
        from autograder.brokers.server import DEFAULT_PORTS, address  # noqa: PLC0415 - no simulated run has one, and its package is slow to import

        return address(self.lane.url, DEFAULT_PORTS.get(self._exam.engine.name, 0))

    def _exited(self, subject: Subject, life: Life) -> None:
        """The subject and all it started are gone: say how, and whether anybody asked for it."""
        self.recorder.note(Kind.EXITED, exit_text(subject.exit_code), life=life)
        sentence = "" if life.broken else endings.unasked(self._setup.call, subject, life)
        if sentence:
            life.broken = True
            self.recorder.note(Kind.BROKEN, sentence, life=life)
        self.recorder.end_life(life)

    async def _end_subject(self) -> None:
        """Make sure that no subject process lives, and that its leases at the broker are over."""
        if not self._consumers:
            return
        for subject, life in self._consumers:
            life.ended_by_us |= not subject.gone.done()
        for subject, _ in self._consumers:
            await subject.end()
        for proxy in self._proxies:
            proxy.cut()  # a stalled one keeps the dead process's connections for the broker
        ended, self._consumers = self._consumers, []
        for subject, life in ended:
            await life.exited.wait()
            self._exam.printed(subject)
            endings.refuse_unstarted(self._setup.call, subject, life)
        for lane in self._lanes:
            await self._exam.of_broker(self._exam.engine.expire(lane))

    # --- messages and gates -----------------------------------------------------------------

    async def publish(self, orders: Sequence[Order]) -> None:
        """Publish, and wait for the broker to confirm each. Raises `GraderError` if it does not."""
        for order in orders:
            self._note_publishing(order)
        keys = {order.id: order.key for order in orders}
        outgoing = [order.outgoing for order in orders]
        publishing = self._exam.engine.publish(self.lane, outgoing)
        for confirmed in await self._exam.of_broker(publishing):
            self.recorder.note(Kind.CONFIRMED, message=confirmed, key=keys[confirmed])

    def _note_publishing(self, order: Order) -> None:
        """What it says is noted where it is asked what became of it."""
        content = ""
        if self._setup.dead_letters:
            content = str(Content.of(order.body, order.headers))
        elif self._setup.has_effects:
            content = f"amount {amount_of(order.body)}"
        self._published[order.id] = order
        self.recorder.note(Kind.PUBLISHED, content, message=order.id, key=order.key)

    async def put_letters(self, orders: Sequence[Order]) -> None:
        """Put letters among the dead ones, as a consumer would have; the broker has confirmed them."""
        if self._letters is None:
            raise GraderError("This run has no dead letters: its function is not given any.")
        outgoing = [order.outgoing for order in orders]
        await self._exam.of_broker(self._exam.engine.publish(self._letters, outgoing))
        for each in outgoing:
            self._note_letter(Kind.LETTER_PUT, each)

    def _note_letter(self, kind: Kind, letter: Outgoing) -> None:
        content = Content.of(letter.body, letter.headers)
        self.recorder.note(kind, str(content), message=letter.id, key=letter.key)

    # --- effects ----------------------------------------------------------------------------

    async def lose_commits(self, *done: bool) -> None:
        """The connection to the database breaks in the middle of the next commits, one for each of these.

        Whoever commits hears `DatabaseGone`, and cannot know whether the server has `done` it.
        """
        await self._order("lose_commits", done=done)

    async def count_effects(self) -> None:
        """Look into the database: an `EFFECT` for every row that was not there the last time.

        Every run with a database ends with such a look, after its last process.
        """
        self.recorder.note(Kind.COUNTED)
        found = Counter(await self._read_effects())
        for effect in (found - self._effects).elements():
            self.recorder.note(Kind.EFFECT, effect[1], message=effect[0])
        self._effects = found

    async def _read_effects(self) -> list[Effect]:
        return await self._exam.of_broker(self._stores.effects()) if self._stores else []

    # --- leases -----------------------------------------------------------------------------

    async def take_leases(self, orders: Sequence[Order]) -> None:
        """Another consumer takes these messages' leases, as if whoever held one had run out of time."""
        for order in orders:
            await self._at_lease("take", order)
            self._fault("lease-taken", order)

    async def free_leases(self, orders: Sequence[Order]) -> None:
        """The other consumer releases them."""
        for order in orders:
            self._fault("lease-freed", order)
            await self._at_lease("free", order)

    async def lose_lease_commands(self, *points: str) -> None:
        """The connection to the leases breaks at the next `take` or `release`, once for each of these.

        A take was not heard by then, a release is done; whoever asked hears `StoreGone` and cannot know.
        """
        await self._order("lose_lease_commands", points=points)

    async def end_leases(self, orders: Sequence[Order]) -> None:
        """The life span of these leases is over; one that has none stays."""
        for order in orders:
            self._fault("lease-over", order)
            await self._at_lease("end", order)

    async def look_at_leases(self, orders: Sequence[Order]) -> None:
        """Note who holds each of these messages' leases. Every run with leases ends with such a look."""
        for order in orders:
            value, left_s = await self._at_lease("look", order)
            holder = Holder(self._number(value), left_s if left_s >= 0 else None)
            self.recorder.note(Kind.LEASE_SEEN, str(holder), message=order.id, key=order.key)

    def _number(self, value: str) -> int:
        """A token as histories tell it: which of those seen so far."""
        if not value or value == ANOTHER:
            return -1 if value else 0
        if value not in self._tokens:
            self._tokens.append(value)
        return self._tokens.index(value) + 1

    async def _at_lease(self, do: str, order: Order) -> Held:
        if self._stores is None:
            raise GraderError("This run has no leases: its function is not given any.")
        return await self._exam.of_broker(self._stores.at_lease(do, lease_key(order.id), ANOTHER))

    # --- gates ------------------------------------------------------------------------------

    async def hold(self, match: Match = None, *, key: str | None = None, at: str = HANDLER) -> None:
        """Make handlers that start from now on wait, for these orders, this key, or all.

        `at="take"` and `at="release"`: commands that take or release a lease, on their way to the server.
        """
        await self._gate("hold", match, key, at)

    async def release(
        self, match: Match = None, *, key: str | None = None, at: str = HANDLER
    ) -> None:
        """Open the gate for these orders, this key, or all; those that wait go on."""
        self.recorder.note(Kind.RELEASED, match_text(match, key))
        await self._gate("release", match, key, at)

    async def let_connect(self) -> None:
        """Let `connect()` go on, and that of every process to come: see `hold_connect` of the start."""
        self._gates.append({"do": "release connect"})
        await self._order("release connect")

    async def _gate(self, do: str, match: Match, key: str | None, at: str) -> None:
        if at not in POINTS:
            raise GraderError(f"There is no gate called {at!r}, but {', '.join(POINTS)}.")
        rule = gate_rule(match, key)
        self._gates.append({"do": do, "match": rule, "at": at})
        await self._order_all(do, match=rule, at=at)

    async def _order_all(self, do: str, **details: Any) -> None:
        """The same of every process."""
        for subject, _ in self._consumers:
            await wait_for_answer(self, subject.order(do, **details))

    async def _order(self, do: str, **details: Any) -> None:
        """Have the newest host do something, if there is one. Ends the scenario if its loop stands still."""
        if self._subject is not None:
            await wait_for_answer(self, self._subject.order(do, **details))

    # --- waiting ----------------------------------------------------------------------------

    async def until(
        self, *, timeout_s: float = 10, within_s: float = inf, **conditions: int | bool
    ) -> None:
        """Wait until all conditions hold; see `autograder.exam.waiting` for their names.

        Time runs out after `timeout_s` without any movement, and `within_s` after the call, for a
        subject that may move for ever. When they cannot come to hold, an `EXPECTED` event says why, and the scenario ends by
        `ScenarioOver`: what happened so far is judged.
        """
        await wait_until(self, conditions, timeout_s=timeout_s, within_s=within_s)

    async def until_still(self, **conditions: int | bool) -> None:
        """Wait until all conditions hold, or the pool stands still behind gates, as it may.

        Whatever else keeps the conditions from holding ends the scenario, as in `until`.
        """
        try:
            await self.until(**conditions)
        except ScenarioOver:
            if self.recorder.last_wait is not Wait.STALLED or not self.recorder.beat.held:
                raise

    def count(self, name: str) -> int:
        """A counter, by the name that `until` uses."""
        return self.recorder.count(name)

    async def broker_state(self) -> BrokerState:
        """What the broker says about this run's messages now."""
        return await self._exam.of_broker(self._exam.engine.state(self.lane))

    async def ask_broker(self) -> None:
        """Note what the broker says of the messages, now that a process is gone.

        It gets a moment to notice that: what a dead process has not given back by then waits for a
        lease to run out.
        """
        end = time.monotonic() + PATIENCE_S
        while True:
            state = await self._exam.of_broker(self._exam.engine.at_rest(self.lane))
            if (state.unsettled <= 0 and state.consumers <= 0) or time.monotonic() > end:
                break
            await asyncio.sleep(0.2)
        self._note_broker(state)

    def _note_broker(self, state: BrokerState) -> None:
        words = "waiting", "unsettled", "consumers"
        self.recorder.note(
            Kind.BROKER, " ".join(f"{word}={getattr(state, word)}" for word in words)
        )

    @property
    def alive(self) -> bool:
        """Whether the subject's process, or anything it started, still exists."""
        return self._subject is not None and not self._subject.gone.done()

    @property
    def paused(self) -> bool:
        """Whether the subject stands still because the scenario stopped it."""
        return self._paused or self.recorder.life.at_break

    # --- faults -----------------------------------------------------------------------------

    async def stop(self) -> None:
        """SIGTERM: the host sets the student's stop event. Returns when a take would be new work."""
        for subject, life in self._consumers:
            if not self.recorder.awaits_stop(life):
                continue
            await wait_for_life(
                self, lambda life: life.called, life
            )  # before, nobody would hear it
            self.recorder.note(Kind.FAULT, "terminate", life=life)
            subject.signal(Signals.SIGTERM)
            await wait_for_life(self, lambda life: life.stopped, life)

    async def terminate(self) -> None:
        """SIGTERM, to a process that owns its signals; returns when a take would be new work."""
        await self._tell_to_end("terminate", Signals.SIGTERM)

    async def interrupt(self) -> None:
        """SIGINT, as Ctrl-C sends it; the same."""
        await self._tell_to_end("interrupt", Signals.SIGINT)

    async def _tell_to_end(self, fault: str, number: Signals) -> None:
        """Send a signal, and wait until the process is gone, or has had turns enough to notice it.

        Nobody but the process itself knows when its handler has run. What the keeper has sent is
        there, though, and whatever a loop can do about it is done in its next few turns.
        """
        life, subject = self.recorder.life, self._subject
        await wait_for_life(self, lambda life: life.called)
        if subject is None or life.exited.is_set():
            return
        self._fault(fault)
        life.told = True
        await subject.deliver(number)
        await self._order("tell")
        enough = life.beats + NOTICE_BEATS
        await wait_for_life(self, lambda life: life.beats >= enough)
        if not (life.returned or life.exited.is_set() or life.stopped):
            life.stopped = True
            self.recorder.note(Kind.STOP_IN_FORCE)

    async def kill(self) -> None:
        """SIGKILL to the whole process group; returns when nothing of it is left."""
        self.recorder.life.ended_by_us = True
        self._fault("kill")
        await self._end_subject()

    async def pause(self) -> None:
        """SIGSTOP: the process exists, answers nothing, and keeps its connections."""
        self._fault("pause")
        self._paused = True
        self._send(Signals.SIGSTOP)

    async def resume(self) -> None:
        """SIGCONT, after `pause` or at a break point. Raises `GraderError` at any other time."""
        if not self.paused:
            raise GraderError("There is nothing to resume: the subject does not stand still.")
        self._fault("resume")
        self._paused = self.recorder.life.at_break = False
        self.recorder.beat.at = self.recorder.moved_at = time.monotonic()
        self._send(Signals.SIGCONT)

    async def cancel(self) -> None:
        """Cancel the task that runs the student's function, as a caller with a timeout would."""
        self._fault("cancel")
        await self._order("cancel")

    async def end_source(self) -> None:
        """The source comes to its end, as no broker's does: in the simulation only."""
        raise GraderError("No broker ends a source: mark this scenario with @simulated_only.")

    async def break_at(self, kind: str, count: int) -> None:
        """Freeze the process right after the `count`-th event of this kind from now on."""
        await self._order("break", kind=str(Kind(kind)), count=count)

    async def weigh(self) -> None:
        """Note how many of the keys that the subject has seen it still holds, a second from now.

        Its own heartbeats count the second: what a pool keeps for a moment, it has had turns to forget.
        """
        enough = self.recorder.life.beats + WEIGHING_BEATS
        await wait_for_life(self, lambda life: life.beats >= enough)
        await self._order("weigh")

    async def cut(self) -> None:
        """Take the subject's connection away, and with it what it delivered; it may come back.

        TCP is reset, new connections are accepted, and the broker knows at once that its consumer
        is gone: a member of a Kafka group would survive a mere reset. Wait for `reconnected=1`.
        """
        proxy = self._through()
        await self._order("tell")  # how often it had connected before
        proxy.cut()
        self._fault("cut")
        self.recorder.connections_at_cut = self.recorder.beat.connections
        await self._exam.of_broker(self._exam.engine.disown(self.lane))

    def stall(self) -> None:
        """No byte passes any more between subject and broker, in silence."""
        self._through().stall()
        self._fault("stall")

    def slow(self, latency_s: float) -> None:
        """Every chunk between subject and broker takes this much longer."""
        self._through().slow(latency_s)
        self._fault(f"slow {latency_s:g} s")

    def heal(self) -> None:
        """End stall and slowness."""
        self._through().heal()
        self._fault("heal")

    async def letters_down(self) -> None:
        """No byte passes between the subject and the dead letters, in silence; all else goes on."""
        if self._letters_proxy is None:
            raise GraderError("There is no proxy before dead letters: exam.start(..., proxy=True).")
        await wait_for_life(self, lambda life: life.called)  # it has to get through to connect
        self._letters_proxy.stall()
        self._fault("letters-down")

    async def letters_up(self) -> None:
        """The dead letters answer again."""
        if self._letters_proxy is not None:
            self._letters_proxy.heal()
        self._fault("letters-up")

    def _through(self) -> FaultProxy:
        if self._proxy is None:
            raise GraderError("This run has no fault proxy: use exam.start(..., proxy=True).")
        return self._proxy

    def _fault(self, detail: str, about: Order | None = None) -> None:
        shown_with_two(self.recorder, detail)
        if about is None:
            self.recorder.note(Kind.FAULT, detail)
        else:
            self.recorder.note(Kind.FAULT, detail, message=about.id, key=about.key)

    def _send(self, number: Signals) -> None:
        if self._subject is not None:
            self._subject.signal(number)

    async def changed(self, within_s: float) -> None:
        """Return when anything happened, or after this time."""
        self.recorder.changed.clear()
        # Not wait_for: on 3.11 it can swallow the cancel of the scenario's own time limit.
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.recorder.changed.wait()


def _is_here(host: str) -> bool:
    """Whether a broker at this host has no name that would have to be looked up, its own included."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"
