"""What grades `dead_letter_queue`. Gates decide what waits; nothing here sleeps or is timed.

Each scenario's docstring says which wrong designs it is for; NOTES.md has the table.
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
    "dead-letter-reason": "the database did not answer",
    "dead-letter-error": "Transient",
    "dead-letter-attempts": "5",
    "dead-letter-first-failed-at": "2026-11-27T08:00:00+00:00",
    "dead-letter-last-failed-at": "2026-11-27T08:04:00+00:00",
}


@guarantees(
    attempts_are_exact,
    permanent_goes_straight_to_dlq,
    dead_letter_tells_its_story,
    dead_letters_are_confirmed_first,
    healthy_messages_flow,
    no_message_is_lost,
)
async def test_everything_that_can_fail(exam: Exam) -> None:
    """Each way to fail, for a while, for good or for ever; bodies that nobody can read; good ones.

    What heals does so at the last attempt. The good ones come when something has failed already.
    """
    attempts = exam.random.randint(2, 4)
    heals = [
        *exam.messages(2, keys=3, transient=attempts - 1),
        *exam.messages(1, error=attempts - 1),
        *exam.messages(1, cancelled=attempts - 1),
    ]
    never = [
        *exam.messages(1, keys=3, headers={"trace": "4 %"}, transient=99),
        *exam.messages(1, error=99),
        *exam.messages(1, cancelled=99),
        *exam.messages(2, keys=3, headers={"Tenant": "Лавка"}, permanent=True),
        *exam.messages(1, transient=1, permanent=True),
        *exam.messages(1, keys=3, body=b"\xff\xfe\x00", headers={"trace": "7"}),
        *exam.messages(1, body=b'{"order": '),
    ]
    bad = [*heals, *never]
    exam.random.shuffle(bad)
    good = exam.messages(8, keys=3)
    async with exam.start(max_attempts=attempts) as run:
        await run.publish(bad)
        await run.until(failed=1)
        await run.publish(good)
        await run.until(finished=len(heals) + len(good), dead_lettered=len(never))


@guarantees(
    attempts_are_exact,
    dead_letter_tells_its_story,
    no_message_is_lost,
    stop_means_no_new_work,
    shutdown_drains_in_flight,
)
async def test_a_new_version_goes_on_counting(exam: Exam) -> None:
    """Stopped and started anew between two attempts: a count in the process begins at 1 again."""
    attempts = exam.random.randint(3, 5)
    never = exam.messages(2, keys=2, transient=99)
    late = exam.messages(3)
    async with exam.start(max_attempts=attempts) as run:
        await run.publish(never)
        await run.until(failed=2)
        await run.stop()
        await run.publish(late)
        await run.until(exited=True)
        await run.restart()
        await run.until(dead_lettered=len(never), finished=len(late))


@guarantees(
    dead_letters_are_confirmed_first, attempts_are_exact, healthy_messages_flow, no_message_is_lost
)
async def test_the_dead_letters_do_not_answer(exam: Exam) -> None:
    """Letters that nobody confirms, and a process that dies with them: the messages have to be there.

    When the letters are heard again, they are written, and nothing is handled once more for that.
    """
    hopeless = exam.messages(1, permanent=True)
    never = exam.messages(1, transient=99)
    good = exam.messages(5)
    async with exam.start(max_attempts=1, proxy=True) as run:
        await run.letters_down()
        await run.publish([*hopeless, *never])
        await run.until(publish_failed=2)
        await run.kill()
        await run.letters_up()
        await run.publish(good)
        await run.restart()
        await run.until(dead_lettered=2, finished=len(good))


@guarantees(
    stop_means_no_new_work,
    shutdown_drains_in_flight,
    dead_letters_are_confirmed_first,
    no_message_is_lost,
)
async def test_stop_with_work_in_hand(exam: Exam) -> None:
    """What is in hand fails after the stop: a letter or back, and nothing new."""
    first = exam.random.choice(
        [exam.messages(1, permanent=True), exam.messages(1, transient=99), exam.messages(1)]
    )
    async with exam.start(max_attempts=2) as run:
        await run.hold()
        await run.publish([*first, *exam.messages(6)])
        await run.until(started=1)
        await run.stop()
        await run.publish(exam.messages(4))
        await run.release()
        await run.until(returned=True)


@guarantees(
    attempts_are_exact,
    dead_letters_are_confirmed_first,
    shutdown_drains_in_flight,
    no_message_is_lost,
)
async def test_cancelling_run(exam: Exam) -> None:
    """A handler that is cancelled has not failed: no letter, no settlement, even at the last attempt."""
    good, flaky = exam.messages(4), exam.messages(1, transient=1)
    async with exam.start(max_attempts=3) as run:
        await run.hold()
        await run.publish(good)
        await run.until(started=1)
        await run.cancel()
        await run.until(returned=True)
        await run.restart()
        await run.publish(flaky)
        await run.release()
        await run.until(settled=len(good) + len(flaky))


@guarantees(replay_is_bounded, replay_publishes_first, replay_keeps_the_message, no_message_is_lost)
async def test_replaying_a_part(exam: Exam) -> None:
    """Fewer than there are: the oldest, whole, without their story."""
    limit = exam.random.randint(2, 4)
    letters = [
        *exam.messages(3, keys=3, headers=STORY | {"trace": "4 %", "Tenant": "Лавка"}),
        *exam.messages(1, body=b"\xff\xfe\x00", headers=STORY),
        *exam.messages(3, headers=STORY),
    ]
    async with exam.start(function="replay", limit=limit, letters=letters) as run:
        await run.until(returned=True)


@guarantees(replay_is_bounded, replay_publishes_first, no_message_is_lost)
async def test_letters_come_back_during_the_replay(exam: Exam) -> None:
    """The consumer fails again with what was replayed: a replay that looks for more never ends."""
    letters = exam.messages(5, keys=2, headers=STORY)
    async with exam.start(function="replay", limit=50, letters=letters) as run:
        await run.hold(letters[3])
        await run.until(republishing=4)
        await run.put_letters(letters[:2])
        await run.release()
        await run.until(returned=True)


@guarantees(replay_is_bounded, replay_publishes_first, no_message_is_lost)
async def test_the_replay_dies(exam: Exam) -> None:
    """Killed with a letter in hand whose message is not published: it has to lie there still."""
    letters = exam.messages(5, headers=STORY)
    async with exam.start(function="replay", limit=20, letters=letters) as run:
        await run.hold(letters[2])
        await run.until(republishing=3)
        await run.kill()
        await run.release()
        await run.restart()
        await run.until(returned=True)


@guarantees(
    attempts_are_exact,
    dead_letters_are_confirmed_first,
    replay_is_bounded,
    replay_publishes_first,
    no_message_is_lost,
)
async def test_from_the_queue_to_the_letters_and_back(exam: Exam) -> None:
    """Given up, replayed by an operator, and handled at last: a life with three processes."""
    slow = exam.messages(3, keys=2, headers={"trace": "1"}, transient=2)
    good = exam.messages(2)
    async with exam.start(max_attempts=2) as run:
        await run.publish([*slow, *good])
        await run.until(dead_lettered=len(slow), finished=len(good))
        await run.stop()
        await run.until(exited=True)
        await run.restart(function="replay", limit=10)
        await run.until(exited=True)
        await run.restart(function="run", max_attempts=3)
        await run.until(finished=len(slow) + len(good))
