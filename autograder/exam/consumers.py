"""The processes of a run that live at the same time: one, or two consumers of one subscription.

The newer one is the run's process, as there always is one: what a scenario does to "the process" it
does to that. The older one is there to have something in hand meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from autograder.model import GraderError

if TYPE_CHECKING:
    from autograder.exam.process import Subject
    from autograder.exam.recorder import Life
    from autograder.exam.setup import Setup
    from autograder.subject.tally import Tally

_WITH_TWO = ("kill", "terminate", "lease-")
"""Faults that are clear in the presence of two: they meet both, or neither."""


class Consumer(NamedTuple):
    """A process, and what is known of it."""

    subject: Subject
    life: Life


def alone(setup: Setup, tally: Tally) -> None:
    """Raise `GraderError` unless a second consumer can be beside the process there is."""
    if "source" not in setup.call.names:
        raise GraderError(f"{setup.call} is given no source: nobody can consume beside it.")
    if setup.proxy:
        raise GraderError(
            "With a proxy a run has one consumer: nobody could say whose network it is."
        )
    if not tally.life.number or tally.life.gone:
        raise GraderError("There is no consumer that another could be beside: use restart().")
    if len(tally.lives) > 1:
        raise GraderError("There are two consumers already.")


def shown_with_two(tally: Tally, fault: str) -> None:
    """Raise `GraderError` for a fault of which nobody could say which of two consumers it meets."""
    if len(tally.lives) > 1 and not fault.startswith(_WITH_TWO):
        raise GraderError(
            f"With two consumers there is no {fault}: it is not said whose it would be."
        )
