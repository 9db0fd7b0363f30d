"""What a lesson's deploy stands on: its counts, its picture, the program it is made of."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path

import pytest

pytest.importorskip("IPython", reason="the site's tools are the group `docs`")

from autograder.messaging import Connect, Handler
from autograder.model import BrokerState, Call, Event, History, Kind
from autograder.report import svg
from autograder.subject.module import load

LESSONS = Path(__file__).parents[3] / "lessons"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(LESSONS))


def event(at, kind, message="", delivery=0, process=1, detail=""):
    return Event(at, kind, message, delivery=delivery, process=process, detail=detail)


TORN = (
    event(0.0, Kind.PUBLISHED, "a"),
    event(0.0, Kind.PUBLISHED, "b"),
    event(0.1, Kind.STARTED, "a", 1),
    event(0.2, Kind.STARTED, "b", 2),
    event(1.0, Kind.FAULT, detail="terminate"),
    event(1.2, Kind.FINISHED, "b", 2),
    event(1.5, Kind.EXITED, detail="signal SIGTERM"),
    event(1.6, Kind.SPAWNED, process=2),
    event(2.0, Kind.STARTED, "b", 3, process=2),
    event(2.4, Kind.FINISHED, "b", 3, process=2),
    event(2.5, Kind.SETTLED, "b", 3, process=2),
    event(4.0, Kind.STARTED, "a", 4, process=2),
    event(4.4, Kind.FINISHED, "a", 4, process=2),
    event(4.5, Kind.SETTLED, "a", 4, process=2),
    event(4.6, Kind.EXITED, process=2, detail="signal SIGKILL"),
)


def rollout(*events):
    kit = importlib.import_module("lessonkit.rollout")
    broker = BrokerState(waiting=0, unsettled=2)
    return kit.Rollout(History(events or TORN, workers=2), broker)


def test_a_deploy_in_numbers():
    seen = rollout()
    assert (seen.torn_off, seen.begun_twice, seen.done_twice) == (1, 2, 1)
    assert (seen.old_s, seen.took_s) == (pytest.approx(0.5), pytest.approx(3.5))
    assert seen.idle_s == pytest.approx(0.5 + 1.6)  # until b is begun again, and until a is
    assert str(seen).splitlines() == [
        "ended        by SIGTERM",
        "torn off     1 order",
        "to give out  0 orders",
        "kept back    2 orders",
        "begun twice  2 orders",
        "done twice   1 order",
    ]


def test_a_handler_that_was_cancelled_was_torn_off_when_it_was():
    told = event(1.0, Kind.FAULT, detail="interrupt")
    gone = event(2.0, Kind.EXITED, detail="status 1")
    begun = event(0.5, Kind.STARTED, "a", 1)
    seen = rollout(begun, told, event(1.5, Kind.CANCELLED, "a", 1), gone)
    assert [(each.end, each.torn) for each in seen.stretches] == [(1.5, True)]
    assert seen.ended == "with status 1"
    failed = rollout(begun, told, event(1.5, Kind.FAILED, "a", 1), gone)
    assert failed.torn_off == 0


def test_the_picture_of_a_deploy_says_in_words_what_it_shows(monkeypatch):
    pytest.importorskip("matplotlib")
    pictures = importlib.import_module("lessonkit.pictures")
    shown = []
    monkeypatch.setattr(pictures, "display", lambda what, **_: shown.append(what))
    kit = importlib.import_module("lessonkit.rollout_picture")
    kit.show_rollout(rollout(), title="Badly", caption="Look.", until_s=4)
    (figure,) = shown
    assert (
        "The old process ends by SIGTERM, 0.5 s after the signal; 1 of its handlers" in figure.data
    )
    assert "begins its first order 1.0 s after the signal. 2 orders are begun twice" in figure.data
    assert ">SIGTERM</text>" in figure.data
    assert "var(--tl-good)" in figure.data  # and no colour that one palette alone has
    assert svg.LIGHT.good not in figure.data


async def opens():
    pass


async def program(connect: Connect, handle: Handler, workers: int) -> int:
    await opens()
    return workers


async def test_a_program_is_a_module_that_graders_can_call(tmp_path):
    kit = importlib.import_module("lessonkit.deploy")
    file = tmp_path / "consumer.py"
    file.write_text(kit._module(program, [opens]))
    main = load(file, Call("main", ("connect", "handle"), ("workers", "deadline_s")))
    assert await main(None, None, workers=3, deadline_s=1) == 3


async def test_nobody_ends_a_lease_early():
    kit = importlib.import_module("lessonkit.deploy")
    asked = []

    class Engine:
        name = "nats"

        async def open_lane(self, label, *, lease_s):
            asked.append((label, lease_s))

        async def expire(self, lane):
            asked.append("expire")

    patient = kit._LongLease(Engine())
    await patient.open_lane("run")
    await patient.expire(None)
    assert asked == [("run", kit.LEASE_S)]
    assert patient.name == "nats"


class Run:
    """As much of a run as waiting for its end needs."""

    def __init__(self, *kinds, exits=False):
        self.recorder = self
        self.life = self
        self.exited = asyncio.Event()
        self.events = [event(0, kind) for kind in kinds]
        self.alive = True
        self.killed = self.looked = 0
        if exits:
            self.end()

    def end(self):
        self.alive = False
        self.exited.set()

    async def kill(self):
        self.killed += 1
        self.end()

    async def changed(self, within_s):
        self.looked += 1
        self.events.append(event(0, Kind.DISCONNECTED))


async def test_only_who_outlives_the_platforms_patience_is_killed():
    kit = importlib.import_module("lessonkit.deploy")
    ended, stays = Run(exits=True), Run()
    await kit._ended(ended, 30)
    await kit._ended(stays, 0.01)
    assert (ended.killed, stays.killed) == (0, 1)


async def test_handlers_go_on_when_a_connection_that_is_being_closed_is_closed():
    kit = importlib.import_module("lessonkit.deploy")
    closes, does_not = Run(Kind.DISCONNECTING), Run()
    await kit._closed(closes)
    await kit._closed(does_not)
    assert (closes.looked, does_not.looked) == (1, 0)
