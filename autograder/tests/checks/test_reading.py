"""How the rare events are read: processes, expectations, levels."""

from __future__ import annotations

import gc
import weakref

from hypothesis import given
from hypothesis import strategies as st

from autograder.checks.expectations import read_expectations
from autograder.checks.ledger import Level, ids, levels
from autograder.checks.lives import NEVER, read_lives
from autograder.checks.phrases import some, witness
from autograder.model import Event, History, Kind
from autograder.tests.checks.build import Story


def test_a_life_knows_when_it_was_told_to_end_and_when_it_did():
    history = Story().begin().stop().returned().begin().kill().history()
    first, second = read_lives(history).values()
    kinds = [event.kind for event in history.events]
    assert first.told == kinds.index(Kind.FAULT)
    assert first.over == kinds.index(Kind.RUN_RETURNED)
    assert second.told == second.over == second.killed < NEVER


def test_work_that_kills_its_process_is_a_kill():
    history = Story().begin().fault("died at work").say(Kind.EXITED, detail="status 42").history()
    assert read_lives(history)[1].killed == 2


def test_a_fault_without_a_number_meets_the_process_of_its_day():
    fault = Event(1.0, Kind.FAULT, detail="cancel")
    history = Story().begin().returned().begin().history()
    lives = read_lives(History((*history.events, fault), 1))
    assert (lives[1].cancelled, lives[2].cancelled) == (NEVER, len(history.events))


def test_an_expectation_keeps_conditions_and_figures_apart():
    text = "stalled settled=1 seen=1 running=4 seen=3 buffered=36 in_hand=5 busy=3 held=2"
    (read,) = read_expectations(Story().begin().expect(text).history())
    assert read.wanted == {"settled": 1, "running": 4}
    assert read.seen == {"settled": 1, "running": 3}
    assert (read.busy, read.held, read.in_hand) == (3, 2, 5)
    assert not read.about_the_end


def test_a_flag_may_stand_without_a_number():
    for text in ("late returned", "late returned=True", "late returned=1 seen=0"):
        (read,) = read_expectations(Story().begin().expect(text).history())
        assert read.about_the_end


def test_of_too_many_events_the_witness_keeps_both_ends():
    history = Story().publish(*"abcdefgh").history()
    shown = witness(history, [99, -1, *range(16), 3])
    assert shown == (*history.events[:4], *history.events[-4:])


def test_some_names_count_the_rest():
    assert some("aabc") == "a, b, c"
    assert some("abcde") == "a, b, c and 2 more"
    assert some(["", "a"]) == "(no id), a"


def test_what_is_remembered_belongs_to_one_history_and_does_not_keep_it():
    first, second = (Story().publish(name).history() for name in "ab")
    for _ in range(2):
        assert ids(first, Kind.CONFIRMED) == {"a"}
        assert ids(second, Kind.CONFIRMED) == {"b"}
        assert ids(second, Kind.TAKEN) == frozenset()
    gone = weakref.ref(second)
    del second
    gc.collect()
    assert gone() is None


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 5), st.integers(0, 45))
def test_a_level_agrees_with_counting(moves, limit, since):
    events, count, counts = [], 0, []
    for place, move in enumerate(moves):
        opens = move or count == 0  # nothing closes that is not open
        count += 1 if opens else -1
        counts.append(count)
        events.append(Event(0.0, Kind.STARTED if opens else Kind.FINISHED, delivery=place))
    level = levels(History(tuple(events), 1), Kind.STARTED, (Kind.FINISHED,)).get(0, Level())
    above = [
        place
        for place, count in enumerate(counts)
        if count > limit and place >= since and events[place].kind is Kind.STARTED
    ]
    assert level.peak() == max(counts, default=0)
    assert level.above(limit, since=since) == min(above, default=NEVER)
