"""A world: one run's clock, broker and processes, taken a step at a time by the examiner.

The examiner's scenario lives in another process. Between two of its orders nothing moves here; an
order moves the world until what was asked for has come about, or until it is clear that it never
will. So a scenario written for real brokers runs unchanged, and the same seed gives the same history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from autograder.model import Kind, Wait
from autograder.sim.broker import SimBroker
from autograder.sim.clock import Appointment, Clock
from autograder.sim.host import Process
from autograder.sim.loop import Deadlock, Endless, NotSimulated
from autograder.sim.schedule import Schedule
from autograder.sim.signals import Signals as ProcessSignals
from autograder.sim.stores import SimStores
from autograder.sim.telling import ending, same_everywhere, stored
from autograder.sim.timing import Timing
from autograder.sim.walls import Walls
from autograder.subject.tally import Life, Tally

STILL_S = 2.0
"""Virtual seconds without any event after which a pool that polls counts as standing still."""

NOTICED_S = 0.25
"""Virtual seconds in which a process notices a signal that it handles: as on a real broker."""

CLOSING_S = 10.0
"""Virtual seconds that a process has to close its connection in."""

WEIGHING_S = 1.0
"""Virtual seconds in which a log commits what is settled, and a pool forgets what it keeps for a moment."""

A_LITTLE_S = 1e-6
"""Virtual seconds by which a time is over."""

CUT = "cut"
"""Detail of a fault that the world adds by itself: a connection that breaks."""

LETTER, MESSAGE = str(Kind.LETTER_FOUND), str(Kind.MESSAGE_FOUND)
"""What is found at the end of a run, and where."""

CONFIRMED, EXITED = str(Kind.CONFIRMED), str(Kind.EXITED)
"""Lines that the examiner notes as its own, beside the subject's events."""

RAISED = str(Kind.RAISED)


@dataclass
class Stop:
    """Why the world stands still: it was reached, nothing can move, or time is up."""

    reached: bool = False
    dead_end: bool = False


class World:
    """One run. `job` is what a real subject would be started with."""

    def __init__(self, job: dict[str, Any], schedule: Schedule, walls: Walls) -> None:
        self.clock = Clock()
        self.tally = Tally()
        self.events: list[list[Any]] = []  # not yet told to the examiner
        self.refused = ""
        self._job = job
        self._timing = Timing(schedule)
        self._broker = SimBroker(self.clock, schedule)
        self._lane = self._broker.lane("run")
        self._living: list[tuple[Process, Life]] = []  # the newest comes last
        self._dead: list[Process] = []
        self._paused = False
        self._moved_at = 0.0
        self._changed = True
        self._stores = SimStores(job, self.clock, self._timing, self._refuse)
        walls.surround(self.clock, self._refuse, seed=schedule.seed, signals=self._signals)

    # -- orders

    def obey(self, order: Mapping[str, Any]) -> Any:
        """Carry out one order; returns what there is to answer."""
        method: Callable[[Mapping[str, Any]], Any] = getattr(self, f"_do_{order['do']}")
        return method(order)

    def _do_react(self, _: Mapping[str, Any]) -> None:
        """The time a scenario takes between what it saw and what it does next."""
        self._let_pass(self._timing.react())

    def _do_spawn(self, order: Mapping[str, Any]) -> None:
        """A new process, in place of those there were, or beside one."""
        beside = order["beside"]
        if not beside:
            self._end_processes()
        life = Life(self.tally.life.number + 1, self.tally.before(beside=beside))
        self.tally.begin(life, beside=beside)
        ordered = ("orders", "stop_first", "call", "options", "hash_seed")
        job = self._job | {name: order[name] for name in ordered}

        def tell(
            kind: Kind, message: str, key: str, delivery: int, attempt: int, detail: str
        ) -> None:
            detail = same_everywhere(str(detail))
            self._tell([str(kind), message, key, delivery, attempt, detail], life)
            number = self.tally.numbered(life, delivery)
            self.tally.tell(life, kind, message, number, detail)

        self._paused = False
        process = Process(self.clock, self._broker, self._lane, self._stores, job, tell)
        self._living.append((process, life))
        process.start()
        self._notice_the_end()

    @property
    def _process(self) -> Process | None:
        """The newest."""
        return self._living[-1][0] if self._living else None

    def _do_publish(self, order: Mapping[str, Any]) -> None:
        """Publish, and wait for the confirmations."""
        messages = stored(order)
        left = len(messages)

        def confirmed(name: str) -> None:
            nonlocal left
            left -= 1
            self._tell([CONFIRMED, name, "", 0, 0, ""])

        self._broker.send(self._lane, messages, confirmed)
        self._run(lambda: not left)

    def _do_until(self, order: Mapping[str, Any]) -> str:
        """Move until all conditions hold, or it is clear why they will not.

        After `cut_after_s`, if it is not None, the connection breaks by itself.
        """
        conditions, timeout_s = order["conditions"], order["timeout_s"]
        self._moved_at = max(self._moved_at, self.clock.now)
        why: Wait | None = None
        waiting = True

        def decided() -> bool:
            nonlocal why
            if "reconnected" in conditions:
                self._sync()
            if self._changed and self.tally.holds(conditions):
                why = Wait.MET
            else:
                why = self._why_not(conditions, timeout_s, dead_end=False)
            self._changed = False
            return why is not None

        self._sync()
        self._changed = True
        if "exited" in conditions:
            self._look_again_after(timeout_s, lambda: waiting)
        breaking = self._break_after(order["cut_after_s"])
        stop = self._run(decided, within_s=None)
        waiting = False
        if breaking is not None:
            breaking.cancel()
        if why is None and stop.dead_end and not decided():
            why = self._why_not(conditions, timeout_s, dead_end=True) or Wait.LATE
        return str(why or Wait.LATE)

    def _look_again_after(self, timeout_s: float, wanted: Callable[[], bool]) -> None:
        """Have time stop when nothing has moved for so long: it would go on to the next deadline."""

        def look() -> None:
            if wanted():
                self._look_again_after(timeout_s, wanted)

        still_since = max(self._moved_at, self.clock.now - timeout_s)
        self.clock.call_at(still_since + timeout_s + A_LITTLE_S, look)

    def _break_after(self, seconds: float | None) -> Appointment | None:
        """Have the connection break by itself after this time."""

        def it_breaks() -> None:
            if self._runs and self.figures()[-1]:
                self._tell([str(Kind.FAULT), "", "", 0, 0, CUT])
                self._broker.cut(self._lane)

        return None if seconds is None else self.clock.call_later(seconds, it_breaks)

    def _do_order(self, order: Mapping[str, Any]) -> None:
        """What the host itself carries out: gates and break points."""
        for process, _ in self._living if "all" in order else self._living[-1:]:
            process.host.obey(dict(order["order"]))

    def _do_weigh(self, _: Mapping[str, Any]) -> None:
        """Have the process looked through, once the broker has forgotten what is over."""
        self._let_pass(WEIGHING_S)
        if self._process is not None:
            self._process.host.obey({"do": "weigh"})

    def _do_stop(self, _: Mapping[str, Any]) -> None:
        """SIGTERM, and on until the stop is in force."""
        for process, life in self._living:
            if self.tally.awaits_stop(life):
                self._soon(lambda process: process.host.ask_to_stop(), process)
        self._run(lambda: all(each.stopped or each.returned for each in self.tally.lives))

    def _do_signal(self, order: Mapping[str, Any]) -> None:
        """A signal, and on until a program that handles it has noticed, or its process is gone."""

        def deliver(process: Process) -> None:
            if process.signals is not None:
                process.signals.deliver(order["signal"])

        life = self.tally.life
        life.told = True
        self._soon(deliver)
        self._let_pass(NOTICED_S, unless=lambda: life.returned or life.gone)
        if self._process is not None and not (life.returned or life.gone or life.stopped):
            self._tell([str(Kind.STOP_IN_FORCE), "", "", 0, 0, ""])
            self.tally.tell(life, Kind.STOP_IN_FORCE, "", 0, "")

    def _do_called(self, _: Mapping[str, Any]) -> None:
        """On until the student's function was called."""
        self._run(lambda: self.tally.life.called)

    def _do_cancel(self, _: Mapping[str, Any]) -> None:
        """Cancel the student's call."""
        self._soon(lambda process: process.host.obey({"do": "cancel"}))

    def _do_kill(self, _: Mapping[str, Any]) -> None:
        """SIGKILL."""
        self._end_processes()

    def _do_close(self, _: Mapping[str, Any]) -> None:
        """Let a process whose function came back close its connection."""
        self._run(lambda: False, within_s=CLOSING_S)

    def _do_pause(self, _: Mapping[str, Any]) -> None:
        """SIGSTOP."""
        self._paused = True

    def _do_resume(self, _: Mapping[str, Any]) -> None:
        """SIGCONT. What stands still in the middle of a step cannot go on here."""
        if self._process is not None and self._process.frozen:
            self._remember_refusal("going on after a break point")
        self._paused = False
        self._moved_at = self.clock.now

    def _do_cut(self, _: Mapping[str, Any]) -> None:
        """Break the subject's connection."""
        self._sync()
        self.tally.connections_at_cut = self.tally.connections
        self._broker.cut(self._lane)

    def _do_end_source(self, _: Mapping[str, Any]) -> None:
        """The source comes to its end: what is left in it can be taken no more."""

        def end(process: Process) -> None:
            if process.source is not None:
                process.source.buffer.end()

        self._soon(end)

    def _do_state(self, _: Mapping[str, Any]) -> list[int]:
        """The broker's counts."""
        state = self._broker.channel(self._lane).state()
        return [
            state.waiting, state.unsettled, state.settled, state.redelivered, state.consumers
        ]  # fmt: skip

    def _do_letters_down(self, _: Mapping[str, Any]) -> None:
        """Silence on the connection to the dead letters."""
        self._broker.letters(self._lane).fall_silent()

    def _do_letters_up(self, _: Mapping[str, Any]) -> None:
        """It can be heard again."""
        self._broker.letters(self._lane).heal()

    def _do_stall(self, _: Mapping[str, Any]) -> None:
        """Silence on the way of what the process publishes."""
        self._broker.way(self._lane).fall_silent()

    def _do_heal(self, _: Mapping[str, Any]) -> None:
        """It can be heard again."""
        self._broker.way(self._lane).heal()

    def _do_put_letters(self, order: Mapping[str, Any]) -> None:
        """Letters of the examiner's."""
        self._broker.letters(self._lane).waiting.extend(stored(order))

    def _do_read(self, _: Mapping[str, Any]) -> list[list[Any]]:
        """What lies among the dead letters, and what waits in the channel, at the end."""
        letters = self._broker.letters(self._lane).all()
        return [
            [where, each.id, each.key, each.body.decode("latin-1"), dict(each.headers)]
            for where, found in (
                (LETTER, letters),
                (MESSAGE, self._broker.channel(self._lane).waiting_messages()),
            )
            for each in found
        ]

    def _do_effects(self, _: Mapping[str, Any]) -> list[tuple[str, str]]:
        """What is committed in the database."""
        return self._stores.effects()

    def _do_lease(self, order: Mapping[str, Any]) -> None:
        """The examiner's hand on a lease, in the part of another consumer."""
        self._stores.at_lease(order["what"], order["key"], order["value"])

    def _do_look(self, order: Mapping[str, Any]) -> tuple[str, float]:
        """What a lease is set to, and how many seconds it has left."""
        return self._stores.lease_now(order["key"])

    def end(self) -> None:
        """The run is over: throw the processes away."""
        self._end_processes()
        for process in self._dead:
            process.bury()
        self._dead.clear()
        self._stores.close()

    # -- moving

    def _run(self, done: Callable[[], bool], within_s: float | None = None) -> Stop:
        """Move until `done`, a dead end, or (virtual) time is up. Looks after every single step."""
        stop, end = Stop(), None if within_s is None else self.clock.now + within_s

        def look() -> bool:
            self._notice_the_end()
            stop.reached = done()
            over = end is not None and self.clock.now >= end
            return stop.reached or over or bool(self.refused) or not self._runs

        if not look():
            self._turn(look, stop)
        while not (stop.reached or stop.dead_end or self.refused):
            if self._runs:
                if end is not None and self.clock.now >= end:
                    break
                self._turn(look, stop)
                continue
            # nobody is there to run: only the broker's time goes by
            if (end is not None and self.clock.now >= end) or not self.clock.jump():
                stop.dead_end = True
                stop.reached = done()
                break
            self.clock.call_due()
            stop.reached = done()
        return stop

    @property
    def _running(self) -> list[Process]:
        """Whose loop can have a turn."""
        if self._paused:
            return []
        return [each for each, _ in self._living if not (each.frozen or each.status is not None)]

    @property
    def _runs(self) -> bool:
        return not self._paused and any(  # no list: it is asked after every step
            process.status is None and not process.frozen for process, _ in self._living
        )

    def _turn(self, look: Callable[[], bool], stop: Stop) -> None:
        """Run a process's loop until somebody says stop, or it cannot go on; of two, each in turn."""
        running = self._running
        if len(running) == 1:
            running[0].loop.takes_turns = False
            self._let_run(running[0], look, stop)
            return
        idle = not any(each.loop.has_work for each in running)
        if idle and not self.clock.jump():
            stop.dead_end = True
            return
        for process in running:
            process.loop.takes_turns = True
            self._let_run(process, look, stop)
            if stop.reached or self.refused:
                return

    def _let_run(self, process: Process, look: Callable[[], bool], stop: Stop) -> None:
        process.loop.after_step = look
        try:
            process.loop.run_forever()
        except (Deadlock, Endless):
            stop.dead_end = True
        except BaseException as error:  # noqa: BLE001 - whatever a student's task lets out of the loop
            if not process.frozen:
                process.broke_down(error)
            look()

    def _let_pass(self, seconds: float, unless: Callable[[], bool] = lambda: False) -> None:
        if seconds:
            over = False

            def pass_over() -> None:
                nonlocal over
                over = True

            self.clock.call_later(seconds, pass_over)
            self._run(lambda: over or unless())

    def _soon(self, do: Callable[[Process], None], process: Process | None = None) -> None:
        """Have something done by the newest process's own loop, or this one's, in its next turn."""
        process = process or self._process
        if process is None or process.status is not None:
            return
        done = False

        def it() -> None:
            nonlocal done
            done = True
            do(process)

        process.loop.call_soon(it)
        self._run(lambda: done)

    # -- watching

    def _tell(self, line: list[Any], life: Life | None = None) -> None:
        self.events.append([self.clock.now, (life or self.tally.life).number, *line])
        if line[0] != RAISED:  # a loop that only fails moves nothing
            self._moved_at = self.clock.now
        self._changed = True

    def _sync(self) -> None:
        """Take note of how often the source has connected."""
        connections = self.figures()[-1]
        if connections != self.tally.connections:
            self.tally.connections = connections
            self._changed = True

    def _signals(self) -> ProcessSignals | None:
        """Those of the process that has its turn, if they are its own."""
        return self._process.signals if self._process is not None else None

    def figures(self) -> list[int]:
        """What a heartbeat would say now."""
        if self._process is None or self._process.status is not None:
            return [0, 0, 0, 0, 0, self.tally.connections]
        return self._process.host.figures()

    def _why_not(
        self, conditions: Mapping[str, int | bool], timeout_s: float, *, dead_end: bool
    ) -> Wait | None:
        """The reason to give up, or None to go on: the examiner's rules for real brokers."""
        tally, life = self.tally, self.tally.life
        if tally.are_over(wanted="exited" in conditions):
            return Wait.ENDED
        if tally.is_storm:
            return Wait.STORM
        still_s = self.clock.now - self._moved_at
        if "exited" in conditions and life.told and "returned" not in conditions:
            # it has a deadline of its own to keep: only time tells that it does not
            if not dead_end and still_s <= timeout_s:
                return None
            busy, held, settling = self.figures()[2:5]
            return Wait.LATE if busy != held or settling else Wait.STALLED
        if not dead_end and still_s <= min(STILL_S, timeout_s):
            return None
        late = Wait.LATE if dead_end or still_s > timeout_s else None
        if self._paused or life.at_break or not life.called or "connecting" in conditions:
            return late
        return self._standstill(conditions) or late

    def _standstill(self, conditions: Mapping[str, int | bool]) -> Wait | None:
        """What kind of standing still this is, after a while without events; None for none."""
        buffered, in_hand, busy, held, settling, _ = self.figures()
        if busy != held or settling:
            return None
        ending = "returned" in conditions or "exited" in conditions
        if (buffered or in_hand or "returned" in conditions) and "reconnected" not in conditions:
            return Wait.STALLED
        if in_hand or buffered or ending:
            return None
        state = self._broker.channel(self._lane).state()
        return Wait.DRAINED if state.waiting <= 0 and state.unsettled <= 0 else None

    def _notice_the_end(self) -> None:
        """When the process has ended by itself, the broker loses its consumer, and all is told."""
        for process, life in self._living:
            if life.gone:
                continue
            process.look()
            self.refused = self.refused or process.loop.refused
            if process.status is not None:
                self._bring_to_an_end(process, life, ending(process.status))

    def _end_processes(self) -> None:
        """Make sure that no process lives; whatever they left unsettled comes back."""
        if not self._living:
            return
        for process, life in self._living:
            if not life.gone:
                self._bring_to_an_end(process, life, "signal SIGKILL")
        self._living = []
        self._paused = False
        self._broker.channel(self._lane).expire()

    def _bring_to_an_end(self, process: Process, life: Life, how: str) -> None:
        process.kill()
        self._dead.append(process)
        self.tally.end(life)
        self._tell([EXITED, "", "", 0, 0, how], life)

    # -- what is not there

    def _refuse(self, what: str) -> NoReturn:
        self._remember_refusal(what)
        raise NotSimulated(
            f"The simulation has no {what}: this program is then graded on a real broker only."
        )

    def _remember_refusal(self, what: str) -> None:
        self.refused = self.refused or what
