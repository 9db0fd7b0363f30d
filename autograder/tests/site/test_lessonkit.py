"""What lessons stand on: the stand-in database, the figures of a run, pictures for both palettes."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path

import pytest

pytest.importorskip("IPython", reason="the site's tools are the group `docs`")

from autograder.model import Event, History, Kind
from autograder.report import svg

LESSONS = Path(__file__).parents[3] / "lessons"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(LESSONS))


@pytest.fixture
def shown(monkeypatch):
    pictures = importlib.import_module("lessonkit.pictures")
    made = []
    monkeypatch.setattr(pictures, "display", lambda what, **_: made.append(what))
    return made


async def test_a_database_serves_so_many_at_a_time_and_then_has_no_more_patience():
    kit = importlib.import_module("lessonkit.database")
    database = kit.Database(connections=2, query_s=3600, patience_s=0.01)
    served = [asyncio.create_task(database.query()) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(kit.PoolTimeout, match=r"no connection within 0.01 s"):
        await database.query()
    for each in served:
        each.cancel()
    await asyncio.gather(*served, return_exceptions=True)
    database.query_s = 0
    await database.query()  # connections come back however a query ends


def history(*kinds):
    events = [
        Event(at * 0.5, kind, message=name, delivery=int(name))
        for at, (kind, name) in enumerate(kinds)
    ]
    return History(tuple(events), workers=2)


RUN = history(
    (Kind.TAKEN, "1"), (Kind.TAKEN, "2"), (Kind.STARTED, "1"), (Kind.FINISHED, "1"),
    (Kind.STARTED, "2"), (Kind.ACK, "1"), (Kind.SETTLED, "1"), (Kind.FAILED, "2"), (Kind.TAKEN, "3"),
)  # fmt: skip


def test_a_run_in_numbers():
    kit = importlib.import_module("lessonkit.observation")
    seen = kit.Observation(
        RUN, published=5, seconds=4, samples=(), memory_bytes=0, unheard=0, returned=True,
        errors=kit.Counter(Oops=1),
    )  # fmt: skip
    assert (seen.finished, seen.failed, seen.most_in_hand, seen.most_at_work) == (1, 1, 2, 1)
    assert seen.per_second == pytest.approx(2.0)
    assert str(seen).splitlines() == [
        "finished  1 order, 2 a second",
        "failed    1 order (Oops 1)",
        "at work   1 handler at most",
        "in hand   2 orders at most",
        "settled   1 of 5 orders",
    ]


def test_a_timeline_has_words_and_reaches_to_the_end(shown):
    kit = importlib.import_module("lessonkit.pictures")
    kit.timeline(RUN, ["2"], caption="The second fails & stays.")
    (figure,) = shown
    assert "<title" in figure.data
    assert "<desc" in figure.data
    assert "The second fails &amp; stays." in figure.data
    assert figure.data.count("<svg") == 2  # wide and narrow
    assert ">taken</tspan> 3" in figure.data  # the run's last event
    assert 'class="band"' not in figure.data


def test_a_plot_wears_the_colours_of_the_page(shown):
    pytest.importorskip("matplotlib")
    kit = importlib.import_module("lessonkit.pictures")
    with kit.plot(title="Rates", caption="What & why.", alt="It rises to <30>.") as axes:
        axes.plot([1, 2], [3, 4], color=svg.LIGHT.work)
        axes.set(xlabel="workers")
    (figure,) = shown
    assert "var(--tl-work)" in figure.data
    assert "var(--tl-text)" in figure.data
    assert svg.LIGHT.work not in figure.data
    assert "It rises to &lt;30&gt;." in figure.data
    assert 'role="img"' in figure.data
    assert ">workers</text>" in figure.data  # text stays text


def test_facts_are_given_and_not_shown(shown):
    kit = importlib.import_module("lessonkit.pictures")
    kit.facts(rate="19", orders=10_000)
    assert shown == [{kit.FACTS: {"rate": "19", "orders": "10,000"}}]


def test_a_crash_runs_the_cells_own_functions_as_a_module():
    kit = importlib.import_module("lessonkit.crash")
    text = kit._module(pool, (helps,))
    compiled = compile(text, "consumer.py", "exec")
    space = {}
    exec(compiled, space)  # noqa: S102 - our own text
    assert "await pool(source, handle, workers=workers)" in text
    assert asyncio.iscoroutinefunction(space["main"])


async def helps():
    pass


async def pool(source, handle, workers):
    await helps()
