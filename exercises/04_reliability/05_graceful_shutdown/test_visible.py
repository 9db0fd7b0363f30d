"""A part of what grades your program, for you to read. `ackademy check` runs these and harder ones.

Your module runs in a process of its own, against a real broker, and gets real signals. A scenario
publishes orders, decides which handlers wait at a gate and for how long, and does what an
orchestrator does, or somebody at a terminal. It asserts nothing. The guarantees named above it judge
what happened.
"""

from __future__ import annotations

from autograder.checks.graceful import (
    ack_follows_work,
    backpressure_holds,
    buffered_messages_are_returned,
    concurrency_is_bounded,
    connection_closed_cleanly,
    deadline_is_kept,
    exit_code_tells,
    failed_work_is_not_acked,
    idle_shutdown_is_prompt,
    no_message_is_lost,
    second_signal_is_faster,
    shutdown_drains_in_flight,
    sigint_equals_sigterm,
    stop_means_no_new_work,
)
from autograder.exam import Exam, guarantees


@guarantees(
    shutdown_drains_in_flight,
    stop_means_no_new_work,
    buffered_messages_are_returned,
    connection_closed_cleanly,
    exit_code_tells,
    backpressure_holds,
    concurrency_is_bounded,
    ack_follows_work,
    no_message_is_lost,
)
async def test_a_rollout(exam: Exam) -> None:
    async with exam.start(workers=2, deadline_s=30) as run:
        await run.hold()  # every handler that starts now waits at a gate
        await run.publish(exam.messages(10))
        await run.until(running=2)
        await run.terminate()  # SIGTERM, while two handlers are busy and eight orders are buffered
        await run.release()
        await run.until(exited=True)
        await run.ask_broker()  # does it have the eight orders back?
        await run.restart()  # the new version: what was finished must not come again
        await run.until(settled=10)


@guarantees(sigint_equals_sigterm, idle_shutdown_is_prompt, failed_work_is_not_acked)
async def test_ctrl_c_when_nothing_goes_on(exam: Exam) -> None:
    async with exam.start(workers=2, deadline_s=30) as run:
        await run.publish([*exam.messages(2, transient=1), *exam.messages(2, permanent=True)])
        await run.until(settled=4)
        await run.interrupt()  # SIGINT, as Ctrl-C sends it
        await run.until(exited=True)


@guarantees(deadline_is_kept, exit_code_tells, connection_closed_cleanly, no_message_is_lost)
async def test_a_handler_that_hangs(exam: Exam) -> None:
    async with exam.start(workers=4, deadline_s=1) as run:
        await run.hold()  # and is never released in this process
        await run.publish(exam.messages(6))
        await run.until(running=4)
        await run.terminate()
        await run.until(exited=True)
        await run.restart()
        await run.release()
        await run.until(settled=6)


@guarantees(second_signal_is_faster, no_message_is_lost)
async def test_a_second_signal(exam: Exam) -> None:
    async with exam.start(workers=1, deadline_s=30) as run:
        await run.hold()
        await run.publish(exam.messages(2))
        await run.until(running=1)
        await run.terminate()
        await run.terminate()  # nobody wants to wait for half a minute
        await run.until(exited=True)
