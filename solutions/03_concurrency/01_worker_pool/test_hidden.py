"""What grades `worker_pool.run`. Gates decide what waits; nothing here sleeps or is timed.

Each scenario's docstring says which wrong designs it is for; NOTES.md has the table.
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
from autograder.exam import Exam, guarantees, simulated_only


@guarantees(
    backpressure_holds, concurrency_is_bounded, pool_is_used, ack_follows_work, no_message_is_lost
)
async def test_a_backlog_waits_outside(exam: Exam) -> None:
    """Every handler stands still while orders pile up: unbounded queues and pools show here.

    Once in a small pool and once in a large one: a number of somebody's own fits one of them at most.
    """
    for workers in exam.random.randint(3, 6), exam.random.randint(33, 40):
        morning, evening = exam.messages(120), exam.messages(80, keys=5)
        async with exam.start(workers=workers, bears=("duplicates", "cuts")) as run:
            await run.hold()
            await run.publish(morning)
            await run.until(running=workers)
            await run.publish(evening)
            await run.release()
            await run.until(settled=200)


@guarantees(
    pool_is_used,
    concurrency_is_bounded,
    ack_follows_work,
    no_message_is_lost,
    shutdown_drains_in_flight,
)
async def test_slow_orders_hold_up_nobody(exam: Exam) -> None:
    """All workers but one are held and one does the rest: waves stand. Twins are two messages.

    The pool is idle when it is told to stop: flags that are only looked at between messages show.
    """
    workers = exam.random.randint(3, 5)
    slow = exam.messages(workers - 2)
    twins = [slow[0], slow[0]]
    quick = exam.messages(exam.random.randint(20, 28), keys=4, sleep_s=0.002)
    async with exam.start(workers=workers) as run:
        await run.hold(slow)
        await run.publish([*twins, *slow[1:], *quick])
        await run.until(settled=len(quick))
        await run.release(slow)
        await run.until(settled=len(slow) + len(quick))
        await run.stop()
        await run.until(returned=True)


@guarantees(
    one_failure_is_one_failure,
    failed_work_is_not_acked,
    ack_follows_work,
    concurrency_is_bounded,
    pool_is_used,
    no_message_is_lost,
)
async def test_failures_stay_their_own(exam: Exam) -> None:
    """More failures of each kind than there are workers, then work for every one of them.

    One order fails six times and is good in the end: nobody said that five are enough. Another one
    fails with five kinds of exception, whose names no pool may take for something of its own.

    Waits for failures and finished work, never for settlements: a pool that gives permanent
    failures back moves for ever, and would only be caught by the clock.
    """
    workers = exam.random.randint(1, 4)
    heal = [
        *exam.messages(workers, transient=1),
        *exam.messages(workers, error=1),
        *exam.messages(workers, cancelled=1),
    ]
    hopeless = exam.messages(workers, permanent=True)
    both = exam.messages(1, transient=1, error=1, permanent=True)
    stubborn, motley = exam.messages(1, transient=6), exam.messages(1, error=5)
    bad = [*heal, *hopeless, *both, *stubborn, *motley]
    exam.random.shuffle(bad)
    good = exam.messages(workers + 8)
    async with exam.start(workers=workers, bears=("duplicates", "cuts")) as run:
        await run.publish(bad)
        await run.until(failed=len(heal) + len(hopeless) + 3 + 6 + 5)
        await run.hold(good)
        await run.publish(good)
        await run.until(running=workers)
        await run.release(good)
        await run.until(finished=len(heal) + len(stubborn) + len(motley) + len(good))


@guarantees(no_message_is_lost, ack_follows_work)
async def test_crash_between_work_and_ack(exam: Exam) -> None:
    """SIGKILL right after a handler has finished: what was acked early is gone."""
    workers = exam.random.randint(2, 5)
    orders = exam.messages(30, keys=8)
    async with exam.start(workers=workers, bears=("duplicates", "cuts")) as run:
        await run.break_at("finished", exam.random.randint(3, 20))
        await run.publish(orders)
        await run.until(at_break=True)
        await run.kill()
        await run.restart()
        await run.until(settled=len(orders))


@guarantees(stop_means_no_new_work, shutdown_drains_in_flight, ack_follows_work, no_message_is_lost)
async def test_stop_while_everything_is_full(exam: Exam) -> None:
    """Handlers run, more is in hand, more waits outside, more arrives: stop, and then go home.

    The second `until` proves that the pool took on while the others were held, so by now whatever
    it keeps besides its workers is full. The slow ones among the first are still at work when the
    source has closed. What was given back is proved by the broker's own count.
    """
    workers = exam.random.randint(1, 4)
    quick, slow = exam.messages(1), exam.messages(workers, sleep_s=0.3)
    rest, late = exam.messages(20), exam.messages(10)
    async with exam.start(workers=workers, bears=("duplicates",)) as run:
        await run.hold()
        await run.publish([*quick, *slow[1:]])
        await run.until(running=workers)
        await run.publish([*slow[:1], *rest])
        await run.release(quick)
        await run.until(settled=1, running=workers)
        await run.stop()
        await run.publish(late)
        await run.release()
        await run.until(returned=True)


@guarantees(failed_work_is_not_acked, shutdown_drains_in_flight, no_message_is_lost)
async def test_work_that_fails_after_the_stop(exam: Exam) -> None:
    """The stop excuses no failure: each kind is answered then as before."""
    bad = [
        *exam.messages(1, transient=1),
        *exam.messages(1, error=1),
        *exam.messages(1, cancelled=1),
        *exam.messages(1, permanent=True),
    ]
    async with exam.start(workers=len(bad)) as run:
        await run.hold()
        await run.publish(bad)
        await run.until(running=len(bad))
        await run.stop()
        await run.release()
        await run.until(returned=True)


@guarantees(stop_means_no_new_work, shutdown_drains_in_flight, no_message_is_lost)
async def test_orders_that_come_after_an_idle_stop(exam: Exam) -> None:
    """Nothing goes on when the stop comes, and then there is something: a take nobody ended shows."""
    workers = exam.random.randint(1, 4)
    orders = exam.messages(workers + 1)
    async with exam.start(workers=workers, bears=("duplicates", "cuts")) as run:
        await run.publish(orders)
        await run.until(settled=len(orders))
        await run.stop()
        await run.publish(exam.messages(workers + 1))
        await run.until(returned=True)


@guarantees(stop_means_no_new_work, shutdown_drains_in_flight)
async def test_stop_before_the_start(exam: Exam) -> None:
    """`stop` is set when `run` is called: it takes nothing and returns."""
    async with exam.start(workers=exam.random.randint(1, 4), stop_first=True) as run:
        await run.publish(exam.messages(5))
        await run.until(returned=True)


@guarantees(failed_work_is_not_acked, shutdown_drains_in_flight, no_message_is_lost)
async def test_cancelling_run(exam: Exam) -> None:
    """Cancelled from outside, handlers end, nothing in hand is settled, and nobody stays behind."""
    workers = exam.random.randint(1, 4)
    orders = exam.messages(20, keys=3)
    async with exam.start(workers=workers, bears=("duplicates", "cuts")) as run:
        await run.hold()
        await run.publish(orders)
        await run.until(running=workers)
        await run.cancel()
        await run.until(returned=True)
        await run.restart()
        await run.release()
        await run.until(settled=len(orders))


@guarantees(shutdown_drains_in_flight, no_message_is_lost)
async def test_cancelling_an_idle_run(exam: Exam) -> None:
    """Cancelled while it waits for a message: that is neither the source's end nor a stop."""
    workers = exam.random.randint(1, 4)
    async with exam.start(workers=workers) as run:
        await run.publish(exam.messages(workers))
        await run.until(settled=workers)
        await run.cancel()
        await run.until(returned=True)


@guarantees(shutdown_drains_in_flight)
async def test_cancelling_a_run_that_stops(exam: Exam) -> None:
    """Cancelled while it waits for its last handlers: they end, and CancelledError comes out."""
    workers = exam.random.randint(2, 5)
    async with exam.start(workers=workers) as run:
        await run.hold()
        await run.publish(exam.messages(workers))
        await run.until(running=workers)
        await run.stop()
        await run.cancel()
        await run.until(returned=True)


@guarantees(pool_is_used, concurrency_is_bounded, failed_work_is_not_acked, no_message_is_lost)
async def test_the_connection_breaks_under_the_handlers(exam: Exam) -> None:
    """Work is done, or has failed, and its settlement fails: the end of this delivery, no more.

    Of the orders under the handlers every second one fails, for a while or for good. Afterwards
    there are as many slots as before.
    """
    workers = exam.random.randint(2, 5)
    good, flaky = exam.messages(10), exam.messages(5, transient=1)
    bad = [
        each for pair in zip(flaky, exam.messages(5, permanent=True), strict=True) for each in pair
    ]
    orders = [each for pair in zip(good, bad, strict=True) for each in pair]
    more = exam.messages(2 * workers + 1)
    async with exam.start(workers=workers, proxy=True, bears=("duplicates", "cuts")) as run:
        await run.hold()
        await run.publish(orders)
        await run.until(running=workers)
        await run.cut()
        await run.until(reconnected=1)
        await run.release()
        await run.until(settled=len(orders))
        await run.hold()
        await run.publish(more)
        await run.until(running=workers)
        await run.release()
        await run.until(settled=len(orders) + len(more))


@guarantees(shutdown_drains_in_flight, no_message_is_lost)
async def test_stop_after_the_connection_broke(exam: Exam) -> None:
    """What is in hand at the stop can no longer be settled, begun or not: it is dropped, and fine.

    The second `until` fills the pool, as in `test_stop_while_everything_is_full`.
    """
    workers = exam.random.randint(1, 4)
    quick, flaky = exam.messages(1), exam.messages(workers, transient=1)
    async with exam.start(workers=workers, proxy=True) as run:
        await run.hold()
        await run.publish([*quick, *flaky[1:]])
        await run.until(running=workers)
        await run.publish([*flaky[:1], *exam.messages(20)])
        await run.release(quick)
        await run.until(settled=1, running=workers)
        await run.cut()
        await run.until(reconnected=1)
        await run.stop()
        await run.release()
        await run.until(returned=True)


@guarantees(shutdown_drains_in_flight)
@simulated_only("no broker's stream ends by itself")
async def test_the_source_ends_by_itself(exam: Exam) -> None:
    """Nobody has set `stop`, and there will be nothing to take any more: go home."""
    orders = exam.messages(8)
    async with exam.start(workers=exam.random.randint(1, 4)) as run:
        await run.publish(orders)
        await run.until(settled=len(orders))
        await run.end_source()
        await run.until(returned=True)


@guarantees(no_message_is_lost)
@simulated_only("its handlers take minutes")
async def test_work_that_takes_minutes(exam: Exam) -> None:
    """No pool may lose its patience: the contract has no time limit for a handler."""
    workers = exam.random.randint(2, 4)
    orders = exam.messages(2 * workers + 1, sleep_s=150)
    async with exam.start(workers=workers) as run:
        await run.publish(orders)
        await run.until(settled=len(orders), timeout_s=1000)


@guarantees(stop_means_no_new_work, shutdown_drains_in_flight, no_message_is_lost)
@simulated_only("its handlers go on for minutes after the stop")
async def test_stop_in_the_middle_of_long_work(exam: Exam) -> None:
    """What is at work at the stop is finished, however long that takes: no period of grace ends it."""
    workers = exam.random.randint(1, 4)
    slow = exam.messages(workers, sleep_s=150)
    async with exam.start(workers=workers) as run:
        await run.publish(slow)
        await run.until(running=workers, timeout_s=1000)
        await run.publish(exam.messages(6))
        await run.stop()
        await run.until(returned=True, timeout_s=1000)


@guarantees(pool_is_used, no_message_is_lost)
@simulated_only("nothing comes for minutes")
async def test_a_silence_of_minutes(exam: Exam) -> None:
    """A source that is silent for long has not ended."""
    workers = exam.random.randint(2, 4)
    async with exam.start(workers=workers) as run:
        await run.publish(exam.messages(1, sleep_s=600))
        await run.until(settled=1, timeout_s=1000)
        await run.hold()
        await run.publish(exam.messages(2 * workers))
        await run.until(running=workers)
        await run.release()
        await run.until(settled=2 * workers + 1)


@guarantees(failed_work_is_not_acked, no_message_is_lost)
@simulated_only("with a pause after each try it may take a minute")
async def test_an_order_that_fails_and_fails(exam: Exam) -> None:
    """Nobody set a number of tries: giving up is for `Permanent` alone."""
    orders = exam.messages(1, transient=exam.random.randint(30, 40))
    async with exam.start(workers=exam.random.randint(1, 3)) as run:
        await run.publish(orders)
        await run.until(finished=1)


@guarantees(pool_is_used, concurrency_is_bounded, no_message_is_lost)
@simulated_only("a broker takes seconds to be rid of a consumer, and there are three of them")
async def test_the_connection_breaks_again_and_again(exam: Exam) -> None:
    """Each failed settlement may cost a place in hand: it is the second break that uses them up."""
    workers = exam.random.randint(2, 4)
    batches = [exam.messages(2 * workers) for _ in range(4)]
    async with exam.start(workers=workers, proxy=True) as run:
        await run.hold()
        await run.publish(batches[0])
        await run.until(running=workers)
        for number in range(1, 4):
            await run.cut()
            await run.until(reconnected=1)
            await run.publish(batches[number])
            await run.release(batches[number - 1])
            await run.until(settled=2 * workers * number, running=workers)
        await run.release()
        await run.until(settled=8 * workers)


@guarantees(stop_means_no_new_work, shutdown_drains_in_flight, no_message_is_lost)
@simulated_only("the stop has to come in one of a few turns of the loop")
async def test_stop_while_it_takes(exam: Exam) -> None:
    """A take may come to its end in the very turn of the stop: it is a message in hand like any."""
    workers = exam.random.randint(3, 6)
    async with exam.start(workers=workers) as run:
        await run.hold()
        await run.publish(exam.messages(2 * workers))
        await run.until(taken=exam.random.randint(1, workers - 1))
        await run.stop()
        await run.release()
        await run.until(returned=True)
