"""The databases of a run: nobody else's, and counted by the examiner."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from autograder.exam.stores import STORES, Stores, needed
from autograder.model import Call, GraderError
from autograder.storage.postgres import open_postgres
from autograder.storage.valkey import Refused, open_valkey

TABLES = """
CREATE TABLE payments (payment_id TEXT NOT NULL, customer TEXT NOT NULL, amount BIGINT NOT NULL);
CREATE TABLE processed (message_id TEXT PRIMARY KEY, fingerprint TEXT NOT NULL);
"""
BOTH = Call("run", ("source", "db", "lease"), ("workers", "stop"))
BOOK = "INSERT INTO payments (payment_id, customer, amount) VALUES (:id, 'c', 7)"

pytestmark = [pytest.mark.postgres, pytest.mark.valkey]


@pytest.fixture
async def stores(bench):
    stores = Stores({name: bench.server(name) for name in STORES.values()}, TABLES)
    yield stores
    await stores.close()


@pytest.fixture
async def run(stores):
    run = stores.open(BOTH)
    await run.prepare()
    yield run
    await run.drop()


def test_a_function_needs_what_it_names():
    assert needed([BOTH]) == ["postgres", "valkey"]
    assert needed([Call("run")]) == []


def test_a_store_that_nobody_started_is_named_with_the_command_that_does():
    with pytest.raises(GraderError, match="needs postgres") as raised:
        Stores().open(BOTH)
    assert raised.value.next_command == "ackademy brokers up postgres"


async def test_effects_are_what_is_committed(run):
    async with open_postgres(run.job["db"]) as db:
        async with db.transaction() as tx:
            await tx.execute(BOOK, id="a")
            assert await run.effects() == []
        await db.execute(BOOK, id="a")
        assert await run.effects() == [("a", "amount 7")] * 2


async def test_the_next_run_has_tables_of_its_own_on_the_same_connection(run, stores):
    async with open_postgres(run.job["db"]) as db:
        await db.execute(BOOK, id="a")
    await run.drop()
    again = stores.open(BOTH)
    await again.prepare()
    assert await again.effects() == []
    async with open_postgres(again.job["db"]) as db:
        await db.execute(BOOK, id="b")
    assert await again.effects() == [("b", "amount 7")]
    await again.drop()


async def test_a_password_is_hashed_as_often_as_its_strength_needs(run, stores):
    admin = await asyncpg.connect(stores.servers["postgres"].url, ssl=False)
    role = run.job["db"].partition("//")[2].partition(":")[0]
    found = await admin.fetchval("SELECT rolpassword FROM pg_authid WHERE rolname = $1", role)
    admin.terminate()
    assert found.startswith("SCRAM-SHA-256$1:")


async def test_a_subject_may_add_effects_and_take_none_back(run):
    async with open_postgres(run.job["db"]) as db:
        await db.execute(BOOK, id="a")
        for sql in (
            "DELETE FROM payments",
            "UPDATE payments SET amount = 0",
            "DROP TABLE payments",
        ):
            with pytest.raises(Exception, match=r"permission denied|must be owner"):
                await db.execute(sql)
        assert await db.fetch_one("SELECT amount FROM payments") == {"amount": 7}
        await db.execute("INSERT INTO processed (message_id, fingerprint) VALUES ('a', 'f')")
        await db.execute("DELETE FROM processed")
        await db.execute("CREATE TABLE mine (id TEXT)")


async def test_one_run_sees_nothing_of_another(stores, run):
    other = stores.open(BOTH)
    await other.prepare()
    async with open_postgres(other.job["db"]) as db:
        await db.execute(BOOK, id="secret")
        [schema] = await db.fetch_all("SELECT current_schema() AS name")
    async with open_postgres(run.job["db"]) as db:
        assert await db.fetch_all("SELECT * FROM payments") == []
        with pytest.raises(Exception, match="permission denied"):
            await db.fetch_all(f"SELECT * FROM {schema['name']}.payments")  # noqa: S608 - a test
    url, prefix = other.job["lease"]
    async with open_valkey(url, prefix=prefix) as lease:
        await lease.set("k", "secret")
    mine, _ = run.job["lease"]
    with pytest.raises(Refused, match=r"(?i)no.*perm"):
        async with open_valkey(mine, prefix=prefix) as lease:
            await lease.get("k")
    await other.drop()


async def test_settling_waits_for_the_last_session(run):
    connection = await asyncpg.connect(run.job["db"])
    settling = asyncio.create_task(run.settle())
    done, _ = await asyncio.wait({settling}, timeout=0.2)
    assert not done
    await connection.close()
    await asyncio.wait_for(settling, 20)


async def test_nothing_is_left_of_a_run(bench, stores):
    run = stores.open(BOTH)
    await run.prepare()
    user = run.job["lease"][1].rstrip(":")
    async with open_postgres(run.job["db"]) as db:
        await db.execute("CREATE TABLE mine (id TEXT)")
    await run.settle()
    await run.drop()
    connection = await asyncpg.connect(bench.server("postgres").url)
    try:
        for query in (
            "SELECT count(*) FROM pg_roles WHERE rolname = $1",
            "SELECT count(*) FROM pg_namespace WHERE nspname = $1",
        ):
            assert await connection.fetchval(query, user) == 0
    finally:
        await connection.close()
    with pytest.raises(Refused, match="WRONGPASS"):
        async with open_valkey(run.job["lease"][0]):
            pass


async def test_tables_that_are_no_sql_are_our_fault(stores):
    oops = Stores(stores.servers, "CREATE TABEL oops")
    run = oops.open(BOTH)
    with pytest.raises(GraderError, match="cannot prepare its stores"):
        await run.prepare()
    await run.drop()
    await oops.close()
