"""A part of what grades your handler, for you to read. `ackademy check` runs these and harder ones.

Your module runs in a process of its own, beside a real broker and a real PostgreSQL. A scenario
publishes payments, some of them twice, makes attempts fail, and kills the process. It asserts
nothing, and believes nothing that your code says: it counts the rows of `payments`.
"""

from __future__ import annotations

from autograder.checks.effects import (
    ack_follows_commit,
    distinct_messages_are_not_swallowed,
    effect_happens_once,
    every_delivery_is_settled,
    failed_attempt_can_be_retried,
    same_id_other_payload_is_refused,
)
from autograder.checks.loss import no_message_is_lost
from autograder.exam import Exam, guarantees


@guarantees(
    effect_happens_once,
    distinct_messages_are_not_swallowed,
    every_delivery_is_settled,
    no_message_is_lost,
)
async def test_every_payment_comes_twice(exam: Exam) -> None:
    payments = exam.messages(8, keys=3)
    async with exam.start(workers=2) as run:
        await run.publish([*payments, *payments])
        await run.until(settled=8)
        await run.stop()  # the consumer finishes what it has, and goes home
        await run.until(returned=True)


@guarantees(failed_attempt_can_be_retried, no_message_is_lost)
async def test_some_attempts_fail(exam: Exam) -> None:
    flaky = exam.messages(
        3, transient=1
    )  # raise Transient the first time, after the row was written
    fine = exam.messages(5)
    async with exam.start(workers=2) as run:
        await run.publish([*flaky, *fine])
        await run.until(failed=3)
        await run.until(settled=8)


@guarantees(ack_follows_commit, effect_happens_once)
async def test_the_process_dies_between_commit_and_ack(exam: Exam) -> None:
    async with exam.start(workers=2) as run:
        await run.break_at("ack", 3)  # freeze the process in its third call of ack()
        await run.publish(exam.messages(8))
        await run.until(at_break=True)
        await run.count_effects()  # is what was acked in the database by now?
        await run.kill()  # SIGKILL: whatever was not acked comes back
        await run.restart()
        await run.until(settled=8)


@guarantees(same_id_other_payload_is_refused)
async def test_another_amount_under_a_known_id(exam: Exam) -> None:
    payments = exam.messages(3)
    async with exam.start(workers=2) as run:
        await run.publish(payments)
        await run.until(settled=3)
        await run.publish(exam.altered(payments))
        await run.until(given_up=3)
