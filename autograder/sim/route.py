"""Dead letters in the simulation, and what publishes to the run's channel.

The letters are a line of their own: what is not settled when its reader is gone goes back to the
front. What is given back goes to the front as well where a broker does that, as RabbitMQ does, and else to
the end. Each way can fall silent. What is published then is confirmed to nobody; whether it arrives when
the silence ends is drawn, and what a dead process had published never does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from autograder.messaging import SettleFailed
from autograder.messaging.adapter import Lane
from autograder.messaging.route import CONFIRM_S, Letter, Posted, Route, Settlement
from autograder.sim.clock import Clock
from autograder.sim.source import Stored
from autograder.sim.timing import Timing


class Way:
    """The way from a process to one place of the broker's, and whether anybody gets through."""

    def __init__(self, clock: Clock, timing: Timing) -> None:
        self.clock = clock
        self.timing = timing
        self.silent = False
        self._unheard: list[Callable[[], None]] = []  # published into the silence

    def expire(self) -> None:
        """The process is dead, and so is what it had published into the silence."""
        self._unheard.clear()

    def fall_silent(self) -> None:
        """Nobody gets through any more."""
        self.silent = True

    def heal(self) -> None:
        """Whoever comes gets through again; what was on its way arrives, or does not."""
        self.silent = False
        unheard, self._unheard = self._unheard, []
        for arrive in unheard:
            if self.timing.other.random() < 0.5:
                arrive()

    def when_it_arrives(self, arrive: Callable[[], None], after_s: float) -> None:
        """Have something done at the broker, unless the connection is silent by then."""

        def there() -> None:
            if self.silent:
                self._unheard.append(arrive)
            else:
                arrive()

        self.clock.call_later(after_s, there)


class LetterBox(Way):
    """The letters of one run."""

    def __init__(self, clock: Clock, timing: Timing, *, requeues_at_front: bool) -> None:
        super().__init__(clock, timing)
        self._requeues_at_front = requeues_at_front
        self.waiting: deque[Stored] = deque()
        self.in_hand: dict[Stored, None] = {}

    def expire(self) -> None:
        """What the dead reader had in hand waits again."""
        super().expire()
        self.waiting.extendleft(reversed(self.in_hand))
        self.in_hand.clear()

    def take_back(self, stored: Stored) -> None:
        """Where in the line it goes when its reader gives it back."""
        if self._requeues_at_front:
            self.waiting.appendleft(stored)
        else:
            self.waiting.append(stored)

    def all(self) -> list[Stored]:
        """Every letter, the oldest first."""
        return [*self.in_hand, *self.waiting]


class SimRoute(Route):
    """The dead letters as a student's process has them."""

    def __init__(self, box: LetterBox) -> None:
        super().__init__(Lane("sim:", "letters", ""))
        self._box = box

    async def connect(self) -> None:
        """At once."""

    async def hang_up(self) -> None:
        """What was taken and not settled waits again."""
        self._box.expire()

    async def send(self, posted: Posted) -> None:
        """At the end of the line."""
        stored = Stored(posted.id, posted.key, posted.body, dict(posted.headers))
        await self._asked(lambda: self._box.waiting.append(stored), self._box.timing.publish())

    async def next_letter(self) -> Letter | None:
        """The one in front."""
        box = self._box
        await self._asked(lambda: None, box.timing.deliver())
        if not box.waiting:
            return None
        stored = box.waiting.popleft()
        stored.deliveries += 1
        box.in_hand[stored] = None
        posted = Posted(stored.id, stored.key, stored.body, stored.headers)
        return Letter(posted, stored.deliveries, stored, self)

    async def settle(self, letter: Letter, how: Settlement) -> None:
        """Out of the line, or back into it."""
        box, stored = self._box, letter.token
        assert isinstance(stored, Stored)  # noqa: S101 - from `next_letter`
        if stored not in box.in_hand:
            raise SettleFailed("the connection that delivered the letter is gone")

        def settled() -> None:
            box.in_hand.pop(stored, None)
            if how == "requeue":
                box.take_back(stored)

        try:
            async with asyncio.timeout(CONFIRM_S):
                await self._asked(settled, box.timing.settle())
        except OSError as error:
            raise SettleFailed("the broker does not answer") from error

    async def count(self) -> int:
        """How many wait."""
        await self._asked(lambda: None, self._box.timing.settle())
        return len(self._box.waiting)

    async def _asked(self, do: Callable[[], None], after_s: float) -> None:
        """Have it done at the broker, and wait for the answer."""
        answer = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            do()
            if not answer.done():
                answer.set_result(None)

        self._box.when_it_arrives(arrive, after_s)
        await answer


class SimPublish(SimRoute):
    """Publishing to the run's own channel; it is never read from here."""

    def __init__(self, box: LetterBox, way: Way, add: Callable[[Stored], None]) -> None:
        super().__init__(box)
        self._way = way
        self._add = add

    async def send(self, posted: Posted) -> None:
        """At the end of the channel."""
        stored = Stored(posted.id, posted.key, posted.body, dict(posted.headers))
        answer = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            self._add(stored)
            if not answer.done():
                answer.set_result(None)

        self._way.when_it_arrives(arrive, self._way.timing.publish())
        await answer

    async def hang_up(self) -> None:
        """Nothing is held here."""
