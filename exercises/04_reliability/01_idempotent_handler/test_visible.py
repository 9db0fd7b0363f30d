"""A part of what grades your handler, for you to read. `ackademy check` runs these and harder ones.

Your module runs in a process of its own, beside a real broker and a real PostgreSQL. A scenario
publishes payments, some of them twice, makes attempts fail, and kills the process. It asserts
nothing, and believes nothing that your code says: it counts the rows of `payments`, and looks who
holds a lease.
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
from autograder.checks.leases import (
    leases_are_released,
    leases_expire,
    one_holder_at_a_time,
    only_the_owner_releases,
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


@guarantees(one_holder_at_a_time, leases_are_released, no_message_is_lost)
async def test_somebody_else_is_charging_this_card(exam: Exam) -> None:
    held, others = exam.messages(1), exam.messages(3)
    async with exam.start(function="charge", workers=2, ttl_s=60) as run:
        await run.take_leases(held)  # the tests play another consumer
        await run.publish([*held, *others])
        await run.until(settled=3, lease_refused=1)
        await run.free_leases(held)
        await run.until(settled=4)
        await run.stop()
        await run.until(returned=True)  # and at the end of each run they look who holds what


@guarantees(leases_expire, only_the_owner_releases)
async def test_the_work_took_too_long(exam: Exam) -> None:
    charges = exam.messages(2)
    async with exam.start(function="charge", workers=2, ttl_s=60) as run:
        await run.hold()  # every handler stands still
        await run.publish(charges)
        await run.until(started=2)
        await run.look_at_leases(charges)
        await run.take_leases(charges)  # as if 60 seconds had passed, and another one had come
        await run.release()
        await run.stop()
        await run.until(returned=True)
