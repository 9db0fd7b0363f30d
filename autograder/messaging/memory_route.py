"""A route on a broker in this very process: the queue's own line, read one message at a time."""

from __future__ import annotations

import asyncio

from autograder.messaging import SettleFailed
from autograder.messaging.memory import Queue, Stored, broker_at
from autograder.messaging.route import Letter, Posted, Route, Settlement


class AdapterRoute(Route):
    """Nothing is ever late here, and nothing breaks."""

    _queue: Queue

    async def connect(self) -> None:
        """Find the queue. Raises `ConnectionError` if there is none."""
        self._queue = broker_at(self.lane.url).queue(self.lane)
        self._held: dict[Stored, None] = {}  # read and not settled, in order

    async def hang_up(self) -> None:
        """Give everything unsettled back."""
        held, self._held = list(self._held), {}
        self._queue.give_back(held)

    async def send(self, posted: Posted) -> None:
        """At the end of the line."""
        await asyncio.sleep(0)  # as on a network, others run meanwhile
        headers = dict(posted.headers)
        self._queue.add(Stored(posted.id, posted.key, posted.body, headers))

    async def next_letter(self) -> Letter | None:
        """The one in front."""
        await asyncio.sleep(0)  # the same
        stored = self._queue.take()
        if stored is None:
            return None
        self._held[stored] = None
        posted = Posted(stored.id, stored.key, stored.body, stored.headers)
        return Letter(posted, stored.deliveries, stored, self)

    async def settle(self, letter: Letter, how: Settlement) -> None:
        """Out of the queue, or to the end of the line."""
        await asyncio.sleep(0)  # the same
        stored = letter.token
        if not isinstance(stored, Stored) or stored not in self._held:
            raise SettleFailed("the connection that delivered the message is gone")
        del self._held[stored]
        if how == "requeue":
            self._queue.add(stored)
        else:
            self._queue.settle(stored)

    async def count(self) -> int:
        """How many wait."""
        await asyncio.sleep(0)  # the same
        return self._queue.state().waiting
