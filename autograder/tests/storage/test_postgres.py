"""PostgreSQL by asyncpg keeps the contract, on a real server."""

from __future__ import annotations

import asyncio
import uuid

import asyncpg
import pytest

from autograder.brokers.process import free_ports
from autograder.storage import DatabaseGone, UniqueViolation
from autograder.storage.postgres import open_postgres
from autograder.tests.storage.database_contract import INSERT, TABLES, DatabaseContract

pytestmark = pytest.mark.postgres


@pytest.fixture
async def server(bench):
    """An administrator's connection."""
    connection = await asyncpg.connect(bench.server("postgres").url)
    yield connection
    await connection.close()


@pytest.fixture
def name():
    """A user and a schema that a test has for itself."""
    return f"contract_{uuid.uuid4().hex}"


@pytest.fixture
async def url(bench, server, name):
    await server.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    await server.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
    await server.execute(f"ALTER ROLE {name} SET search_path = {name}")
    whole = bench.server("postgres").url
    url = f"postgresql://{name}:x@{whole.rpartition('@')[2]}"
    own = await asyncpg.connect(url)
    await own.execute(TABLES)
    await own.close()
    yield url
    await end_all(server, name)
    await server.execute(f"DROP SCHEMA {name} CASCADE; DROP ROLE {name}")


@pytest.fixture
async def database(url):
    async with open_postgres(url) as db:
        yield db


class TestPostgres(DatabaseContract):
    @pytest.fixture
    async def db(self, database):
        return database


async def test_a_savepoint_brings_a_transaction_back_from_a_statement_that_failed(database):
    await database.execute(INSERT, id="a", word="one")
    async with database.transaction() as tx:
        await tx.execute(INSERT, id="b", word="two")
        await tx.execute("SAVEPOINT before")
        with pytest.raises(UniqueViolation):
            await tx.execute(INSERT, id="a", word="three")
        await tx.execute("ROLLBACK TO SAVEPOINT before")
        await tx.execute("RELEASE before")
    assert await database.fetch_all("SELECT id, word FROM seen ORDER BY id") == [
        {"id": "a", "word": "one"},
        {"id": "b", "word": "two"},
    ]


async def end_all(server, name):
    """Let the server end every connection of a user; returns when they are gone."""
    query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = $1"
    async with asyncio.timeout(20):
        while await server.fetchval(query, name):
            pass


async def test_a_connection_that_ends_in_a_transaction_is_said_and_undoes_it(
    database, server, name
):
    with pytest.raises(DatabaseGone):
        async with database.transaction() as tx:
            await tx.execute(INSERT, id="a", word="one")
            await end_all(server, name)
            await tx.execute(INSERT, id="b", word="two")
    assert await database.fetch_all("SELECT id FROM seen") == []  # on a new connection


async def test_a_connection_that_ends_before_the_commit_is_said(database, server, name):
    with pytest.raises(DatabaseGone):
        async with database.transaction() as tx:
            await tx.execute(INSERT, id="a", word="one")
            await end_all(server, name)
    assert await database.fetch_all("SELECT id FROM seen") == []


async def test_nobody_at_the_address():
    with pytest.raises(DatabaseGone):
        async with open_postgres(f"postgresql://me:x@127.0.0.1:{free_ports(1)[0]}/x"):
            pass


async def test_a_wrong_login_is_no_reason_to_wait(url):
    with pytest.raises(Exception, match="authentication failed"):
        async with open_postgres(url.replace(":x@", ":wrong@")):
            pass


async def test_a_statement_that_is_cancelled_leaves_the_pool_usable(database):
    for _ in range(12):  # more than there are connections
        task = asyncio.create_task(database.execute("SELECT pg_sleep(10)"))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await database.fetch_one("SELECT 1 AS one") == {"one": 1}
