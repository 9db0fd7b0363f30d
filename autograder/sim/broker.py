"""The simulated broker: channels of one manner on one clock.

It offers what an examiner's engine offers, so that the same tests hold it to the same promises;
a world asks it without waiting (`send`, `counts`, `crash`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Protocol

from autograder.messaging.adapter import Lane
from autograder.model import BrokerState
from autograder.sim.clock import Clock
from autograder.sim.route import LetterBox, SimPublish, SimRoute, Way
from autograder.sim.schedule import Schedule
from autograder.sim.source import SimSource, Stored
from autograder.sim.timing import Timing


class Published(Protocol):
    """What publishing wants to know of a message."""

    @property
    def id(self) -> str: ...  # noqa: D102 - as in `Message`
    @property
    def key(self) -> str: ...  # noqa: D102 - the same
    @property
    def body(self) -> bytes: ...  # noqa: D102 - the same
    @property
    def headers(self) -> Mapping[str, str]: ...  # noqa: D102 - the same


class Channel(ABC):
    """A queue, a stream or a topic: what the broker keeps for one lane."""

    def __init__(self, clock: Clock, timing: Timing) -> None:
        self.clock = clock
        self.timing = timing

    @abstractmethod
    def add(self, stored: Stored) -> None:
        """Keep a new message."""

    @abstractmethod
    def state(self) -> BrokerState:
        """Counts as of now."""

    @abstractmethod
    def waiting_messages(self) -> list[Stored]:
        """Everything that waits, where nobody consumes any more."""

    @abstractmethod
    async def connect(self, prefetch: int) -> SimSource:
        """A new consumer."""

    @abstractmethod
    def expire(self) -> None:
        """Deliver again what dead processes left unsettled."""

    @abstractmethod
    def sources(self) -> list[SimSource]:
        """Its consumers that live."""


class SimBroker:
    """Channels by name, all of one manner."""

    name = "sim"
    version = ""

    def __init__(self, clock: Clock, schedule: Schedule) -> None:
        self.clock = clock
        self.timing = Timing(schedule)
        self._make = channel_of(schedule.manner)
        self._requeues_letters_at_front = schedule.manner == "queue"
        self._channels: dict[str, Channel] = {}
        self._letters: dict[str, LetterBox] = {}
        self._ways: dict[str, Way] = {}  # of what a process publishes
        self._numbers = count(1)

    def channel(self, lane: Lane) -> Channel:
        """The channel of a lane. Raises `ConnectionError` if there is none."""
        try:
            return self._channels[lane.channel]
        except KeyError:
            raise ConnectionError(f"the simulated broker has no {lane.channel}") from None

    def lane(self, label: str, lease_s: float = 5.0) -> Lane:
        """A channel of its own, and its names."""
        lane = Lane("sim:", f"{label}-{next(self._numbers)}", "workers", lease_s)
        self._channels[lane.channel] = self._make(self.clock, self.timing)
        self._letters[lane.channel] = LetterBox(
            self.clock, self.timing, requeues_at_front=self._requeues_letters_at_front
        )
        self._ways[lane.channel] = Way(self.clock, self.timing)
        return lane

    def letters(self, lane: Lane) -> LetterBox:
        """The dead letters of a lane."""
        return self._letters[lane.channel]

    def way(self, lane: Lane) -> Way:
        """What a process publishes to a lane goes this way."""
        return self._ways[lane.channel]

    def route(self, lane: Lane, *, letters: bool) -> SimRoute:
        """A connection to the dead letters of a lane, or one that publishes to the lane itself."""
        box = self.letters(lane)
        return SimRoute(box) if letters else SimPublish(box, self.way(lane), self.channel(lane).add)

    def send(
        self, lane: Lane, messages: Sequence[Published], confirmed: Callable[[str], None]
    ) -> None:
        """Put messages on their way, in order; `confirmed` is called with the id of each."""
        channel, when = self.channel(lane), self.clock.now

        def arrive(message: Published) -> None:
            headers = dict(message.headers)
            channel.add(Stored(message.id, message.key, message.body, headers))
            confirmed(message.id)

        for each in messages:
            when = max(when, self.clock.now + self.timing.publish())
            self.clock.call_at(when, lambda message=each: arrive(message))  # type: ignore[misc]  # a default binds it

    # -- as an engine of the examiner's

    async def connect(self, lane: Lane, *, prefetch: int) -> SimSource:
        """A consumer of this lane. Raises `ConnectionError` if there is no such lane."""
        return await self.channel(lane).connect(prefetch)

    async def open_lane(self, label: str, *, lease_s: float = 5.0) -> Lane:
        """A channel of its own."""
        return self.lane(label, lease_s)

    async def publish(self, lane: Lane, messages: Sequence[Published]) -> list[str]:
        """Publish in order; returns the ids once the broker has confirmed them all."""
        done = asyncio.get_running_loop().create_future()
        left = len(messages)

        def confirmed(_: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set_result(None)

        self.send(lane, messages, confirmed)
        if messages:
            await done
        return [each.id for each in messages]

    async def state(self, lane: Lane) -> BrokerState:
        """The broker's own counts, now."""
        return self.channel(lane).state()

    async def expire(self, lane: Lane) -> None:
        """Deliver again what a dead process left unsettled."""
        self.channel(lane).expire()

    async def disown(self, lane: Lane) -> None:
        """Nothing: whose connection breaks hands back what it held."""

    async def drop_lane(self, lane: Lane) -> None:
        """Forget the channel."""
        self._channels.pop(lane.channel, None)

    async def close(self) -> None:
        """Forget everything."""
        self._channels.clear()

    def cut(self, lane: Lane) -> None:
        """Break the connections of a lane's consumers; each makes a new one."""
        for source in self.channel(lane).sources():
            source.cut()


def channel_of(manner: str) -> Callable[[Clock, Timing], Channel]:
    """What makes a channel of this manner. Raises `KeyError` for one there is not."""
    # the channels' modules build on this one
    from autograder.sim.log import LogChannel  # noqa: PLC0415 - see above
    from autograder.sim.queues import QueueChannel, StreamChannel  # noqa: PLC0415 - the same

    return {"queue": QueueChannel, "stream": StreamChannel, "log": LogChannel}[manner]
