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
from autograder.exam import Exam, guarantees, simulated_only

STORY = {
    "dead-letter-reason": "the database did not answer",
    "dead-letter-error": "Transient",
    "dead-letter-attempts": "5",
    "dead-letter-first-failed-at": "2026-11-27T08:00:00+00:00",
    "dead-letter-last-failed-at": "2026-11-27T08:04:00+00:00",
    "dead-letter-host": "consumer-3",  # whoever wrote it had more to tell
}
OWN = {"trace": "4 %", "Tenant": "Лавка", "deadline": "2026-11-28"}


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

    What heals does so at the last attempt. The good ones come when something has failed already; two
    of them are JSON of a kind that only the handler may turn down.
    """
    attempts = exam.random.randint(3, 4)
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
        *exam.messages(1, body=b'{"gift for": "\xff"}'),
    ]
    bad = [*heals, *never]
    exam.random.shuffle(bad)
    good = [
        *exam.messages(4, keys=3),
        *exam.messages(1, body=b"[]"),
        *exam.messages(1, body=b"0"),
        *exam.messages(2, keys=3),
    ]
    async with exam.start(max_attempts=attempts) as run:
        await run.publish(bad)
        await run.until(failed=1)
        await run.publish(good)
        fine = len(heals) + len(good)
        await run.until(finished=fine, dead_lettered=len(never), settled=fine + len(never))


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
    """A letter that nobody confirms, and a process that dies with it: the message has to be there.

    When the letters are heard again, it is written, and nothing is handled once more for that.
    """
    bad = exam.messages(1, transient=99)
    good = exam.messages(5)
    async with exam.start(max_attempts=1, proxy=True) as run:
        await run.letters_down()
        await run.publish(bad)
        await run.until(publish_failed=1)
        await run.kill()
        await run.letters_up()
        await run.publish(good)
        await run.restart()
        await run.until(dead_lettered=1, finished=len(good))


@guarantees(dead_letters_are_confirmed_first, healthy_messages_flow, no_message_is_lost)
async def test_the_dead_letters_answer_again(exam: Exam) -> None:
    """One letter that failed is the end of nothing: neither of the consumer nor of the message."""
    bad, good = exam.messages(1, permanent=True), exam.messages(3)
    async with exam.start(max_attempts=1, proxy=True) as run:
        await run.letters_down()
        await run.publish(bad)
        await run.until(publish_failed=1)
        await run.publish(good)
        await run.letters_up()
        await run.until(dead_lettered=1, settled=len(bad) + len(good))


@guarantees(dead_letters_are_confirmed_first, attempts_are_exact, no_message_is_lost)
@simulated_only("a letter takes a second to fail")
async def test_the_dead_letters_do_not_answer_for_long(exam: Exam) -> None:
    """However often a letter fails: a consumer that loses its patience with it loses the message."""
    bad = [*exam.messages(1, permanent=True), *exam.messages(1, transient=99)]
    good = exam.messages(5)
    async with exam.start(max_attempts=2, proxy=True) as run:
        await run.letters_down()
        await run.publish([*bad, *good])
        await run.until(publish_failed=exam.random.randint(5, 12))
        await run.letters_up()
        await run.until(dead_lettered=2, settled=len(bad) + len(good))


@guarantees(shutdown_drains_in_flight, dead_letters_are_confirmed_first, no_message_is_lost)
async def test_stop_while_the_dead_letters_do_not_answer(exam: Exam) -> None:
    """A letter is under way: who does not wait for it leaves it behind, who waits for more never ends."""
    async with exam.start(max_attempts=2, proxy=True) as run:
        await run.letters_down()
        await run.publish(exam.messages(1, permanent=True))
        await run.until(failed=1)
        await run.stop()
        await run.until(returned=True, within_s=10)


@guarantees(
    dead_letters_are_confirmed_first, healthy_messages_flow, attempts_are_exact, no_message_is_lost
)
async def test_the_connection_breaks(exam: Exam) -> None:
    """Work is done, and its settlement fails: the end of this delivery, and of nothing else."""
    first, good = exam.messages(1), exam.messages(3)
    bad = [*exam.messages(1, transient=1), *exam.messages(1, permanent=True)]
    async with exam.start(max_attempts=9, proxy=True) as run:
        await run.hold(first)
        await run.publish([*first, *bad, *good])
        await run.until(started=1)
        await run.cut()
        await run.until(reconnected=1)
        await run.release()
        await run.until(settled=len(first) + len(bad) + len(good), dead_lettered=1)


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


@guarantees(stop_means_no_new_work, shutdown_drains_in_flight)
async def test_stop_before_the_start(exam: Exam) -> None:
    """`stop` is set when `run` is called: it takes nothing and returns."""
    async with exam.start(max_attempts=2, stop_first=True) as run:
        await run.publish(exam.messages(5))
        await run.until(returned=True)


@guarantees(shutdown_drains_in_flight)
@simulated_only("no broker's stream ends by itself")
async def test_the_source_ends_by_itself(exam: Exam) -> None:
    """Nobody has set `stop`, and there will be nothing to take any more."""
    orders = [*exam.messages(2), *exam.messages(1, permanent=True)]
    async with exam.start(max_attempts=2) as run:
        await run.publish(orders)
        await run.until(settled=len(orders))
        await run.end_source()
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
    limit = exam.random.randint(3, 5)
    oldest = [
        *exam.messages(2, keys=3, headers=STORY | OWN),
        *exam.messages(1, body=b"\xff\xfe\x00", headers=STORY),
    ]
    exam.random.shuffle(oldest)
    letters = [*oldest, *exam.messages(4, headers=STORY)]
    async with exam.start(function="replay", limit=limit, letters=letters) as run:
        await run.until(returned=True)


@guarantees(replay_is_bounded)
async def test_replaying_none(exam: Exam) -> None:
    """A limit of 0 is one that is looked at before a letter is taken."""
    letters = exam.messages(2, headers=STORY)
    async with exam.start(function="replay", limit=0, letters=letters) as run:
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


@guarantees(replay_publishes_first, no_message_is_lost)
async def test_the_queue_does_not_answer(exam: Exam) -> None:
    """A message that nobody confirms: its letter stays, whatever becomes of the others."""
    letters = exam.messages(4, headers=STORY)
    async with exam.start(function="replay", limit=9, letters=letters, proxy=True) as run:
        await run.hold(letters[1])
        await run.until(republishing=2)
        run.stall()
        await run.release()
        await run.until(publish_failed=1)
        run.heal()
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
