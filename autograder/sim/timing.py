"""Draws of one run's latencies, in seconds."""

from __future__ import annotations

from autograder.sim.schedule import PACES, Schedule


class Timing:
    """How long each thing takes this time. One sequence of draws for each kind of thing."""

    def __init__(self, schedule: Schedule) -> None:
        pace = PACES[schedule.pace]
        self._pace = pace
        self._delivering = schedule.chance("deliver")
        self._settling = schedule.chance("settle")
        self._publishing = schedule.chance("publish")
        self._reacting = schedule.chance("react")
        self._storing = schedule.chance("store")
        self.other = schedule.chance("other")  # for what is no latency

    def deliver(self) -> float:
        """From the broker to the buffer."""
        return self._pace.deliver(self._delivering)

    def settle(self) -> float:
        """An ack and its answer; any other question to the broker takes as long."""
        return self._pace.settle(self._settling)

    def store(self) -> float:
        """A question to a database, and its answer: as long as one to the broker."""
        return self._pace.settle(self._storing)

    def publish(self) -> float:
        """Until a message is confirmed."""
        return self._pace.publish(self._publishing)

    def react(self) -> float:
        """Between a condition that came to hold and what the scenario does next."""
        return self._pace.react(self._reacting)
