"""What the dead letters' lesson stands on: a queue that outlives its consumers, and what they did to it."""

from __future__ import annotations

import asyncio
import importlib
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("IPython", reason="the site's tools are the group `docs`")

from autograder.brokers import acquire
from autograder.messaging import Permanent
from autograder.model import Call, Event, History, Kind
from autograder.report import svg
from autograder.subject.module import load

LESSONS = Path(__file__).parents[3] / "lessons"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(LESSONS))


def event(at, kind, number, delivery=0):
    return Event(at, kind, f"order-{number:02d}", delivery=delivery, process=1)


NIGHT = (
    event(0.1, Kind.STARTED, 1, 1), event(0.2, Kind.FINISHED, 1, 1),
    event(0.3, Kind.STARTED, 2, 2), event(0.4, Kind.FAILED, 2, 2),
    event(0.5, Kind.STARTED, 1, 3), event(0.6, Kind.FINISHED, 1, 3),
    event(0.7, Kind.STARTED, 2, 4), event(0.8, Kind.FAILED, 2, 4),
    event(0.9, Kind.DEAD_LETTERED, 2),
    event(1.0, Kind.STARTED, 3, 5),
)  # fmt: skip


def shift(*events, raised=()):
    kit = importlib.import_module("lessonkit.shift")
    history = History(events or NIGHT, workers=1)
    return kit.Shift(history, waiting=1, letters=1, raised=Counter(raised), processor=0.987)


def test_a_shift_in_numbers():
    seen = shift(raised=["KeyError", "KeyError"])
    assert str(seen).splitlines() == [
        "printed    1 order",  # order-01 came twice
        "failed     2 attempts",
        "given up   0 orders",
        "letters    1",
        "waiting    1 order",
        "processor  99% of a core",
        "restarted  2 times (KeyError)",
    ]
    assert seen.attempts_of == {"order-01": 2, "order-02": 2}  # the third has not ended
    assert [each.finished for each in seen.attempts] == [True, False, True, False]
    assert seen.took_s == 0.9
    assert shift(event(0.1, Kind.TAKEN, 1)).took_s == 0.0


def test_the_picture_of_a_shift_says_in_words_what_it_shows(monkeypatch):
    pytest.importorskip("matplotlib")
    pictures = importlib.import_module("lessonkit.pictures")
    shown = []
    monkeypatch.setattr(pictures, "display", lambda what, **_: shown.append(what))
    kit = importlib.import_module("lessonkit.shift_picture")
    kit.show_shift(shift(), title="A night", caption="Look.", orders=3, until_s=2)
    (figure,) = shown
    assert "1 orders are printed; 1 become dead letters" in figure.data
    assert "order-01 is tried 2 times. 1 orders still wait at the end." in figure.data
    assert ">dead letter</text>" in figure.data
    assert "var(--tl-good)" in figure.data
    assert svg.LIGHT.good not in figure.data


def test_of_very_many_marks_a_part_is_drawn():
    kit = importlib.import_module("lessonkit.shift_picture")
    storm = [
        event(at, kind, 4, delivery)
        for delivery in range(1, 5_001)
        for at, kind in ((delivery, Kind.STARTED), (delivery + 0.5, Kind.FAILED))
    ]
    marks = kit._marks(shift(*storm), finished=False)
    assert 300 < len(marks) <= kit._MOST_MARKS
    assert marks[-1][0] > 4_900  # evenly: to the end


async def test_a_database_goes_away_and_comes_back():
    kit = importlib.import_module("lessonkit.database")
    database = kit.Database(connections=1, query_s=0)
    database.go_away(after=1, for_s=3600)
    await database.query()
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError, match="does not answer"):
            await database.query()
    database.go_away(after=0, for_s=0)  # an outage that is announced ends the one before
    await database.query()


async def test_a_letter_that_nobody_hears_is_written_by_a_module_of_the_cells_own(tmp_path):
    kit = importlib.import_module("lessonkit.unheard")
    file = tmp_path / "consumer.py"
    file.write_text(kit._module(consumer, (told,)))
    main = load(file, Call("main", ("source", "handle", "dead_letters"), ("max_attempts", "stop")))
    source, letters = [1, 2], []
    await main(source, None, letters, max_attempts=3, stop=None)
    assert letters == [(1, 3), (2, 3)]


def told(message, attempts):
    return message, attempts


async def consumer(source, dead_letters, max_attempts, pause_s=0.5):
    for message in source:
        await asyncio.sleep(0)
        dead_letters.append(told(message, max_attempts))


@pytest.fixture
async def queue(monkeypatch):
    with acquire("nats") as nats:
        kit = importlib.import_module("lessonkit.queues")
        monkeypatch.setattr(kit, "server", lambda: nats)
        opened = await kit.open_queue()
        try:
            yield opened
        finally:
            await opened.close()


async def sets_aside(source, handle, dead_letters, max_attempts):
    async for message in source:
        try:
            await handle(message)
        except Permanent as error:
            why = {"dead-letter-reason": str(error)}
            await dead_letters.publish(message.body, id=message.id, headers=why)
        except ValueError:
            again = message.attempt < max_attempts
            await message.nack(requeue=again)
            if not again:
                raise
            continue
        await message.ack()


async def replays(dead_letters, publish, limit):
    async for letter in dead_letters:
        await publish(letter.body, id=letter.id)
        await letter.ack()
        limit -= 1
        if not limit:
            break


@pytest.mark.nats
async def test_a_queue_outlives_its_consumers_and_keeps_their_letters(queue):
    async def handle(message):
        if message.body == b"closed":
            raise Permanent(message.id)
        if message.body == b"odd":
            raise ValueError

    async def mended(message):
        pass

    await queue.fill([b"closed", b"odd", b"fine", b"closed"], handed_out=1)
    seen = await queue.work(sets_aside, handle, seconds=20, max_attempts=2)
    assert (seen.finished, seen.failed, seen.given_up) == (1, 4, 1)
    assert (seen.letters, seen.waiting, seen.raised) == (2, 0, {"ValueError": 1})
    for _ in range(2):  # looking takes nothing away, and leaves them in order
        letters = await queue.letters()
        assert [each.id for each in letters] == ["order-01", "order-04"]
        assert letters[0].headers["dead-letter-reason"] == "order-01"
    assert (await queue.replay(replays, limit=1)).letters == 1
    seen = await queue.work(sets_aside, mended, seconds=20)
    assert [each.message for each in seen.attempts] == ["order-01"]
    seen = await queue.work(sets_aside, mended, seconds=20, replay=replays, limit=1)
    assert (seen.finished, seen.replayed, seen.letters) == (1, 1, 0)


@pytest.mark.nats
async def test_who_works_for_ever_is_ended(queue):
    async def stubborn(source, handle):
        async for message in source:
            with pytest.raises(ValueError, match="never"):
                await handle(message)
            await message.nack(requeue=True)

    async def fails(message):
        raise ValueError("never")

    await queue.fill([b"poison", b"fine"], handed_out=1)
    seen = await queue.work(stubborn, fails, seconds=0.5)
    assert (seen.finished, seen.waiting, set(seen.attempts_of)) == (0, 2, {"order-01"})
