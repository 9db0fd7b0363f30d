"""What a run counts while it goes on, and when it has seen enough of the same."""

from __future__ import annotations

import pytest

from autograder.model import Kind
from autograder.subject.tally import STORM_REPEATS, STORM_REPEATS_IN_ALL, Life, Tally


def told(messages: int, times: int, kind: Kind = Kind.TAKEN) -> Tally:
    tally, life = Tally(), Life(1, 0)
    for _ in range(times):
        for number in range(messages):
            tally.tell(life, kind, f"order-{number}", number + 1, "")
    return tally


def test_one_message_that_goes_round_is_a_storm():
    assert not told(1, STORM_REPEATS).is_storm
    assert told(1, STORM_REPEATS + 1).is_storm


def test_many_that_go_round_are_one_sooner():
    """Each far from being one by itself."""
    rounds = STORM_REPEATS_IN_ALL // 100 + 1
    assert not told(100, rounds).is_storm
    assert told(100, rounds + 1).is_storm


@pytest.mark.parametrize("kind", [Kind.TAKEN, Kind.SETTLED])
def test_many_messages_are_none(kind):
    assert not told(STORM_REPEATS_IN_ALL * 2, 1, kind).is_storm
