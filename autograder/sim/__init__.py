"""The simulation: virtual time, a broker in memory with three manners, and seeded trouble.

A run of seconds takes milliseconds here, and the same seed gives the same history, event for
event, on every machine. What chance decides (how long a delivery takes, when the examiner acts,
what comes twice) is drawn from the seed; callbacks are never shuffled, because correct programs
rely on the order that asyncio promises.

What is not simulated is refused with a sentence (`NotSimulated`): network, threads, processes,
signals, `time.sleep`. Nor are memory limits and a blocked event loop.
"""

from __future__ import annotations

from autograder.sim.clock import Clock
from autograder.sim.loop import Deadlock, Endless, NotSimulated, SimLoop

__all__ = ["Clock", "Deadlock", "Endless", "NotSimulated", "SimLoop"]
