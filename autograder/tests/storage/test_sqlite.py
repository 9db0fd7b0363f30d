"""SQLite with PostgreSQL's manners keeps the contract, on a real loop and in virtual time."""

from __future__ import annotations

import asyncio
import random

import pytest

from autograder.storage import DatabaseError
from autograder.storage.sqlite import SqliteDatabase
from autograder.storage.sqlite_store import SqliteStore
from autograder.tests.storage.database_contract import INSERT, TABLES, DatabaseContract


@pytest.fixture
def store():
    store = SqliteStore()
    store.create(TABLES)
    yield store
    store.close()


class TestSqlite(DatabaseContract):
    @pytest.fixture
    async def db(self, store):
        return SqliteDatabase(store)


class TestSqliteInVirtualTime(DatabaseContract):
    in_virtual_time = True

    @pytest.fixture(params=["even", "spread"])
    async def db(self, store, request):
        chance = random.Random(1)  # noqa: S311 - repeatable, not secret
        times = {"even": [0.001], "spread": [0.0, 0.0002, 0.003, 0.02]}[request.param]
        return SqliteDatabase(store, lambda: asyncio.sleep(chance.choice(times)))


async def test_a_dead_process_has_committed_nothing_and_holds_nothing(store):
    dead, alive = SqliteDatabase(store), SqliteDatabase(store)
    transaction = dead.transaction()
    tx = await transaction.__aenter__()
    await tx.execute(INSERT, id="a", word="one")
    waits = asyncio.create_task(alive.execute(INSERT, id="a", word="two"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waits.done()
    dead.crash()
    assert await waits == 1
    assert store.rows("SELECT word FROM seen") == [{"word": "two"}]


async def test_what_sqlite_does_not_know_is_refused_if_somebody_else_may_know_it():
    def refuse(what):
        raise RuntimeError(what)

    store = SqliteStore(refuse)
    store.create(TABLES)
    db = SqliteDatabase(store)
    for sql in (
        "SELECT id FROM seen FOR UPDATE",
        "SELECT now() AS it",
        "SELECT id::text FROM seen",
        "SELECT xmax FROM seen",
        "SELECT s.ctid FROM seen s",
        "INSERT INTO seen (id, word) VALUES ('a', 'b') RETURNING (xmax = 0) AS new",
        "SELECT seen FROM seen",
        "SELECT s FROM seen AS s",
        "SELECT current_user",
        "SELECT interval '1 day'",
        "SELECT * FROM pg_locks",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM generate_series(1, 3)",
        "SELECT position('a' in 'b')",
        "SELECT length('a', 'b')",
        "CREATE TABLE mine (id UUID PRIMARY KEY)",
    ):
        with pytest.raises(RuntimeError, match="does not know this statement"):
            await db.execute(sql)
    for sql in ("SAVEPOINT here", "ROLLBACK TO here", "release savepoint here"):
        with pytest.raises(RuntimeError, match="savepoints"):
            await db.execute(sql)
    for sql in (
        "SELECT x FROM nowhere",
        "SELECT wrod FROM seen",
        "SELECT s.wrod FROM seen s",
        "INSERT INTO seen (id, wrod) VALUES ('a', 'b')",
        "INSERT INTO seen (id, word) VALUES ('a', 'b') ON CONFLICT (wrod) DO NOTHING",
        "INSERT INTO seen VALUES ('a', 'b', 'c')",
        "SELECT id FROM sene",
    ):
        with pytest.raises(DatabaseError):
            await db.execute(sql)
    store.close()


async def test_tables_can_be_made_on_the_way(store):
    db = SqliteDatabase(store)
    for _ in range(2):
        await db.execute("CREATE TABLE IF NOT EXISTS mine (id VARCHAR(40) PRIMARY KEY)")
    async with db.transaction() as tx:
        await tx.execute("INSERT INTO mine (id) VALUES ('a')")
        second = asyncio.create_task(db.execute("INSERT INTO mine (id) VALUES ('a')"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not second.done()  # its keys are watched as those of the others
    with pytest.raises(DatabaseError):
        await second
    await db.execute("DROP TABLE mine")
    await db.execute("CREATE TABLE mine (id TEXT PRIMARY KEY)")
    await db.execute("INSERT INTO mine (id) VALUES ('a')")


async def test_the_same_questions_have_the_same_answers_in_the_same_order(store):
    db = SqliteDatabase(store)
    order = []

    async def work(number):
        async with db.transaction() as tx:
            await tx.execute(f"{INSERT} ON CONFLICT DO NOTHING", id="a", word=str(number))
            order.append(number)

    await asyncio.gather(*map(work, range(8)))
    assert order == list(range(8))  # who waited first goes on first
    assert store.rows("SELECT word FROM seen") == [{"word": "0"}]
