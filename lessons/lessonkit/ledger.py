"""Lavka's ledger, in a real PostgreSQL: accounts with a balance, and every booking with the balance after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from lessonkit.broker import store

_CONNECTIONS = 4
_TABLES = """
drop table if exists bookings, accounts;
create table accounts (id text primary key, balance integer not null default 0 {rule});
create table bookings (
    number integer generated always as identity primary key,
    account text not null references accounts, what text not null,
    amount integer not null, balance integer not null
);
"""


class Ledger:
    """A pool of connections to the ledger. The SQL that matters stands in the lesson."""

    def __init__(self, connections: Any) -> None:
        self._connections = connections

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A connection in a transaction: committed at the end of the block, undone if it raises."""
        async with self._connections.acquire() as sql, sql.transaction():
            yield sql

    async def open(self, *accounts: str, rule: str = "") -> None:
        """New tables with these accounts, nothing on any; `rule` is a constraint on the balance."""
        async with self.transaction() as sql:
            await sql.execute(_TABLES.format(rule=rule))
            await sql.executemany(
                "insert into accounts (id) values ($1)", [(each,) for each in accounts]
            )

    async def statement(self, account: str) -> str:
        """The account's bookings in the order in which they were made, as text."""
        async with self.transaction() as sql:
            rows = await sql.fetch(
                "select what, amount, balance from bookings where account = $1 order by number",
                account,
            )
        lines = [f"{'booked':<12}{'amount':>8}{'balance':>12}"]
        lines += [f"{row['what']:<12}{row['amount']:>+8,}{row['balance']:>12,}" for row in rows]
        return "\n".join(lines)

    async def below_zero(self) -> int:
        """How many accounts have been below zero after some booking."""
        async with self.transaction() as sql:
            count: int = await sql.fetchval(
                "select count(distinct account) from bookings where balance < 0"
            )
        return count


async def open_ledger(*accounts: str) -> Ledger:
    """A ledger with these accounts. Starts the database server if no cell has."""
    server = await asyncio.to_thread(store)
    pool = await asyncpg.create_pool(server.url, min_size=_CONNECTIONS, max_size=_CONNECTIONS)
    ledger = Ledger(pool)
    await ledger.open(*accounts)
    return ledger
