"""What a student's database reports: each commit, and nothing else."""

from __future__ import annotations

import pytest

from autograder.model import Kind
from autograder.storage import Database, Transaction, UniqueViolation
from autograder.storage.sqlite import SqliteDatabase
from autograder.storage.sqlite_store import SqliteStore
from autograder.subject.recorded import Book
from autograder.subject.stored import RecordedDatabase

INSERT = "INSERT INTO seen (id) VALUES (:id)"


class Ear:
    def __init__(self) -> None:
        self.heard = []

    def event(self, kind):
        self.heard.append(kind)


@pytest.fixture
def ear():
    return Ear()


@pytest.fixture
def book():
    return Book()


@pytest.fixture
async def db(ear, book):
    store = SqliteStore()
    store.create("CREATE TABLE seen (id TEXT PRIMARY KEY)")
    yield RecordedDatabase(SqliteDatabase(store), ear, book, waits=True)
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
    assert ear.heard == []
    assert await db.fetch_one("SELECT id FROM seen") is None


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
