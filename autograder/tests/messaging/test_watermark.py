"""The number that Kafka is told: never above what is unfinished, never below what it could be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograder.messaging.watermark import (
    METADATA_LIMIT,
    Watermark,
    attempts_as_text,
    attempts_from_text,
)


def test_nothing_delivered_commits_where_reading_began():
    assert Watermark(7).committable == 7


def test_the_lowest_unfinished_holds_it():
    watermark = Watermark(5)
    for offset in 5, 6, 7:
        watermark.deliver(offset)
    watermark.finish(6)
    watermark.finish(7)
    assert (watermark.committable, watermark.window) == (5, 3)
    watermark.finish(5)
    assert (watermark.committable, watermark.window) == (8, 0)


def test_gaps_are_passed():
    watermark = Watermark(0)
    for offset in 3, 10, 11, 40:
        watermark.deliver(offset)
    watermark.finish(3)
    assert watermark.committable == 10
    watermark.finish(11)
    watermark.finish(10)
    assert watermark.committable == 40
    watermark.finish(40)
    assert watermark.committable == 41


def test_a_later_delivery_holds_it_again():
    watermark = Watermark(0)
    watermark.deliver(0)
    watermark.finish(0)
    watermark.deliver(9)
    assert watermark.committable in (1, 9)  # both are right: there is nothing from 1 to 8
    watermark.finish(9)
    assert watermark.committable == 10


@pytest.mark.parametrize("offset", [4, 5])
def test_offsets_only_ascend(offset):
    watermark = Watermark(0)
    watermark.deliver(5)
    with pytest.raises(ValueError, match="after 5"):
        watermark.deliver(offset)


def test_only_what_was_delivered_is_finished_and_once():
    watermark = Watermark(2)
    for offset in 2, 3:
        watermark.deliver(offset)
    watermark.finish(3)
    for offset in 1, 3, 4:
        with pytest.raises(ValueError, match="not unfinished"):
            watermark.finish(offset)
    watermark.finish(2)
    with pytest.raises(ValueError, match="not unfinished"):
        watermark.finish(2)


@st.composite
def histories(draw):
    """Ascending offsets with gaps, and their finishes in any order, mixed among the deliveries."""
    start = draw(st.integers(0, 50))
    gaps = draw(st.lists(st.integers(1, 5), min_size=1, max_size=60))
    offsets, at = [], start - 1
    for gap in gaps:
        at += gap
        offsets.append(at)
    steps: list[tuple[str, int]] = []
    delivered: list[int] = []
    waiting = list(offsets)
    while waiting or delivered:
        if waiting and (not delivered or draw(st.booleans())):
            delivered.append(waiting.pop(0))
            steps.append(("deliver", delivered[-1]))
        else:
            steps.append(("finish", delivered.pop(draw(st.integers(0, len(delivered) - 1)))))
    return start, steps


@given(histories())
def test_it_equals_the_definition_at_every_step(history):
    start, steps = history
    watermark = Watermark(start)
    unfinished: set[int] = set()
    highest, last = start - 1, start
    for step, offset in steps:
        if step == "deliver":
            watermark.deliver(offset)
            unfinished.add(offset)
            highest = offset
        else:
            watermark.finish(offset)
            unfinished.remove(offset)
        assert last <= watermark.committable  # it never goes back
        last = watermark.committable
        if unfinished:
            assert watermark.committable <= min(unfinished)  # nothing unfinished is lost
            assert not [o for _, o in steps if watermark.committable < o < min(unfinished)]
        else:
            assert watermark.committable == highest + 1
    assert watermark.window == 0


@given(
    st.integers(0, 2**40),
    st.dictionaries(st.integers(0, 10_000), st.integers(1, 1_000), max_size=50),
)
def test_attempts_come_back(base, distances):
    attempts = {base + distance: tried for distance, tried in distances.items()}
    assert attempts_from_text(attempts_as_text(attempts, base), base) == attempts


def test_attempts_that_do_not_fit_are_left_out_from_the_top():
    attempts = {1_000_000 + n: 3 for n in range(5_000)}
    text = attempts_as_text(attempts, 1_000_000)
    assert len(text) <= METADATA_LIMIT
    kept = attempts_from_text(text, 1_000_000)
    assert len(kept) > 400
    assert kept == {1_000_000 + n: 3 for n in range(len(kept))}


@pytest.mark.parametrize("text", ["", "somebody else's", "1:x", "-1:2", "1:2 3"])
def test_foreign_metadata_counts_as_none(text):
    assert attempts_from_text(text, 0) == {}
