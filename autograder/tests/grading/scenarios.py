"""Scenarios for the tests of grading itself."""

from __future__ import annotations

from autograder.checks.pool import no_message_is_lost
from autograder.exam import guarantees


@guarantees(no_message_is_lost)
async def test_ten_orders(exam):
    async with exam.start(workers=2) as run:
        await run.publish(exam.messages(10))
        await run.until(settled=10)


@guarantees(no_message_is_lost)
async def test_held_for_ever(exam):
    async with exam.start(workers=1) as run:
        await run.hold()
        await run.publish(exam.messages(1))
        await run.until(running=1)
        await run.pause()  # a pool that is held would soon be judged as standing
        print("HELD", flush=True)
        await run.until(settled=1, timeout_s=3600)
