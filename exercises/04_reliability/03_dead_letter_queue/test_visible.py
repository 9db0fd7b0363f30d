"""A part of what grades your consumer, for you to read. `ackademy check` runs these and harder ones.

Your module runs in a process of its own, against a real broker. A scenario publishes orders, puts
letters among the dead ones, and does what operations do. It asserts nothing. The guarantees named
above it judge what happened, and what the examiner finds at the end.
"""

from __future__ import annotations

from autograder.checks.dead_letter_queue import (
    attempts_are_exact,
    dead_letter_tells_its_story,
    dead_letters_are_confirmed_first,
    healthy_messages_flow,
    no_message_is_lost,
    permanent_goes_straight_to_dlq,
    replay_is_bounded,
    replay_keeps_the_message,
    replay_publishes_first,
    shutdown_drains_in_flight,
    stop_means_no_new_work,
)
from autograder.exam import Exam, guarantees

STORY = {
    "dead-letter-reason": "this customer does not exist",
    "dead-letter-error": "Permanent",
    "dead-letter-attempts": "1",
    "dead-letter-first-failed-at": "2026-11-27T08:00:00+00:00",
    "dead-letter-last-failed-at": "2026-11-27T08:00:00+00:00",
}


@guarantees(attempts_are_exact, healthy_messages_flow, no_message_is_lost)
async def test_some_orders_heal(exam: Exam) -> None:
    flaky = exam.messages(2, transient=2)  # raise Transient twice, then succeed
    fine = exam.messages(5)
    async with exam.start(max_attempts=3) as run:
        await run.publish(flaky)
        await run.until(failed=1)
        await run.publish(fine)
        await run.until(settled=len(flaky) + len(fine))


@guarantees(
    permanent_goes_straight_to_dlq, dead_letter_tells_its_story, dead_letters_are_confirmed_first
)
async def test_some_orders_never_work(exam: Exam) -> None:
    broken = exam.messages(2, keys=2, headers={"trace": "7"}, permanent=True)
    garbage = exam.messages(1, body=b"\xff\xfe")  # not even text
    stubborn = exam.messages(1, transient=99)  # three attempts, and then a letter
    async with exam.start(max_attempts=3) as run:
        await run.publish([*broken, *garbage, *stubborn])
        await run.until(dead_lettered=4)


@guarantees(stop_means_no_new_work, shutdown_drains_in_flight)
async def test_stop(exam: Exam) -> None:
    async with exam.start(max_attempts=3) as run:
        await run.hold()  # every handler that starts now waits at a gate
        await run.publish(exam.messages(4))
        await run.until(started=1)
        await run.stop()  # SIGTERM: the stop event is set while a handler is busy
        await run.release()
        await run.until(returned=True)


@guarantees(replay_is_bounded, replay_publishes_first, replay_keeps_the_message)
async def test_replaying_three_of_five(exam: Exam) -> None:
    letters = exam.messages(5, keys=2, headers=STORY | {"trace": "7"})
    async with exam.start(function="replay", limit=3, letters=letters) as run:
        await run.until(returned=True)
