"""What grades `graceful_shutdown.main`. Signals are real where the broker is; gates decide what waits.

Each scenario's docstring says which wrong designs it is for; NOTES.md has the table.
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
from autograder.exam import Exam, guarantees, simulated_only

FAR_S = 60  # a deadline that no scenario here lives to see


@guarantees(
    shutdown_drains_in_flight,
    stop_means_no_new_work,
    buffered_messages_are_returned,
    connection_closed_cleanly,
    sigint_equals_sigterm,
    exit_code_tells,
    backpressure_holds,
    concurrency_is_bounded,
    ack_follows_work,
    no_message_is_lost,
)
async def test_two_rollouts_under_load(exam: Exam) -> None:
    """SIGTERM to a process whose workers are all busy, Ctrl-C to one where a single worker is.

    In the first, more is buffered than in hand. In the second, the others wait for a message: whoever
    ends when one of them is home tears off the busy one. More arrives after each signal, and tempts
    those who wait. Work goes on for a while after the gate has opened, so that whoever closes first, or
    cancels, is seen. The third process finishes what is left: whatever it gets twice, a process before
    it had not settled.
    """
    workers = exam.random.randint(2, 4)
    orders = exam.messages(12, keys=5)
    slow, late = exam.messages(workers, keys=3, sleep_s=0.1), exam.messages(4, keys=3)
    lonely, latest = exam.messages(1, sleep_s=0.1), exam.messages(4, keys=3)
    async with exam.start(workers=workers, deadline_s=FAR_S) as run:
        await run.hold()
        await run.publish([*slow, *orders])
        await run.until(running=workers)
        await run.terminate()
        await run.publish(late)
        await run.release()
        await run.until(exited=True)
        await run.ask_broker()
        await run.restart()
        await run.until(settled=workers + 16)
        await run.hold(lonely)
        await run.publish(lonely)
        await run.until(running=1)
        await run.interrupt()
        await run.publish(latest)
        await run.release()
        await run.until(exited=True)
        await run.ask_broker()
        await run.restart()
        await run.until(settled=workers + 21)


@guarantees(
    idle_shutdown_is_prompt,
    shutdown_drains_in_flight,
    connection_closed_cleanly,
    exit_code_tells,
    failed_work_is_not_acked,
    no_message_is_lost,
)
async def test_a_quiet_night(exam: Exam) -> None:
    """All work is done, also what failed at first or for good; then nothing comes but the signal.

    For flags that are looked at now and then, for takes that nobody ends, and for drains that wait for
    a message. For each worker there is a handler that lets out a `CancelledError` of its own, long before
    anybody is told to end: whoever takes it for the end has none left for the work behind.
    """
    workers = exam.random.randint(1, 4)
    good, flaky = exam.messages(workers + 3), exam.messages(2, transient=1)
    bad = [*exam.messages(workers, cancelled=1), *exam.messages(2, permanent=True)]
    orders = [*flaky, *bad, *good]
    async with exam.start(workers=workers, deadline_s=FAR_S) as run:
        await run.publish(orders)
        await run.until(settled=len(orders))
        await run.terminate()
        await run.until(exited=True)


@guarantees(shutdown_drains_in_flight)
async def test_told_while_it_connects(exam: Exam) -> None:
    """The broker takes its time, and the signal comes first: to whoever listens for it by then."""
    tell = exam.random.choice(["terminate", "interrupt"])
    async with exam.start(workers=2, deadline_s=FAR_S, hold_connect=True) as run:
        await run.until(connecting=True)
        await getattr(run, tell)()
        await run.let_connect()
        await run.until(exited=True)


@guarantees(
    deadline_is_kept,
    exit_code_tells,
    connection_closed_cleanly,
    buffered_messages_are_returned,
    failed_work_is_not_acked,
    ack_follows_work,
    no_message_is_lost,
)
async def test_handlers_that_hang(exam: Exam) -> None:
    """All handlers hang, and there are many: a deadline for each of them adds up to several.

    The process is a part of a second old when the signal comes, and has the whole second from then on.
    The next one gets their messages, and those that the dead one had only buffered.
    """
    workers = exam.random.randint(6, 8)
    early = exam.messages(1, sleep_s=0.3)
    orders = exam.messages(workers + 4, keys=5)
    async with exam.start(workers=workers, deadline_s=1) as run:
        await run.publish(early)
        await run.until(settled=1)
        await run.hold()
        await run.publish(orders)
        await run.until(running=workers)
        await run.terminate()
        await run.until(exited=True)
        await run.ask_broker()
        await run.restart()
        await run.release()
        await run.until(settled=len(orders) + 1)


@guarantees(deadline_is_kept, exit_code_tells, connection_closed_cleanly, no_message_is_lost)
async def test_handlers_that_end_one_after_the_other(exam: Exam) -> None:
    """Each ends within a deadline of the one before: whoever waits anew for each waits for all."""
    orders = [order for step in range(7) for order in exam.messages(1, sleep_s=0.3 + 0.75 * step)]
    async with exam.start(workers=len(orders), deadline_s=1) as run:
        await run.hold()
        await run.publish(orders)
        await run.until(running=len(orders))
        await run.terminate()
        await run.release()
        await run.until(exited=True)


@guarantees(
    second_signal_is_faster,
    exit_code_tells,
    failed_work_is_not_acked,
    ack_follows_work,
    no_message_is_lost,
)
async def test_somebody_loses_patience(exam: Exam) -> None:
    """A handler hangs, the deadline is far, and a second signal comes: the other one, or the same.

    For a counter of each kind, and for programs that know only one of them as the second. The next
    process has the messages of the one before in hand when it is told.
    """
    workers = exam.random.randint(1, 3)
    orders = exam.messages(workers + 3)
    tells = exam.random.sample(["terminate", "interrupt"], k=2)
    async with exam.start(workers=workers, deadline_s=FAR_S) as run:
        await run.hold()
        await run.publish(orders)
        for first, second in tells, tells[:1] * 2:
            await run.until(running=workers)
            await getattr(run, first)()
            await getattr(run, second)()
            await run.until(exited=True)
            await run.restart()
        await run.release()
        await run.until(settled=len(orders))


@guarantees(shutdown_drains_in_flight, exit_code_tells, no_message_is_lost)
@simulated_only("its handlers go on for minutes after the signal")
async def test_work_that_takes_most_of_the_time_there_is(exam: Exam) -> None:
    """The deadline is the only limit: no period of grace of one's own ends work that would be done."""
    workers = exam.random.randint(1, 4)
    slow = exam.messages(workers, sleep_s=150)
    async with exam.start(workers=workers, deadline_s=200) as run:
        await run.publish(slow)
        await run.until(running=workers, timeout_s=1000)
        await run.terminate()
        await run.until(exited=True, timeout_s=1000)


@guarantees(
    shutdown_drains_in_flight, exit_code_tells, connection_closed_cleanly, no_message_is_lost
)
async def test_handlers_that_fail_while_everything_ends(exam: Exam) -> None:
    """What fails after the signal is given back, or up, as at any other time: that is an end, too.

    One handler lets out a `CancelledError` of its own, and one works on for a while: for whoever is told
    to end, and takes the one for the end of the other.
    """
    orders = [
        *exam.messages(1, transient=1),
        *exam.messages(1, permanent=True),
        *exam.messages(1, error=1),
        *exam.messages(1, cancelled=1),
        *exam.messages(1, sleep_s=0.1),
    ]
    workers = len(orders)
    exam.random.shuffle(orders)
    async with exam.start(workers=workers, deadline_s=FAR_S) as run:
        await run.hold()
        await run.publish(orders)
        await run.until(running=workers)
        await run.terminate()
        await run.release()
        await run.until(exited=True)
        await run.restart()
        await run.until(settled=len(orders))
