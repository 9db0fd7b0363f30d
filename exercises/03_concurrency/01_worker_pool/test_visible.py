"""A part of what grades your pool, for you to read. `ackademy check` runs these and harder ones.

Your module runs in a process of its own, against a real broker. A scenario publishes orders,
decides which handlers wait at a gate and for how long, and does what operations do: it stops the
pool, or kills it. It asserts nothing. The guarantees named above it judge what happened.
"""

from __future__ import annotations

from autograder.checks.pool import (
    ack_follows_work,
    backpressure_holds,
    concurrency_is_bounded,
    failed_work_is_not_acked,
    no_message_is_lost,
    one_failure_is_one_failure,
    pool_is_used,
    shutdown_drains_in_flight,
    stop_means_no_new_work,
)
from autograder.exam import Exam, guarantees


@guarantees(concurrency_is_bounded, pool_is_used, backpressure_holds)
async def test_a_hundred_orders_and_four_workers(exam: Exam) -> None:
    async with exam.start(workers=4) as run:
        await run.hold()  # every handler that starts now waits at a gate
        await run.publish(exam.messages(100))
        await run.until(running=4)  # a pool that gets no further than three stands still here
        await run.release()
        await run.until(settled=100)


@guarantees(one_failure_is_one_failure, failed_work_is_not_acked, no_message_is_lost)
async def test_some_orders_fail(exam: Exam) -> None:
    flaky = exam.messages(3, transient=1)  # raise Transient the first time, then succeed
    broken = exam.messages(3, permanent=True)  # raise Permanent, always
    fine = exam.messages(10)
    async with exam.start(workers=3) as run:
        await run.publish([*flaky, *broken])
        await run.until(failed=6)  # as many failures as would end every worker twice
        await run.publish(fine)
        await run.until(finished=len(flaky) + len(fine))


@guarantees(ack_follows_work, no_message_is_lost)
async def test_the_process_dies(exam: Exam) -> None:
    async with exam.start(workers=3) as run:
        await run.break_at("finished", 7)  # freeze the process right after the seventh order
        await run.publish(exam.messages(20))
        await run.until(at_break=True)
        await run.kill()  # SIGKILL: whatever was not acked comes back
        await run.restart()
        await run.until(settled=20)


@guarantees(stop_means_no_new_work, shutdown_drains_in_flight)
async def test_stop_in_the_middle_of_work(exam: Exam) -> None:
    async with exam.start(workers=3) as run:
        await run.hold()
        await run.publish(exam.messages(20))
        await run.until(running=3)
        await run.stop()  # SIGTERM: the stop event is set while three handlers are busy
        await run.publish(exam.messages(5))  # and more orders come in meanwhile
        await run.release()
        await run.until(returned=True)
