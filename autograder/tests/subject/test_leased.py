"""What a student's lease reports, and where the examiner may hold it."""

from __future__ import annotations

import asyncio

import pytest

from autograder.model import Kind
from autograder.storage import Lease, StoreGone
from autograder.storage.expiring import ExpiringLease, ExpiringStore
from autograder.subject.gates import POINTS, RELEASE, TAKE, Gates
from autograder.subject.leased import RecordedLease, lease_key
from autograder.subject.recorded import Book

KEY = lease_key("m1")


class Ear:
    def __init__(self) -> None:
        self.heard = []

    def event(self, kind, message="", detail=""):
        self.heard.append((kind, message, detail))


class Stage:
    """Two processes on one server."""

    def __init__(self) -> None:
        self.store = ExpiringStore(asyncio.get_running_loop().time)
        self.gates = {point: Gates() for point in POINTS}
        self.ear, self.book = Ear(), Book()
        self.to_lose = []
        self.lease = self.process()

    def process(self) -> RecordedLease:
        async def at_once() -> None: ...

        inner = ExpiringLease(self.store, at_once)
        return RecordedLease(inner, self.ear, self.book, self.gates, self.to_lose, waits=True)


@pytest.fixture
async def stage():
    return Stage()


@pytest.mark.parametrize("release", ["delete_if_equals", "delete"])
async def test_a_take_is_lost_before_it_is_heard_and_a_release_after_it_is_done(stage, release):
    stage.to_lose += ["release", "take"]
    with pytest.raises(StoreGone):
        await stage.lease.set_if_absent(KEY, "x", ttl_s=60)
    assert stage.store.get(KEY) is None
    assert await stage.lease.set_if_absent(KEY, "x", ttl_s=60)
    values = ["x"] if release == "delete_if_equals" else []
    with pytest.raises(StoreGone):
        await getattr(stage.lease, release)(KEY, *values)
    assert stage.store.get(KEY) is None
    assert [event for event in stage.ear.heard if event[0] is Kind.LEASE_LOST] == [
        (Kind.LEASE_LOST, "m1", "take"),
        (Kind.LEASE_LOST, "m1", "release"),
    ]
    assert not stage.to_lose


async def test_it_is_a_lease(stage):
    assert isinstance(stage.lease, Lease)


async def test_a_take_is_told_with_its_life_span(stage):
    assert await stage.lease.set_if_absent(KEY, "x", ttl_s=60)
    await stage.lease.set(lease_key("m2"), "x")
    assert stage.ear.heard == [
        (Kind.LEASE_TAKEN, "m1", "60 s"),
        (Kind.LEASE_TAKEN, "m2", "for ever"),
    ]


async def test_a_refusal_is_told_once_until_it_is_taken(stage):
    await stage.lease.set_if_absent(KEY, "x", ttl_s=60)
    other = stage.process()
    for _ in range(3):
        assert not await other.set_if_absent(KEY, "y", ttl_s=60)
        assert await other.get(KEY) == "x"
    assert await stage.lease.delete_if_equals(KEY, "x")
    assert await other.set_if_absent(KEY, "y", ttl_s=60)
    assert not await stage.lease.delete_if_equals(KEY, "x")
    assert await stage.lease.delete(KEY)
    assert stage.ear.heard == [
        (Kind.LEASE_TAKEN, "m1", "60 s"),
        (Kind.LEASE_REFUSED, "m1", ""),
        (Kind.LEASE_RELEASED, "m1", ""),
        (Kind.LEASE_TAKEN, "m1", "60 s"),
        (Kind.LEASE_RELEASED, "m1", "no"),
        (Kind.LEASE_RELEASED, "m1", ""),
    ]


@pytest.mark.parametrize(
    "ask", [lambda it: it.set_if_absent(KEY, "y", ttl_s=60), lambda it: it.get(KEY)]
)
@pytest.mark.parametrize(("pause_s", "told"), [(0.0, 2), (0.015625, 2), (0.025, 0)])
async def test_questions_without_a_pause_are_told(stage, monkeypatch, ask, pause_s, told):
    await stage.lease.set_if_absent(KEY, "x", ttl_s=None)
    other, now = stage.process(), 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    for _ in range(21):
        assert await ask(other) in {False, "x"}
        now += pause_s
    hammered = [event for event in stage.ear.heard if event[0] is Kind.LEASE_HAMMERED]
    detail = f"10 pauses of {10 * pause_s:.3f} s in all"
    assert hammered == [(Kind.LEASE_HAMMERED, "m1", detail)] * told


async def test_a_look_and_a_take_may_follow_each_other_at_once(stage, monkeypatch):
    await stage.lease.set_if_absent(KEY, "x", ttl_s=None)
    other, now = stage.process(), 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    for _ in range(40):
        assert await other.get(KEY) == "x"
        assert not await other.set_if_absent(KEY, "y", ttl_s=60)
        now += 0.05
    assert stage.ear.heard[1:] == [(Kind.LEASE_REFUSED, "m1", "")]


async def test_a_look_at_a_lease_of_its_own_is_no_refusal(stage):
    await stage.lease.set_if_absent(KEY, "x", ttl_s=60)
    assert await stage.lease.get(KEY) == "x"
    assert await stage.lease.expire_if_equals(KEY, "x", ttl_s=60)
    assert await stage.lease.expire(KEY, ttl_s=60)
    assert len(stage.ear.heard) == 1


@pytest.mark.parametrize("command", ["set_if_absent", "set"])
async def test_a_take_waits_at_its_gate_and_finds_what_others_did_meanwhile(stage, command):
    stage.gates[TAKE].rule({"ids": ["m1"]}, hold=True)
    call = asyncio.create_task(getattr(stage.lease, command)(KEY, "x", ttl_s=60))
    await asyncio.sleep(0)
    assert stage.ear.heard == [(Kind.LEASE_WAITS, "m1", TAKE)]
    assert stage.book.settling == 1, "a command on its way is the server's time"
    stage.store.set(KEY, "other", None)
    stage.gates[TAKE].rule({"ids": ["m1"]}, hold=False)
    assert await call in {False, None}
    assert stage.store.get(KEY) == ("other" if command == "set_if_absent" else "x")
    assert stage.book.settling == 0


@pytest.mark.parametrize(("command", "left"), [("delete_if_equals", "other"), ("delete", None)])
async def test_so_does_a_release(stage, command, left):
    await stage.lease.set_if_absent(KEY, "x", ttl_s=60)
    stage.gates[RELEASE].rule({}, hold=True)
    arguments = (KEY, "x") if command == "delete_if_equals" else (KEY,)
    call = asyncio.create_task(getattr(stage.lease, command)(*arguments))
    await asyncio.sleep(0)
    assert stage.ear.heard[-1] == (Kind.LEASE_WAITS, "m1", RELEASE)
    stage.store.set(KEY, "other", None)
    stage.gates[RELEASE].rule({}, hold=False)
    await call
    assert stage.store.get(KEY) == left


async def test_keys_of_another_form_are_told_as_they_are(stage):
    await stage.lease.set_if_absent("mine", "x", ttl_s=60)
    assert stage.ear.heard == [(Kind.LEASE_TAKEN, "mine", "60 s")]
