"""One result per guarantee: the worst verdict counts, and doing nothing earns nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autograder.checks import pool
from autograder.grading.verdicts import Judged, judge, put_to_the_test, results
from autograder.model import (  # fmt: skip
    Event,
    Exercise,
    History,
    Kind,
    Status,
    Verdict,
    failed,
    inconclusive,
    passed,
)
from autograder.tests.checks.build import Story

NAME = "stop_means_no_new_work"
EXERCISE = Exercise("a/b", "t", "port", "m", "run", ("nats",), 5, {NAME: 2}, Path(), Path())
WORK = Event(1.0, Kind.FINISHED, "a", delivery=1, process=1)
STORM = Event(9.0, Kind.EXPECTED, detail="storm settled=1 seen=0")
LATE = Event(9.0, Kind.EXPECTED, detail="late settled=1 seen=0")


def judged(verdict: Verdict, *events: Event, truncated: bool = False) -> Judged:
    return Judged(History(events, 1, truncated=truncated), {NAME: verdict})


def status(*runs: Judged) -> Status:
    (result,) = put_to_the_test(results(EXERCISE, runs), runs)
    return result.verdict.status


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([judged(passed(), WORK), judged(passed(), WORK)], Status.PASS),
        ([judged(passed(), WORK), judged(failed("broken"), WORK)], Status.FAIL),
        ([judged(inconclusive("late"), WORK, LATE), judged(failed("broken"))], Status.FAIL),
        ([judged(passed(), WORK), judged(inconclusive("late"), LATE)], Status.INCONCLUSIVE),
        (
            [judged(passed(), WORK), judged(inconclusive("cut"), truncated=True)],
            Status.INCONCLUSIVE,
        ),
        ([judged(passed(), WORK), judged(inconclusive("never applied"), WORK)], Status.PASS),
        ([judged(passed(), WORK), judged(inconclusive("a storm"), STORM)], Status.INCONCLUSIVE),
        ([judged(inconclusive("never applied"), WORK)], Status.INCONCLUSIVE),
        ([], Status.INCONCLUSIVE),
    ],
)
def test_the_worst_verdict_counts(runs, expected):
    assert status(*runs) is expected


def test_a_promise_kept_by_doing_nothing_is_no_pass():
    assert status(judged(passed("it took nothing and returned"))) is Status.INCONCLUSIVE
    assert status(judged(failed("it raised"))) is Status.FAIL


def test_the_shortest_of_equal_witnesses_speaks():
    long, short = judged(failed("long"), WORK, WORK), judged(failed("short"), WORK)
    (result,) = results(EXERCISE, [long, short])
    assert result.verdict.observed == "short"
    assert result.histories == 2


def test_a_promise_is_broken_wherever_it_is_seen_broken():
    """Judged where nobody declared it: a fail counts, and nothing else does."""
    story = Story(1).publish("a").begin().take("a").start("a").ack("a").finish("a")
    declared = [pool.no_message_is_lost]
    points = {"no_message_is_lost": 1, "ack_follows_work": 1, "concurrency_is_bounded": 1}
    exercise = replace(EXERCISE, points=points)
    (found,) = judge(exercise, declared, [story.history()])
    assert {name: each.status for name, each in found.verdicts.items()} == {
        "no_message_is_lost": Status.PASS,
        "ack_follows_work": Status.FAIL,
    }
