"""Runs with dead letters, the same on a real broker and in the simulation."""

from __future__ import annotations

import pytest

from autograder.exam import Exam
from autograder.model import Call, Content, GraderError, Kind

CALLS = {
    "run": Call.read("run", "source, handle, dead_letters, *, max_attempts, stop"),
    "replay": Call.read("replay", "dead_letters, publish, *, limit"),
    "count": Call.read("count", "source, *, stop"),
}

CONSUMER = """
import asyncio
from autograder.messaging import PublishFailed

async def run(source, handle, dead_letters, *, max_attempts, stop):
    async def close():
        await stop.wait()
        await source.stop_receiving()
    closing = asyncio.create_task(close())
    async for message in source:
        try:
            await handle(message)
        except Exception as error:
            headers = {**message.headers, "why": str(error)}
            try:
                await dead_letters.publish(message.body, id=message.id, key=message.key, headers=headers)
            except PublishFailed:
                await message.nack(requeue=True, delay_s=0.05)
                continue
        await message.ack()
    await closing

async def replay(dead_letters, publish, *, limit):
    for _ in range(min(limit, await dead_letters.count())):
        letter = await anext(aiter(dead_letters))
        await publish(letter.body, id=letter.id, key=letter.key, headers=letter.headers)
        await letter.ack()

async def count(source, *, stop):
    await stop.wait()
"""


def the_call(function: str) -> Call:
    return CALLS[function or "run"]


class RunsWithLetters:
    """Inherit, and give a fixture `exam` of `CONSUMER`."""

    async def test_what_is_written_is_found(self, exam: Exam):
        [bad] = exam.messages(1, keys=1, headers={"trace": "7"}, permanent=True)
        good = exam.messages(2)
        async with exam.start(max_attempts=1) as run:
            await run.publish([bad, *good])
            await run.until(dead_lettered=1, settled=3)
        [history] = exam.histories
        assert history.of(Kind.SPAWNED)[0].detail == "run max_attempts=1"
        [letter] = history.of(Kind.LETTER_FOUND)
        assert (letter.message, letter.key) == (bad.id, bad.key)
        content, published = Content.read(letter.detail), Content.of(bad.body, bad.headers)
        assert content.body == published.body
        assert content.headers["trace"] == "7"
        assert bad.id in content.headers["why"]
        assert history.broker.dead_letters == 1

    async def test_one_function_after_the_other_in_one_run(self, exam: Exam):
        bad = exam.messages(2, permanent=True)
        async with exam.start(max_attempts=1) as run:
            await run.publish(bad)
            await run.until(dead_lettered=2)
            await run.stop()
            await run.until(exited=True)
            await run.restart(function="replay", limit=1)
            await run.until(returned=True)
        [history] = exam.histories
        assert [event.detail for event in history.of(Kind.SPAWNED)] == ["run max_attempts=1", "replay limit=1"]  # fmt: skip
        assert len(history.of(Kind.REPUBLISHED)) == 1
        assert [event.message for event in history.of(Kind.MESSAGE_FOUND)] == [bad[0].id]
        assert [event.message for event in history.of(Kind.LETTER_FOUND)] == [bad[1].id]
        assert history.broker.waiting == 1

    async def test_letters_that_lie_there_and_a_gate_before_publishing(self, exam: Exam):
        letters = exam.messages(3, headers={"why": "it was late"})
        async with exam.start(function="replay", limit=9, letters=letters) as run:
            await run.hold(letters[1])
            await run.until(republishing=2)
            assert run.count("republished") == 1
            await run.put_letters(letters[:1])
            await run.release()
            await run.until(returned=True)
        [history] = exam.histories
        put = [event.message for event in history.of(Kind.LETTER_PUT)]
        assert put == [each.id for each in (*letters, letters[0])]
        assert [event.message for event in history.of(Kind.LETTER_FOUND)] == [letters[0].id]

    async def test_silence_on_the_way_to_the_letters_alone(self, exam: Exam):
        bad, good = exam.messages(1, permanent=True), exam.messages(3)
        async with exam.start(max_attempts=1, proxy=True) as run:
            await run.letters_down()
            await run.publish(bad)
            await run.until(publish_failed=1)
            await run.publish(good)
            await run.letters_up()
            await run.until(settled=4, dead_lettered=1)
        [history] = exam.histories
        assert [e.detail for e in history.of(Kind.FAULT)] == ["letters-down", "letters-up"]
        assert history.broker.dead_letters >= 1

    async def test_silence_between_the_queue_and_what_publishes_to_it(self, exam: Exam):
        letters = exam.messages(2)
        async with exam.start(function="replay", limit=9, letters=letters, proxy=True) as run:
            await run.hold(letters[1])
            await run.until(republishing=2)
            run.stall()
            await run.release()
            await run.until(publish_failed=1)
            run.heal()
            await run.until(returned=True)
        [history] = exam.histories
        assert [e.detail for e in history.of(Kind.FAULT)] == ["stall", "heal"]
        assert [e.message for e in history.of(Kind.REPUBLISHED)] == [letters[0].id]
        assert [e.message for e in history.of(Kind.LETTER_FOUND)] == [letters[1].id]

    async def test_what_does_not_fit_is_our_mistake(self, exam: Exam):
        async with exam.start(max_attempts=1) as run:
            with pytest.raises(GraderError, match="takes limit, not max_attempts"):
                await run.restart(function="replay", max_attempts=3)
            await run.restart()
            with pytest.raises(GraderError, match="cannot follow"):
                await run.restart(function="count")
            await run.restart()
            await run.until(started=0)
