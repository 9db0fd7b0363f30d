"""What a student's database reports: each commit, and what was raised on the way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autograder.model import Kind
from autograder.storage import (
    Database,
    DatabaseError,
    DatabaseGone,
    Transaction,
    UniqueViolation,
)
from autograder.storage.sqlite import SqliteDatabase
from autograder.storage.sqlite_store import SqliteStore
from autograder.subject.recorded import Book
from autograder.subject.stored import RecordedDatabase

INSERT = "INSERT INTO seen (id) VALUES (:id)"


class Ear:
    def __init__(self) -> None:
        self.heard = []

    def event(self, kind, detail=""):
        self.heard.append((kind, detail) if detail else kind)


@pytest.fixture
def ear():
    return Ear()


@pytest.fixture
def book():
    return Book()


@pytest.fixture
def to_lose():
    return []


@pytest.fixture
async def db(ear, book, to_lose):
    store = SqliteStore()
    store.create("CREATE TABLE seen (id TEXT PRIMARY KEY)")
    yield RecordedDatabase(SqliteDatabase(store), ear, book, to_lose, waits=True)
    store.close()


async def test_it_is_a_database(db):
    assert isinstance(db, Database)
    async with db.transaction() as tx:
        assert isinstance(tx, Transaction)


async def test_a_transaction_that_ends_well_is_committed(db, ear):
    async with db.transaction() as tx:
        await tx.execute(INSERT, id="a")
        assert await tx.fetch_all("SELECT id FROM seen") == [{"id": "a"}]
        assert ear.heard == []
    assert ear.heard == [Kind.COMMITTED]


async def test_one_that_raises_is_not(db, ear):
    with pytest.raises(UniqueViolation):
        async with db.transaction() as tx:
            await tx.execute(INSERT, id="a")
            await tx.execute(INSERT, id="a")
    assert [kind for kind, _ in ear.heard] == [Kind.RAISED]
    assert await db.fetch_one("SELECT id FROM seen") is None


async def test_a_statement_that_fails_is_told_with_its_line(ear, to_lose):
    store = SqliteStore()
    book = Book(Path(__file__))
    db = RecordedDatabase(SqliteDatabase(store), ear, book, to_lose, waits=True)
    for _ in range(2):
        with pytest.raises(DatabaseError):
            await db.execute("UPDATE nowhere SET a = 1")
    [(kind, detail)] = ear.heard  # the same text once between two takes
    assert kind is Kind.RAISED
    assert re.fullmatch(
        r"DatabaseError: no such table: nowhere \(test_stored.py line \d+\)", detail
    )
    book.raised.next_take()
    with pytest.raises(DatabaseError):
        await db.execute("UPDATE nowhere SET a = 1")
    assert len(ear.heard) == 2
    store.close()


async def test_what_leaves_the_block_is_told_unless_a_handler_raised_it(db, ear, book):
    with pytest.raises(KeyError):
        async with db.transaction():
            raise KeyError("fingerprnt")
    assert ear.heard == [(Kind.RAISED, "KeyError: 'fingerprnt'")]
    with pytest.raises(ValueError):  # noqa: PT011 - a handler's
        async with db.transaction():
            raise book.raised.known(ValueError("of the handler"))
    assert len(ear.heard) == 1


async def test_a_statement_alone_is_committed_if_it_changes_something(db, ear):
    await db.execute(INSERT, id="a")
    assert ear.heard == [Kind.COMMITTED]
    await db.fetch_all("SELECT id FROM seen")
    assert len(ear.heard) == 1
    assert await db.fetch_one(f"{INSERT} RETURNING id", id="b") == {"id": "b"}
    assert len(ear.heard) == 2


async def test_a_question_that_is_under_way_counts_as_waiting_for_the_server(db, book):
    before = book.settling
    with db.asking():
        assert book.settling == before + 1
    await db.execute(INSERT, id="a")
    assert book.settling == before


@pytest.mark.parametrize(("done", "there"), [(True, {"id": "a"}), (False, None)])
@pytest.mark.parametrize("alone", [True, False])
async def test_a_commit_that_is_lost_is_done_or_not(db, ear, book, to_lose, done, there, alone):
    to_lose.append(done)
    await db.execute("DELETE FROM seen")
    assert ear.heard.pop() is Kind.COMMITTED, "no message was taken yet"
    book.in_hand = 1
    with pytest.raises(DatabaseGone):
        if alone:
            await db.execute(INSERT, id="a")
        else:
            async with db.transaction() as tx:
                await tx.execute(INSERT, id="a")
    assert ear.heard == [(Kind.COMMIT_LOST, "done" if done else "undone")]
    assert await db.fetch_one("SELECT id FROM seen") == there
    await db.execute(INSERT, id="b")
    assert ear.heard[-1] is Kind.COMMITTED


async def test_a_transaction_that_fails_by_itself_loses_no_commit(db, book, to_lose):
    to_lose.append(True)
    book.in_hand = 1
    with pytest.raises(ValueError, match="no"):
        async with db.transaction():
            raise ValueError("no")
    await db.fetch_one("SELECT id FROM seen")
    assert to_lose == [True]
