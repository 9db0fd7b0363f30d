from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from autograder.model import Event, History, Kind, failed
from autograder.report.excerpt import draw
from autograder.report.svg import svg
from autograder.report.timeline import Ending, Role, lay_out
from autograder.tests.report import samples


def names(layout):
    return [lane.name for lane in layout.lanes]


def work(layout):
    return [bar for bar in layout.bars if bar.work]


def test_one_delivery_that_goes_well():
    layout = lay_out(samples.correct(1.0, 7))
    assert names(layout) == ["broker", "slot 1"]
    assert [row.word for row in layout.rows] == ["taken", "started", "finished", "acked", "settled"]
    assert [row.time for row in layout.rows][:2] == ["1.000 s", "1.000 s"]
    assert (layout.rows[0].lane, layout.rows[0].towards) == (0, 1)  # broker to slot
    assert (layout.rows[3].lane, layout.rows[3].towards) == (1, 0)  # and the ack back
    hand, handler = layout.bars
    assert (hand.first, hand.last) == (0, 4)
    assert (handler.first, handler.last, handler.ending) == (1, 2, Ending.FINISHED)


def test_deliveries_one_after_the_other_share_a_slot():
    events = [*samples.correct(1.0, 1), *samples.correct(2.0, 2)]
    assert names(lay_out(events)) == ["broker", "slot 1"]


def test_deliveries_at_the_same_time_lie_side_by_side():
    events = sorted(
        [*samples.correct(1.0, 1), *samples.correct(1.01, 2), *samples.correct(1.02, 3)],
        key=lambda event: event.at,
    )
    layout = lay_out(events)
    assert names(layout) == ["broker", "slot 1", "slot 2", "slot 3"]
    assert [bar.lane for bar in work(layout)] == [1, 2, 3]


def test_processes_do_not_share_slots():
    again = [replace(event, process=2, delivery=2) for event in samples.correct(2.0, 1)]
    assert names(lay_out([*samples.correct(1.0, 1), *again]))[1:] == ["p1 slot 1", "p2 slot 1"]


def test_a_kill_cuts_the_bar():
    history, verdict = samples.ack_first()
    layout = draw(verdict, history, rows=9)
    [cut] = [bar for bar in work(layout) if bar.ending is Ending.CUT]
    killed = next(at for at, row in enumerate(layout.rows) if row.word == "killed (SIGKILL)")
    assert cut.last == killed
    assert layout.rows[killed].rule


def test_what_is_settled_too_early_is_in_hand_no_longer():
    taken, started, finished, acked, settled = samples.correct(1.0, 1)
    layout = lay_out([taken, acked, settled, started, finished])
    hand, handler = layout.bars
    assert (hand.first, hand.last) == (0, 2)
    assert (handler.first, handler.last) == (3, 4)


def test_a_kill_of_one_process_leaves_the_other_alone():
    events = [
        samples.of(1.0, Kind.STARTED, 1),
        samples.of(1.1, Kind.STARTED, 2, process=2),
        samples.of(1.2, Kind.FAULT, detail="kill", process=1),
        samples.of(1.3, Kind.FINISHED, 2, process=2),
    ]
    assert [bar.ending for bar in work(lay_out(events))] == [Ending.CUT, Ending.FINISHED]


def test_what_has_no_end_in_the_run_goes_on_below():
    layout = lay_out([samples.of(1.0, Kind.TAKEN, 1), samples.of(1.1, Kind.STARTED, 1)])
    assert [bar.last for bar in layout.bars] == [2, 2]
    assert work(layout)[0].ending is Ending.OPEN


def test_what_began_earlier_comes_from_above():
    [hand, handler] = lay_out([samples.of(1.0, Kind.FINISHED, 1)]).bars
    assert hand.first == -1
    assert handler.first == -1


def test_bars_end_in_the_gap_if_that_event_is_not_shown():
    events = [*samples.correct(1.0, 1), samples.of(5.0, Kind.STOP_SET)]
    layout = lay_out(events, show=[0, 5])
    assert [row.left_out for row in layout.rows] == [0, 4, 0]
    hand, handler = layout.bars
    assert (handler.first, handler.last) == (1, 1)
    assert hand.last == 1


def test_the_excerpt_holds_the_witness_its_deliveries_and_no_more_than_asked():
    history, verdict = samples.ack_first()
    layout = draw(verdict, history, rows=9)
    witness = tuple(row.event for row in layout.rows if row.witness)
    assert witness == verdict.witness
    assert len(layout.rows) <= 9
    assert {"settled", "process ended"} <= {row.word for row in layout.rows}


def test_a_long_witness_is_shown_from_both_ends():
    history, verdict = samples.too_many()
    alone = draw(verdict, None, rows=5)
    assert [row.about for row in alone.rows] == [
        "order-0001",
        "order-0002",
        "",  # 4 events left out
        "order-0007",
        "order-0008",
    ]
    beside = draw(verdict, history, rows=16)
    assert len(beside.rows) <= 16
    assert [row.about for row in beside.rows if row.witness][::7] == ["order-0001", "order-0008"]


def test_a_witness_from_elsewhere_speaks_for_itself():
    _, verdict = samples.ack_first()
    other = History(tuple(samples.correct(1.0, 5)), workers=1)
    for beside in (None, other):
        layout = draw(verdict, beside, rows=9)
        assert tuple(row.event for row in layout.rows) == verdict.witness


def test_no_witness_no_picture():
    assert draw(failed("Nothing to see."), None, rows=9) is None


def test_keys_are_named_where_two_messages_share_one():
    alone = lay_out([samples.of(1.0, Kind.STARTED, 1), samples.of(1.1, Kind.STARTED, 2)])
    assert [row.detail for row in alone.rows] == ["", ""]
    together = lay_out([samples.of(1.0, Kind.STARTED, 1), samples.of(1.1, Kind.STARTED, 5)])
    assert [row.detail for row in together.rows] == ["key k1", "key k1"]


def test_an_empty_run_is_an_empty_picture():
    layout = lay_out([])
    assert layout.rows == layout.lanes == layout.bars == ()
    assert "<svg" in svg(layout, name="x")


def test_every_kind_has_a_lane_a_word_and_a_mark():
    for kind in Kind:
        event = Event(1.0, kind, "order-1", "k", 1, 1, 1, "kill")
        for each in (event, replace(event, delivery=0, message="", process=0)):
            layout = lay_out([each])
            assert layout.rows[0].word
            assert "mark" in svg(layout, name="x")


def test_rows_say_what_waiting_came_to():
    layout = lay_out(
        [
            Event(1.0, Kind.EXPECTED, detail="stalled running=4 seen=1 buffered=36 in_hand=1"),
            Event(1.0, Kind.EXPECTED, detail="met returned=True"),
            Event(1.0, Kind.EXPECTED, detail="something else"),
            Event(1.0, Kind.EXPECTED),
        ]
    )
    assert [row.caption for row in layout.rows] == [
        "waited for 4 running, saw 1: nothing moved any more (36 waiting in the client, 1 in hand)",
        "waited for returned",
        "waited for something else",
        "waited for",
    ]


@pytest.mark.parametrize("seed", range(40))
def test_any_shuffled_run_keeps_slots_apart(seed):
    rng = random.Random(seed)  # noqa: S311 - a test's choice, no secret
    events = []
    for number in range(1, 30):
        start = rng.uniform(0, 5)
        life = samples.correct(start, number, lasts=rng.uniform(0.01, 2))
        events += rng.sample(life, rng.randint(1, 5))
    events.append(samples.of(2.5, Kind.FAULT, detail=rng.choice(["kill", "pause"])))
    events.sort(key=lambda event: event.at)
    show = rng.sample(range(len(events)), rng.randint(1, len(events)))
    layout = lay_out(events, show=show)
    assert [row.event for row in layout.rows if row.event] == [events[at] for at in sorted(show)]
    assert sum(row.left_out for row in layout.rows) == max(show) - min(show) + 1 - len(show)
    hands = sorted(
        (bar for bar in layout.bars if not bar.work), key=lambda bar: (bar.lane, bar.first)
    )
    for one, other in pairwise(hands):
        assert one.first <= one.last
        if one.lane == other.lane:
            assert one.last < other.first
    for bar in layout.bars:
        assert layout.lanes[bar.lane].role is Role.SLOT
        assert -1 <= bar.first <= bar.last <= len(layout.rows)
        assert bar.first < len(layout.rows)
        assert bar.last >= 0
    for narrow in (False, True):
        svg_of(layout, narrow=narrow)


def svg_of(layout, **options):
    return ET.fromstring(svg(layout, name="t1", **options))  # noqa: S314 - we wrote it


@pytest.mark.parametrize("narrow", [False, True])
def test_the_svg_is_sound_labelled_and_of_one_piece(narrow):
    history, verdict = samples.ack_first()
    layout = draw(verdict, history, rows=16)
    drawn = svg_of(layout, narrow=narrow, standalone=True)
    space = "{http://www.w3.org/2000/svg}"
    assert drawn.get("role") == "img"
    assert drawn.get("aria-labelledby") == "t1-title t1-desc"
    assert "events in" in drawn.findtext(f"{space}title")
    assert "4.816 s, examiner: killed (SIGKILL)" in drawn.findtext(f"{space}desc")
    assert int(drawn.get("width")) <= (328 if narrow else 760)
    text = "".join(drawn.itertext())
    assert "acked order-0017" in text
    assert "http" not in svg(layout, name="t1")


@pytest.mark.parametrize("narrow", [False, True])
def test_many_lanes_stay_inside_the_picture(narrow):
    events = [samples.of(1 + number / 1000, Kind.STARTED, number) for number in range(1, 60)]
    drawn = svg_of(lay_out(events), narrow=narrow)
    for text in drawn.iter("text"):
        assert 0 <= float(text.get("x")) <= int(drawn.get("width"))


@pytest.mark.parametrize("narrow", [False, True])
def test_hostile_texts_are_texts(narrow):
    [result, _] = samples.hostile().results
    drawn = svg(draw(result.verdict, result.history, rows=16), name='x"><script>', narrow=narrow)
    assert "<script" not in drawn
    assert "\x1b" not in drawn
    ET.fromstring(drawn)  # noqa: S314 - we wrote it
