"""What the lesson on payments stands on: its faults are the ones it names, its counts are the database's."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

pytest.importorskip("IPython", reason="the site's tools are the group `docs`")

from autograder.model import Event, History, Kind

LESSONS = Path(__file__).parents[3] / "lessons"
TABLES = """
create table payments (payment_id text not null, customer text not null, amount bigint not null);
create table processed (message_id text primary key);
"""


@pytest.fixture
def kit(monkeypatch):
    monkeypatch.syspath_prepend(str(LESSONS))
    return importlib.import_module("lessonkit.payments")


def event(at, kind, message="", delivery=0, process=1, detail=""):
    return Event(at, kind, message, "anna", delivery, 1, process, detail)


KILLED = (
    event(0.0, Kind.PUBLISHED, "lamp"),
    event(0.0, Kind.PUBLISHED, "teapot"),
    event(0.0, Kind.CONFIRMED, "teapot"),
    event(0.1, Kind.TAKEN, "lamp", 1),
    event(0.1, Kind.COMMITTED),
    event(0.1, Kind.ACK, "lamp", 1),
    event(0.1, Kind.SETTLED, "lamp", 1),
    event(0.2, Kind.TAKEN, "teapot", 2),
    event(0.2, Kind.COMMITTED),
    event(0.2, Kind.ACK, "teapot", 2),
    event(0.3, Kind.COUNTED),
    event(0.3, Kind.EFFECT, "lamp"),
    event(0.3, Kind.EFFECT, "teapot"),
    event(0.4, Kind.FAULT, detail="kill"),
    event(0.5, Kind.TAKEN, "teapot", 3, 2),
    event(0.5, Kind.COMMITTED, process=2),
    event(0.6, Kind.REQUEUE, "teapot", 3, 2),
    event(0.6, Kind.SETTLED, "teapot", 3, 2),
    event(0.7, Kind.COMMITTED, process=2),
    event(0.8, Kind.EFFECT, "teapot", process=2),
)


def test_payments_are_counted_by_what_the_broker_heard_and_the_examiner_found(kit):
    books = kit.Books(History(KILLED, workers=1))
    assert str(books).splitlines() == [
        "payment   delivered   acked    booked",
        "lamp      once        once     once",
        "teapot    twice       never    twice",  # an ack that nobody heard, and one given back
    ]


def test_the_story_of_a_payment_has_its_own_commits_and_the_kill(kit):
    story = kit.Books(History(KILLED, workers=1)).story("teapot")
    told = [(each.at, each.kind) for each in story.events]
    assert told == [
        (0.0, Kind.PUBLISHED),
        (0.2, Kind.TAKEN),
        (0.2, Kind.COMMITTED),
        (0.2, Kind.ACK),
        (0.3, Kind.EFFECT),
        (0.4, Kind.FAULT),
        (0.5, Kind.TAKEN),
        (0.5, Kind.COMMITTED),
        (0.6, Kind.SETTLED),
        (0.8, Kind.EFFECT),
    ]


async def trusting(message, handle, db):
    await handle(message, db)
    await message.ack()


async def marks_first(message, handle, db):
    mark = "insert into processed values (:id) on conflict do nothing"
    if await db.execute(mark, id=message.id):
        await handle(message, db)
    await message.ack()


async def waits_for_the_key(message, handle, db):
    mark = "insert into processed values (:id) on conflict do nothing"
    async with db.transaction() as tx:
        if await tx.execute(mark, id=message.id):
            await handle(message, tx)
        await message.ack()  # too soon: what a kill after it loses


@pytest.mark.nats
@pytest.mark.postgres
async def test_each_fault_does_what_it_is_called(kit):
    for design, fault, delivered, acked, rows in (
        (trusting, "", 1, 1, 1),
        (trusting, "killed in ack()", 2, 1, 2),
        (trusting, "published again", 2, 2, 2),
        (marks_first, "killed in handle()", 2, 1, 0),
        (marks_first, "two at once", 2, 2, 1),
        (waits_for_the_key, "two at once", 2, 2, 1),
        (waits_for_the_key, "killed after ack()", 1, 1, 0),
    ):
        books = await kit.take_payments(design, TABLES, fault)
        found = books.delivered["teapot"], books.acked["teapot"], books.rows["teapot"]
        assert found == (delivered, acked, rows), (design.__name__, fault)


async def test_a_fault_that_there_is_not_is_told_the_others(kit):
    with pytest.raises(ValueError, match=r"no fault 'flood'; there are killed in handle\(\), "):
        await kit.take_payments(trusting, TABLES, "flood")
