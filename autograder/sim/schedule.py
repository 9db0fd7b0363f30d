"""What chance decides in a run: how long things take, in what order, and when the examiner acts.

A schedule is a few words and a seed, so that it fits on a command line; drawn from it, everything
repeats. Latencies are the only source of disorder: callbacks stay first in, first out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MANNERS = ("stream", "queue", "log")
"""How a broker behaves: JetStream, RabbitMQ, Kafka."""

REAL = {"stream": "nats", "queue": "rabbitmq", "log": "kafka"}
"""The real engine that a manner stands for."""

TROUBLES = ("none", "duplicates", "cuts")
"""What goes wrong by itself, in scenarios that say they bear it: messages that were published twice
because a confirmation was lost, and connections that break."""

Draw = Callable[[random.Random], float]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take, in seconds, drawn anew each time."""

    deliver: Draw  # from the broker to the consumer's buffer
    settle: Draw  # an ack and its answer
    publish: Draw  # until the broker confirms
    react: Draw  # between what a scenario waited for and what it does next


def _always(seconds: float) -> Draw:
    return lambda _: seconds


def _one_of(*seconds: float) -> Draw:
    return lambda chance: chance.choice(seconds)


PACES: Mapping[str, Pace] = {
    # all equal: what ends at the same time shows what depends on order
    "even": Pace(_always(0.001), _always(0.001), _always(0.001), _always(0.0)),
    # some are a hundred times as long as others
    "spread": Pace(
        _one_of(0.0002, 0.001, 0.01),
        _one_of(0.0005, 0.002, 0.05),
        _one_of(0.0005, 0.005),
        _one_of(0.0, 0.0003, 0.003, 0.03),
    ),
    # no time at all: takes and settlements are done before anybody else had a turn
    "instant": Pace(_always(0.0), _always(0.0), _always(0.0), _always(0.0)),
    # settlements stay away for long: what does not wait for them runs ahead
    "slow settling": Pace(
        _always(0.0002), _one_of(0.05, 0.2), _always(0.001), _one_of(0.0, 0.001, 0.1)
    ),
    # messages trickle in: consumers are idle in between
    "slow delivery": Pace(
        _one_of(0.005, 0.05), _always(0.0005), _always(0.001), _one_of(0.0, 0.01)
    ),
}


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run's chance. The same words and the same seed give the same history."""

    seed: int
    manner: str = "stream"
    pace: str = "even"
    trouble: str = "none"

    @classmethod
    def of(cls, seed: int) -> Schedule:
        """The schedule of a seed.

        Three seeds see each manner, nine each manner with each trouble, fifteen each at each pace.
        """
        turn, number = divmod(seed - 1, len(MANNERS))
        paces = list(PACES)
        trouble = TROUBLES[turn % len(TROUBLES)]
        return cls(seed, MANNERS[number], paces[(turn + number) % len(paces)], trouble)

    def chance(self, purpose: str) -> random.Random:
        """Draws for one purpose, so that one draw more here changes nothing there."""
        return random.Random(f"{purpose} {self.manner} {self.pace} {self.seed}")  # noqa: S311 - repeatable, not secret


CALM = "calm"


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One simulated run by its name, short enough to be typed: `test_a_backlog@4/even/8/calm`.

    The scenario, the seed, and where it is not what the seed says: the pace, one message of how
    many, and that nothing goes wrong by itself. The seed stands for the manner, too.
    """

    scenario: str
    schedule: Schedule
    share: int = 1

    def __str__(self) -> str:
        usual = Schedule.of(self.schedule.seed)
        rest = f"/{self.schedule.pace.replace(' ', '-')}/{self.share}"
        if self.schedule == usual and self.share == 1:
            rest = ""
        elif self.schedule.trouble != usual.trouble:
            rest += f"/{CALM}"
        return f"{self.scenario}@{self.schedule.seed}{rest}"

    @classmethod
    def read(cls, name: str) -> Rehearsal:
        """The run of this name. Raises `ValueError` for a name that is none."""
        scenario, _, rest = name.partition("@")
        seed, *words = rest.split("/")
        usual = Schedule.of(int(seed))
        if not scenario or usual.seed < 1 or len(words) not in {0, 2, 3}:
            raise ValueError(name)
        if not words:
            return cls(scenario, usual)
        pace, share = words[0].replace("-", " "), int(words[1])
        if pace not in PACES or share < 1 or words[2:] not in ([], [CALM]):
            raise ValueError(name)
        trouble = TROUBLES[0] if words[2:] else usual.trouble
        return cls(scenario, Schedule(usual.seed, usual.manner, pace, trouble), share)
