"""Lavka's ledger, in a real PostgreSQL: accounts with a balance, and every booking with the balance after it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from autograder.storage import Database, Transaction
from autograder.storage.postgres import open_postgres
from lessonkit.broker import store

_TABLES = (
    "drop table if exists bookings, accounts",
    "create table accounts (id text primary key, balance integer not null default 0 {rule})",
    """create table bookings (
        number integer generated always as identity primary key,
        account text not null references accounts, what text not null,
        amount integer not null, balance integer not null
    )""",
)
_STATEMENT = "select what, amount, balance from bookings where account = :account order by number"
_BELOW_ZERO = "select count(distinct account) as found from bookings where balance < 0"


class Ledger:
    """The ledger's tables in a database. The SQL that matters stands in the lesson."""

    def __init__(self, database: Database, connections: AsyncExitStack) -> None:
        self._database = database
        self._connections = connections  # open for as long as somebody has the ledger

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Statements that happen together or not at all: see `autograder.storage`."""
        return self._database.transaction()

    async def open(self, *accounts: str, rule: str = "") -> None:
        """New tables with these accounts, nothing on any; `rule` is a constraint on the balance."""
        async with self.transaction() as tx:
            for each in _TABLES:
                await tx.execute(each.format(rule=rule))
            for account in accounts:
                await tx.execute("insert into accounts (id) values (:account)", account=account)

    async def statement(self, account: str) -> str:
        """The account's bookings in the order in which they were made, as text."""
        rows = await self._database.fetch_all(_STATEMENT, account=account)
        lines = [f"{'booked':<12}{'amount':>8}{'balance':>12}"]
        lines += [f"{row['what']:<12}{row['amount']:>+8,}{row['balance']:>12,}" for row in rows]
        return "\n".join(lines)

    async def balances(self, account: str) -> list[int]:
        """The account's balance after each booking."""
        rows = await self._database.fetch_all(_STATEMENT, account=account)
        return [int(row["balance"]) for row in rows]

    async def below_zero(self) -> int:
        """How many accounts have been below zero after some booking."""
        row = await self._database.fetch_one(_BELOW_ZERO)
        return int(row["found"]) if row else 0

    async def close(self) -> None:
        """Close the connections. A lesson leaves that to the end of its kernel."""
        await self._connections.aclose()


async def open_ledger(*accounts: str) -> Ledger:
    """A ledger with these accounts. Starts the database server if no cell has."""
    server = await asyncio.to_thread(store)
    connections = AsyncExitStack()
    database = await connections.enter_async_context(open_postgres(server.url))
    ledger = Ledger(database, connections)
    await ledger.open(*accounts)
    return ledger
