"""Lavka's database, as far as a pool can tell: a fixed number of connections, and queries that take time.

A stand-in: it keeps a real pool's rules (so many connections, so much patience) and does no work,
so that a page can show what happens at the limit without a server of its own.
"""

from __future__ import annotations

import asyncio
import math
import time


class PoolTimeout(Exception):  # noqa: N818 - the name that connection pools give it
    """No connection came free in time."""


class Database:
    """`connections` queries at a time, `query_s` seconds each.

    Who waits longer than `patience_s` for a connection gets a `PoolTimeout`, as from any
    connection pool (there the patience is 5 to 30 s; a lesson has less time).
    """

    def __init__(self, *, connections: int, query_s: float, patience_s: float = 1.0) -> None:
        self.query_s = query_s
        self.patience_s = patience_s
        self._free = asyncio.Semaphore(connections)
        self._answers = math.inf  # queries from now on that are answered, then comes the outage
        self._outage_s = 0.0
        self._back_at = 0.0

    def go_away(self, *, after: int, for_s: float) -> None:
        """Answer so many queries more, and then none for so many seconds: each is refused at once."""
        self._answers, self._outage_s, self._back_at = after, for_s, 0.0

    async def query(self) -> None:
        """One query. Raises `PoolTimeout` if no connection comes free in time.

        Raises `ConnectionRefusedError` in an outage.
        """
        self._refuse_in_an_outage()
        try:
            async with asyncio.timeout(self.patience_s):
                await self._free.acquire()
        except TimeoutError:
            raise PoolTimeout(f"no connection within {self.patience_s:g} s") from None
        try:
            await asyncio.sleep(self.query_s)
        finally:
            self._free.release()

    def _refuse_in_an_outage(self) -> None:
        now = time.monotonic()
        if self._answers <= 0:
            self._answers, self._back_at = math.inf, now + self._outage_s
        self._answers -= 1
        if now < self._back_at:
            raise ConnectionRefusedError("the database does not answer")
