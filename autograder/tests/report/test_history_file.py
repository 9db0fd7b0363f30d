from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograder.model import BrokerState, Event, History, Kind, UsageError
from autograder.report import history_file
from autograder.tests.report import samples

TEXT = st.text(st.characters(), max_size=20)
COUNT = st.integers(0, 1_000_000)
EVENTS = st.builds(
    Event,
    at=st.floats(0, 1e6),
    kind=st.sampled_from(Kind),
    message=TEXT,
    key=TEXT,
    delivery=COUNT,
    attempt=COUNT,
    process=COUNT,
    detail=TEXT,
)
HISTORIES = st.builds(
    History,
    events=st.lists(EVENTS, max_size=8).map(tuple),
    workers=COUNT,
    exercise=TEXT,
    test=TEXT,
    engine=TEXT,
    seed=COUNT,
    broker=st.builds(BrokerState, *[st.integers(-1, 100)] * 4),
    truncated=st.booleans(),
)


@given(HISTORIES)
def test_what_is_written_is_read(history):
    lines = list(history_file.to_lines(history))
    assert all(line.isascii() and "\n" not in line for line in lines)
    assert history_file.from_lines(lines) == history


@pytest.mark.parametrize("make", [samples.ack_first, samples.too_many, samples.raised])
def test_a_file_brings_the_run_back(make, tmp_path):
    history, _ = make()
    path = tmp_path / "run.jsonl"
    history_file.write(history, path)
    assert history_file.read(path) == history


def lines():
    return list(history_file.to_lines(samples.too_many()[0]))


def changed(line, **values):
    return json.dumps({**json.loads(line), **values})


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (list, "empty file"),
        (lambda: lines()[:-1], "41 events were written, 40 are there"),
        (lambda: [*lines()[:3], "{", *lines()[4:]], "Line 4"),
        (lambda: lines()[1:], "the first line must say"),
        (lambda: ["[]", *lines()[1:]], "Line 1"),
        (lambda: [changed(lines()[0], schema="ackademy-history/2")], "ackademy-history/1"),
        (lambda: [changed(lines()[0], workers="4")], "'workers' must be a int"),
        (lambda: [changed(lines()[0], broker={"odd": 1})], "Line 1"),
        (lambda: [*lines()[:2], changed(lines()[2], kind="odd")], "'odd' is not a valid Kind"),
        (lambda: [*lines()[:2], changed(lines()[2], at="1")], "'at' must be a number"),
        (lambda: [*lines()[:2], changed(lines()[2], odd=1)], "Line 3"),
        (lambda: [*lines()[:2], changed(lines()[2], key=1)], "must be strings"),
        (lambda: [*lines()[:2], changed(lines()[2], delivery="1")], "must be whole numbers"),
    ],
)
def test_what_is_no_history_is_refused_by_line(broken, sentence):
    with pytest.raises(UsageError, match=sentence):
        history_file.from_lines(broken())


def test_blank_lines_do_no_harm():
    assert history_file.from_lines(["", *lines(), ""]) == samples.too_many()[0]


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="missing"):
        history_file.read(tmp_path / "missing.jsonl")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="binary"):
        history_file.read(tmp_path / "binary")


def test_times_survive_to_the_last_bit():
    event = Event(math.pi / 3, Kind.TAKEN)
    again = history_file.from_lines(history_file.to_lines(History((event,), workers=1)))
    assert again.events[0].at == event.at
