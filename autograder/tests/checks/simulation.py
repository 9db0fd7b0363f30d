"""A simulated pool on a simulated broker: random correct histories, and one slip at a time.

It is not the examiner's engine, only a source of histories: at every step one of the enabled
actions is chosen at random, so that all interleavings of takes, handlers and settlements occur.
A slip is a mistake of the pool's; `slipped` tells whether it came to matter in this run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from autograder.model import BrokerState, Event, History, Kind

RIGHT_CALL = {"": Kind.ACK, "permanent": Kind.GIVE_UP}  # everything else is given back


@dataclass(frozen=True)
class Plan:
    """What happens in one run. `failures` lists, per message, how its tries fail before one works."""

    workers: int
    failures: tuple[tuple[str, ...], ...]
    script: tuple[str, ...]
    window: int
    seed: int
    counters: bool = True
    trouble: float = 0.0  # probability of a failed settlement, and of a repeated delivery
    slip: str = ""


@dataclass(eq=False)
class Delivery:
    number: int
    message: str
    attempt: int
    state: str = "taken"  # taken, running, ended, calling
    outcome: str = ""  # how the handler failed; empty: it finished
    call: Kind = Kind.ACK


@dataclass
class Sim:
    plan: Plan
    events: list[Event] = field(default_factory=list)
    queue: list[tuple[str, int]] = field(default_factory=list)
    in_hand: list[Delivery] = field(default_factory=list)
    slipped: bool = False

    def __post_init__(self) -> None:
        self.random = random.Random(self.plan.seed)  # noqa: S311 - a seeded run, no secret
        self.now, self.process, self.deliveries = 0.0, 0, 0
        self.stopping = self.over = self.stale = False
        self.held = 0  # handlers at a gate
        self.lost_slots = 0
        self.failures = {
            f"order-{number:04}": list(how) for number, how in enumerate(self.plan.failures)
        }

    # --- telling ----------------------------------------------------------------------------

    def say(
        self, kind: Kind, about: Delivery | None = None, detail: str = "", message: str = ""
    ) -> None:
        self.now += self.random.choice((0.0, 0.0, 0.001, 0.02))  # many events share their time
        fields = (about.message, "", about.number, about.attempt) if about else (message, "", 0, 0)
        self.events.append(Event(self.now, kind, *fields, self.process, detail))

    def slips(self, *slips: str) -> bool:
        """Whether the pool has this slip; asking means that it matters now."""
        if self.plan.slip in slips:
            self.slipped = True
            return True
        return False

    def figures(self) -> str:
        buffered, in_hand = len(self.queue), len(self.in_hand)
        return f"buffered={buffered} in_hand={in_hand} busy={self.busy} held={self.held}"

    @property
    def busy(self) -> int:
        return sum(each.state == "running" for each in self.in_hand)

    # --- what a pool does -------------------------------------------------------------------

    def actions(self, *, ends: bool, takes: bool) -> list[Callable[[], None]]:
        plan, free = self.plan, self._free_slots()
        found: list[Callable[[], None]] = []
        room = len(self.in_hand) < plan.window
        if plan.slip == "batch" and any(each.state != "taken" for each in self.in_hand):
            room = False  # it takes no more until the whole batch is done
        if takes and self.queue and room and not self.over:
            found.append(self.take)
        for each in self.in_hand:
            if each.state == "taken" and free > 0:
                found.append(lambda each=each: self.start(each))
            elif each.state == "running" and ends:
                found.append(lambda each=each: self.end(each))
            elif each.state == "ended":
                found.append(lambda each=each: self.call(each))
            elif each.state == "calling":
                found.append(lambda each=each: self.settle(each))
        return found

    def _free_slots(self) -> int:
        slots = self.plan.workers - self.lost_slots
        if self.plan.slip == "slots":
            slots -= 1
        if self.plan.slip == "unbounded":
            slots = len(self.in_hand)
        return slots - self.busy

    def take(self) -> None:
        message, attempt = self.queue.pop(0)
        self.deliveries += 1
        each = Delivery(self.deliveries, message, attempt)
        self.in_hand.append(each)
        self.say(Kind.TAKEN, each)
        if len(self.in_hand) > 2 * self.plan.workers + 2:
            self.slips("window")
        if self.plan.slip == "swallow" and not self.slipped:
            self.slipped = True
            each.state = "swallowed"

    def start(self, each: Delivery) -> None:
        each.state = "running"
        self.say(Kind.STARTED, each)
        if self.busy > self.plan.workers:
            self.slips("unbounded")

    def end(self, each: Delivery) -> None:
        each.state = "ended"
        ways = self.failures[each.message]
        each.outcome = ways.pop(0) if ways else ""
        if not each.outcome:
            self.say(Kind.FINISHED, each)
            return
        self.say(Kind.FAILED, each, each.outcome)
        if self.plan.slip == "shrink":  # it matters when the pool stands
            self.lost_slots += 1
        if self.slips("forget the failed"):
            each.state = "forgotten"
        if self.plan.slip in {"cancel the others", "task group"} and self.busy:
            self.slipped = True
            for other in [o for o in self.in_hand if o.state == "running"]:
                self.say(Kind.CANCELLED, other)
                other.state, other.outcome = "ended", "cancelled from outside"
        if self.slips("task group"):
            self.say(Kind.RUN_RAISED, detail="ExceptionGroup: unhandled errors in a TaskGroup")
            self.exit("status 0")

    def call(self, each: Delivery) -> None:
        each.call = RIGHT_CALL.get(each.outcome, Kind.REQUEUE)
        failed = each.outcome not in {"", "permanent", "cancelled from outside"}
        if failed and self.slips("ack the failed"):
            each.call = Kind.ACK
        if failed and self.slips("give up the failed"):
            each.call = Kind.GIVE_UP
        if each.outcome == "permanent" and self.slips("requeue the permanent"):
            each.call = Kind.REQUEUE
        if each.outcome == "permanent" and self.slips("ack the permanent"):
            each.call = Kind.ACK
        self.say(each.call, each)
        each.state = "calling"

    def settle(self, each: Delivery) -> None:
        self.in_hand.remove(each)
        if self.stale or self.random.random() < self.plan.trouble:
            self.say(Kind.SETTLE_FAILED, each)
            self.give_back(each)
            if self.slips("a lost connection ends the pool"):
                self.say(Kind.RUN_RAISED, detail="SettleFailed: the connection is gone")
                self.exit("status 0")
            return
        self.say(Kind.SETTLED, each)
        if self.slips("settle twice"):
            self.say(Kind.SETTLED_TWICE, each, "ack")
        if each.call is Kind.REQUEUE:
            self.give_back(each)
        elif self.random.random() < self.plan.trouble:
            self.give_back(each)  # the broker promises at least once, and keeps that promise

    def give_back(self, each: Delivery) -> None:
        place = self.random.choice((0, len(self.queue)))
        self.queue.insert(place, (each.message, each.attempt + 1))

    # --- what a scenario does ---------------------------------------------------------------

    def run(self) -> History:
        for step in self.plan.script:
            if self.over and step not in {"restart", "stop_first"}:
                continue
            getattr(self, "do_" + step)()
        if not self.over:
            self.exit("signal SIGKILL")
        known = (len(self.queue), 0) if self.plan.counters else (-1, -1)
        return History(tuple(self.events), self.plan.workers, broker=BrokerState(*known))

    def step(self, *, ends: bool = True, takes: bool = True) -> bool:
        actions = self.actions(ends=ends, takes=takes and not self.stopping)
        if not actions or self.over:
            return False
        self.random.choice(actions)()
        return True

    def do_publish(self) -> None:
        ids = list(self.failures)
        for message in ids:
            self.say(Kind.PUBLISHED, message=message)
        for message in ids:
            self.say(Kind.CONFIRMED, message=message)
            self.queue.append((message, 1))

    def do_publish_unconfirmed(self) -> None:
        self.failures["order-unconfirmed"] = []
        self.say(Kind.PUBLISHED, message="order-unconfirmed")
        if self.random.random() < 0.5:
            self.queue.append(("order-unconfirmed", 1))

    def do_begin(self) -> None:
        self.process += 1
        self.lost_slots = 0
        self.say(Kind.SPAWNED)
        self.say(Kind.RUN_STARTED)

    def do_work(self) -> None:
        for _ in range(self.random.randrange(3, 40)):
            self.step()

    def do_probe(self) -> None:
        """Hold every handler and wait until all workers are busy, if there is work for them."""
        startable = len(self.queue) + sum(each.state == "taken" for each in self.in_hand)
        if self.busy + startable < self.plan.workers:
            return
        while self.step(ends=False):
            pass
        self.held = self.busy
        self._expect(f"running={self.plan.workers}", self.busy, self.busy == self.plan.workers)
        self.held = 0

    def do_release_one(self) -> None:
        running = [each for each in self.in_hand if each.state == "running"]
        if running:
            self.say(Kind.RELEASED, detail="1 message")
            self.end(self.random.choice(running))

    def do_finish(self) -> None:
        """Work until every message is settled."""
        while self.step():
            pass
        left = len(self.queue) + len(self.in_hand)
        total = len(self.failures)
        self._expect(f"settled={total}", total - left, not left)

    def do_late(self) -> None:
        self.say(Kind.EXPECTED, detail=f"late settled=99 seen=3 {self.figures()}")

    def _expect(self, condition: str, seen: int, met: bool) -> None:
        if self.over:
            return
        word = "met" if met else "stalled"
        self.say(Kind.EXPECTED, detail=f"{word} {condition} seen={seen} {self.figures()}")
        if not met:
            if self.plan.slip in {"slots", "batch", "shrink"}:
                self.slipped = True
            self.exit("signal SIGKILL")

    def exit(self, how: str) -> None:
        self.say(Kind.EXITED, detail=how)
        for each in self.in_hand:
            settled = any(e.delivery == each.number and e.kind is Kind.SETTLED for e in self.events)
            taken_by_broker = each.state == "calling" and each.call is not Kind.REQUEUE
            if not settled and not (taken_by_broker and self.random.random() < 0.5):
                self.give_back(each)
        self.in_hand.clear()
        self.over = True

    def do_kill(self) -> None:
        self.say(Kind.FAULT, detail="kill")
        if self.random.random() < 0.3:
            self.step()  # an event that was on its way
        self.exit("signal SIGKILL")

    def do_die_at_work(self) -> None:
        self.say(Kind.FAULT, detail="died at work")
        self.exit("status 42")

    def do_restart(self) -> None:
        self.over = self.stopping = False
        self.do_begin()

    def do_cut(self) -> None:
        self.say(Kind.FAULT, detail="cut")
        self.stale = True
        stale = list(self.in_hand)
        while any(each in self.in_hand for each in stale):
            if not self.step(takes=False):
                break
        self.stale = False

    def do_cancel(self) -> None:
        self.say(Kind.FAULT, detail="cancel")
        if self.random.random() < 0.3:
            self.step(takes=False)
        for each in list(self.in_hand):
            if each.state == "running":
                self.say(Kind.CANCELLED, each)
                if self.slips("settle after cancel"):
                    self.say(self.random.choice((Kind.ACK, Kind.GIVE_UP, Kind.REQUEUE)), each)
                    self.say(Kind.SETTLED, each)
        if self.slips("swallow the cancel"):
            self.say(Kind.EXPECTED, detail=f"stalled returned=1 seen=0 {self.figures()}")
            self.exit("signal SIGKILL")
            return
        left = "; left behind: worker-1, Task-7" if self.slips("leave tasks when cancelled") else ""
        self.say(Kind.RUN_RAISED, detail=f"CancelledError{left}")
        self.exit("status 0")

    def do_stop_first(self) -> None:
        self.process, self.over, self.lost_slots = self.process + 1, False, 0
        self.say(Kind.SPAWNED)
        self.say(Kind.STOP_SET)
        self.say(Kind.RUN_STARTED)
        self.say(Kind.STOP_IN_FORCE)
        self.stopping = True
        self._drain()

    def do_stop(self) -> None:
        self.say(Kind.FAULT, detail="terminate")
        for _ in range(self.random.randrange(3)):
            self.step()
        self.say(Kind.STOP_SET)
        for _ in range(self.random.randrange(2)):
            self.step()  # a take that completes in the turn of the stop
        self.stopping = True
        if self.plan.slip.endswith("at stop"):
            self._stop_wrongly()
        self.say(Kind.STOP_IN_FORCE)
        self._drain()

    def do_stop_and_leave(self) -> None:
        """The scenario ends, and with it the process, before the pool is done."""
        self.say(Kind.FAULT, detail="terminate")
        self.say(Kind.STOP_SET)
        self.say(Kind.STOP_IN_FORCE)
        self.stopping = True
        for _ in range(self.random.randrange(9)):
            self.step()
        self.exit("signal SIGKILL")

    def _stop_wrongly(self) -> None:
        for each in list(self.in_hand):
            if each.state == "running" and self.slips("cancel at stop", "cancel and ack at stop"):
                self.say(Kind.CANCELLED, each)
                each.state, each.outcome = "ended", "cancelled from outside"
                if self.plan.slip == "cancel and ack at stop":
                    each.outcome = ""
            elif each.state == "taken" and self.slips("give up at stop"):
                each.state, each.call = "calling", Kind.GIVE_UP
                self.say(Kind.GIVE_UP, each)

    def _drain(self) -> None:
        if self.queue and self.slips("take after stop"):
            self.take()
        if self.random.random() < 0.5:
            for each in self.in_hand:
                if each.state == "taken":
                    each.state, each.call = "calling", Kind.REQUEUE
                    self.say(Kind.REQUEUE, each)
        if self.random.random() < 0.7:
            self.say(Kind.SOURCE_STOPPED)
            self.say(Kind.SOURCE_CLOSED)
        if self.in_hand and self.slips("leave in hand"):
            pass
        else:
            while self.step(takes=False):
                pass
        if self.slips("hang in the end"):
            self.say(Kind.EXPECTED, detail=f"stalled returned=1 seen=0 {self.figures()}")
            self.exit("signal SIGKILL")
            return
        if self.slips("return late"):
            self.now += 6
        if self.slips("raise in the end"):
            self.say(Kind.RUN_RAISED, detail="CancelledError (worker_pool.py:31)")
        else:
            left = "worker-1, Task-7" if self.slips("leave tasks") else ""
            self.say(Kind.RUN_RETURNED, detail=left)
            self.say(Kind.EXPECTED, detail=f"met returned=1 seen=1 {self.figures()}")
        self.exit("signal SIGABRT" if self.slips("die by a signal") else "status 0")

    def do_source_ends(self) -> None:
        """The source is exhausted: run() returns unasked, and rightly."""
        if not self.queue or self.slips("return early"):
            while self.step(takes=False):
                pass
            self.say(Kind.RUN_RETURNED)
            self.exit("status 0")
