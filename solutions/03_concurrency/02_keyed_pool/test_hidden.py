"""What grades `keyed_pool.run`. Gates decide what waits; nothing here sleeps or is timed.

No scenario asks for more handlers at once than every right design has: keys may share a lane. The
one barrier that all of them reach is `taken=workers + 2`, for which each has room. Each scenario's
docstring says which wrong designs it is for; NOTES.md has the table.
"""

from __future__ import annotations

from dataclasses import replace

from autograder.checks.keyed import (
    ack_follows_work,
    backpressure_holds,
    concurrency_is_bounded,
    empty_key_is_handled,
    failed_work_is_not_acked,
    keys_run_in_parallel,
    memory_is_bounded,
    no_message_is_lost,
    one_at_a_time_per_key,
    one_failure_is_one_failure,
    order_is_kept_per_key,
    order_survives_a_retry,
    same_key_same_route_across_restarts,
    shutdown_drains_in_flight,
    slow_key_does_not_block_others,
    stop_means_no_new_work,
)
from autograder.exam import Exam, Order, guarantees, simulated_only


def accounts(orders: list[Order], *names: str) -> list[Order]:
    """The same orders, dealt out to these keys in turn."""
    return [replace(each, key=names[n % len(names)]) for n, each in enumerate(orders)]


def names(exam: Exam, count: int) -> list[str]:
    """Different keys of one length that begin alike, as ids do."""
    return [f"account-{number}" for number in exam.random.sample(range(1000, 10_000), count)]


@guarantees(
    order_is_kept_per_key,
    one_at_a_time_per_key,
    concurrency_is_bounded,
    backpressure_holds,
    ack_follows_work,
    no_message_is_lost,
)
async def test_deposit_buy_withdraw(exam: Exam) -> None:
    """The slow one comes first, again and again: a shared queue lets the quick ones pass.

    Two orders are published twice, and are four messages. Once in a small pool and once in a large one.
    """
    for workers in exam.random.randint(2, 5), exam.random.randint(16, 20):
        keys = names(exam, 7)
        rounds = [
            accounts(exam.messages(7, sleep_s=seconds), *keys)
            for seconds in (0.006, 0.0, 0.003, 0.0, 0.001, 0.002, 0.0)
        ]
        orders = [each for one in rounds for each in one]
        async with exam.start(workers=workers) as run:
            await run.hold()
            await run.publish(orders)
            await run.until(taken=workers + 2)
            await run.publish(orders[-2:])
            await run.release()
            await run.until(settled=len(orders))


@guarantees(keys_run_in_parallel, concurrency_is_bounded, backpressure_holds, no_message_is_lost)
async def test_every_account_for_itself(exam: Exam) -> None:
    """More keys than places, all of them held: one lock for all shows, and one lane for all.

    So many workers that a number of somebody's own, of workers or of lanes, is too small.
    """
    workers = 40
    orders = accounts(exam.messages(80, sleep_s=0.02), *names(exam, 80))
    async with exam.start(workers=workers) as run:
        await run.hold()
        await run.publish(orders)
        await run.until(taken=workers + 2)
        await run.release()
        await run.until(settled=len(orders))


@guarantees(slow_key_does_not_block_others, no_message_is_lost)
async def test_one_slow_account(exam: Exam) -> None:
    """One key is held with two messages, and then another one: a receiver that waits for it shows.

    A pool whose keys share lanes may let some of the others wait. Half of them is asked for.
    """
    workers = 12
    keys = names(exam, 4 + 4 * 24)
    done = 0
    async with exam.start(workers=workers) as run:
        for slow in keys[:4]:
            await run.hold(key=slow)
            await run.publish(accounts(exam.messages(2), slow))
            await run.until(started=done + 1)
            others = [keys.pop() for _ in range(24)]
            await run.publish(accounts(exam.messages(24), *others))
            await run.until(finished=done + 12)
            await run.release(key=slow)
            done += 26
            await run.until(settled=done)


@guarantees(same_key_same_route_across_restarts, no_message_is_lost)
async def test_the_same_accounts_after_a_restart(exam: Exam) -> None:
    """Eight keys are held and eleven are not, in two processes with two hash seeds.

    All of them fit into any right pool's hands, so who does not go on waits behind a held key. The
    second process gets them in reverse: lanes that are dealt out show. And 17 lanes, for with a power
    of two, checksums that begin with different numbers share out keys alike.
    """
    workers = 17
    keys = names(exam, workers + 2)
    held, others = keys[:8], keys[8:]
    done = 0
    async with exam.start(workers=workers) as run:
        for hash_seed in 0, 1 + exam.seed:
            if hash_seed:
                await run.stop()
                await run.until(returned=True)
                await run.restart(hash_seed=hash_seed)
                held, others = held[::-1], others[::-1]
            for each in held:
                await run.hold(key=each)
            await run.publish(accounts(exam.messages(8), *held))
            await run.until(taken=done + 8)
            await run.publish(accounts(exam.messages(11), *others))
            await run.until_still(finished=done + 11)
            await run.release()
            done += 19
            await run.until(settled=done)


@guarantees(
    order_survives_a_retry,
    order_is_kept_per_key,
    one_failure_is_one_failure,
    failed_work_is_not_acked,
    ack_follows_work,
    concurrency_is_bounded,
    no_message_is_lost,
)
async def test_failures_keep_their_place(exam: Exam) -> None:
    """In every key something fails first and something good is right behind it: tails and requeues show.

    More keys fail than there are workers, in each way. Then there is work for every worker.
    """
    workers = exam.random.randint(1, 4)
    ways: list[dict[str, int | bool]] = [
        {"transient": 1},
        {"error": 1},
        {"cancelled": 1},
        {"permanent": True},
        {"transient": 1, "error": 1, "permanent": True},
        {"transient": 1, "error": 1, "cancelled": 1, "permanent": True},
    ]
    kinds = [way for way in ways for _ in range(workers)]
    exam.random.shuffle(kinds)
    keys = names(exam, len(kinds))
    bad = accounts([order for way in kinds for order in exam.messages(1, **way)], *keys)
    behind, later = (
        accounts(exam.messages(len(keys)), *keys),
        accounts(exam.messages(len(keys)), *keys),
    )
    orders = [*(each for pair in zip(bad, behind, strict=True) for each in pair), *later]
    final = sum("permanent" in way for way in kinds)
    after = accounts(exam.messages(3 * workers), *names(exam, 3 * workers))
    async with exam.start(workers=workers, bears=("duplicates", "cuts")) as run:
        await run.publish(orders)
        await run.until(finished=len(orders) - final)
        await run.publish(after)
        await run.until(settled=len(orders) + len(after))


@guarantees(concurrency_is_bounded, no_message_is_lost)
async def test_retries_beside_busy_workers(exam: Exam) -> None:
    """While all are at work, what has failed comes due again: it needs a worker like any other."""
    workers = exam.random.randint(2, 4)
    failing = accounts(exam.messages(workers, transient=2, sleep_s=0.01), *names(exam, workers))
    good = accounts(exam.messages(8 * workers, sleep_s=0.05), *names(exam, 8 * workers))
    async with exam.start(workers=workers) as run:
        await run.publish([*failing, *good])
        await run.until(settled=len(failing) + len(good))


@guarantees(
    order_survives_a_retry,
    slow_key_does_not_block_others,
    failed_work_is_not_acked,
    no_message_is_lost,
)
@simulated_only("its pauses take half a minute, and only an exact clock can judge them")
async def test_an_account_that_fails_for_long(exam: Exam) -> None:
    """Thirty failures in a row: 50 ms at first, doubled each time, a second at most.

    Each try takes 0.3 s, which is no part of the pause. In one of the pauses there is much to do.
    """
    workers = 12
    stubborn = accounts(exam.messages(1, transient=16, error=14, sleep_s=0.3), "slow")
    behind = accounts(exam.messages(1), "slow")
    others = accounts(exam.messages(2 * workers), *names(exam, 2 * workers))
    async with exam.start(workers=workers) as run:
        await run.publish([*stubborn, *behind])
        await run.until(failed=7)
        await run.publish(others)
        await run.until(settled=len(others) + 2, timeout_s=30)


@guarantees(no_message_is_lost, ack_follows_work, order_is_kept_per_key)
async def test_crash_between_work_and_ack(exam: Exam) -> None:
    """SIGKILL right after a handler has finished: what was acked early is gone, and order starts anew."""
    workers = exam.random.randint(2, 5)
    orders = accounts(exam.messages(30), *names(exam, 5))
    async with exam.start(workers=workers, bears=("duplicates", "cuts")) as run:
        await run.break_at("finished", exam.random.randint(3, 20))
        await run.publish(orders)
        await run.until(at_break=True)
        await run.kill()
        await run.restart()
        await run.until(settled=len(orders))


@guarantees(
    stop_means_no_new_work,
    shutdown_drains_in_flight,
    order_is_kept_per_key,
    ack_follows_work,
    no_message_is_lost,
)
async def test_stop_while_everything_is_full(exam: Exam) -> None:
    """Handlers run, more is in hand behind them, more waits outside: stop, and then go home.

    What runs at the stop goes on working for longer than the source needs to close.
    """
    workers = exam.random.randint(1, 4)
    keys = names(exam, workers + 1)
    slow = accounts(exam.messages(workers + 1, sleep_s=0.3), *keys)
    rest, late = accounts(exam.messages(20), *keys), accounts(exam.messages(10), *keys)
    async with exam.start(workers=workers) as run:
        await run.hold()
        await run.publish([*slow, *rest])
        await run.until(taken=workers + 2)
        await run.stop()
        await run.publish(late)
        await run.release()
        await run.until(returned=True)


@guarantees(
    shutdown_drains_in_flight,
    order_survives_a_retry,
    failed_work_is_not_acked,
    stop_means_no_new_work,
    no_message_is_lost,
)
async def test_work_that_fails_after_the_stop(exam: Exam) -> None:
    """Every kind of failure, each of a handler that runs at the stop, and something behind each."""
    failing = [
        *exam.messages(1, transient=1),
        *exam.messages(1, error=1),
        *exam.messages(1, cancelled=1),
        *exam.messages(1, permanent=True),
    ]
    orders = accounts([*failing, *exam.messages(4)], *names(exam, 4))
    async with exam.start(workers=6) as run:
        await run.hold()
        await run.publish(orders)
        await run.until(taken=len(orders))
        await run.stop()
        await run.publish(accounts(exam.messages(2), orders[0].key))
        await run.release()
        await run.until(returned=True)


@guarantees(shutdown_drains_in_flight, no_message_is_lost)
async def test_stop_after_the_connection_broke(exam: Exam) -> None:
    """What is in hand at the stop can no longer be settled, begun or not: it is dropped, and fine."""
    workers = exam.random.randint(2, 4)
    failing = exam.messages(workers, transient=1)
    orders = accounts([*failing, *exam.messages(workers)], *names(exam, workers))
    async with exam.start(workers=workers, proxy=True) as run:
        await run.hold()
        await run.publish(orders)
        await run.until(taken=workers + 2)
        await run.cut()
        await run.until(reconnected=1)
        await run.stop()
        await run.release()
        await run.until(returned=True)


@guarantees(
    shutdown_drains_in_flight, order_survives_a_retry, stop_means_no_new_work, no_message_is_lost
)
async def test_stop_during_a_pause(exam: Exam) -> None:
    """A key has failed six times and waits for its next try, others wait behind it: give back.

    There is most of a second left of the pause: one that hears no stop shows.
    """
    workers = exam.random.randint(2, 4)
    stubborn = accounts(exam.messages(1, transient=9), "a")
    behind = accounts(exam.messages(workers), "a")
    async with exam.start(workers=workers) as run:
        await run.publish([*stubborn, *behind])
        await run.until(failed=6, taken=workers + 1)
        await run.stop()
        await run.publish(accounts(exam.messages(4), "a", "b"))
        await run.until(returned=True)


@guarantees(stop_means_no_new_work, shutdown_drains_in_flight, no_message_is_lost)
async def test_orders_that_come_after_an_idle_stop(exam: Exam) -> None:
    """Nothing goes on when the stop comes, and then there is something: a take nobody ended shows."""
    workers = exam.random.randint(1, 4)
    orders = accounts(exam.messages(workers + 2), *names(exam, 2))
    async with exam.start(workers=workers, bears=("duplicates", "cuts")) as run:
        await run.publish(orders)
        await run.until(settled=len(orders))
        await run.stop()
        await run.publish(accounts(exam.messages(workers + 1), *names(exam, 2)))
        await run.until(returned=True)


@guarantees(stop_means_no_new_work, shutdown_drains_in_flight)
async def test_stop_before_the_start(exam: Exam) -> None:
    """`stop` is set when `run` is called: it takes nothing and returns."""
    async with exam.start(workers=exam.random.randint(1, 4), stop_first=True) as run:
        await run.publish(accounts(exam.messages(5), *names(exam, 2)))
        await run.until(returned=True)


@guarantees(failed_work_is_not_acked, shutdown_drains_in_flight, no_message_is_lost)
async def test_cancelling_run(exam: Exam) -> None:
    """Cancelled from outside, handlers end, nothing in hand is settled, and nobody stays behind."""
    workers = exam.random.randint(1, 4)
    orders = accounts(exam.messages(20), *names(exam, 5))
    async with exam.start(workers=workers) as run:
        await run.hold()
        await run.publish(orders)
        await run.until(taken=workers + 2)
        await run.cancel()
        await run.until(returned=True)
        await run.restart()
        await run.release()
        await run.until(settled=len(orders))


@guarantees(shutdown_drains_in_flight)
async def test_cancelling_a_run_that_stops(exam: Exam) -> None:
    """Cancelled while it waits for its last handlers: they end, and CancelledError comes out."""
    workers = exam.random.randint(2, 5)
    async with exam.start(workers=workers) as run:
        await run.hold()
        await run.publish(accounts(exam.messages(workers), *names(exam, workers)))
        await run.until(taken=workers)
        await run.stop()
        await run.cancel()
        await run.until(returned=True)


@guarantees(shutdown_drains_in_flight, failed_work_is_not_acked, no_message_is_lost)
async def test_cancelling_run_during_a_pause(exam: Exam) -> None:
    """What it waited for is waited for no longer, and nothing is settled: not even given back."""
    workers = exam.random.randint(2, 4)
    stubborn = accounts(exam.messages(1, transient=7), "a")
    behind = accounts(exam.messages(workers - 1), "a")
    beside = accounts(
        exam.messages(1, sleep_s=0.25), "b"
    )  # it is done in the middle of the third pause
    async with exam.start(workers=workers) as run:
        await run.publish([*stubborn, *behind, *beside])
        await run.until(failed=3, finished=1, taken=workers + 1)
        await run.cancel()
        await run.until(returned=True)


@guarantees(
    one_at_a_time_per_key,
    one_failure_is_one_failure,
    failed_work_is_not_acked,
    order_is_kept_per_key,
    no_message_is_lost,
)
async def test_the_connection_breaks_under_the_handlers(exam: Exam) -> None:
    """Work is done, or has failed for good, and its settlement fails: the end of this delivery.

    What comes back meets what is still in hand of its key. Afterwards there is as much room as before.
    """
    workers = exam.random.randint(2, 5)
    good, bad = exam.messages(14, sleep_s=0.01), exam.messages(6, permanent=True)
    orders = accounts([*good[:2], *bad, *good[2:]], *names(exam, 3))
    more = accounts(exam.messages(workers + 6), *names(exam, workers + 6))
    async with exam.start(workers=workers, proxy=True) as run:
        await run.hold()
        await run.publish(orders)
        await run.until(taken=workers + 2)
        await run.cut()
        await run.until(reconnected=1)
        await run.release()
        await run.until(settled=len(orders))
        await run.hold()
        await run.publish(more)
        await run.until(taken=len(orders) + workers + 2)
        await run.release()
        await run.until(settled=len(orders) + len(more))


@guarantees(empty_key_is_handled, order_is_kept_per_key, no_message_is_lost)
async def test_orders_without_a_key(exam: Exam) -> None:
    """The empty key, and then odd ones: what is thrown away shows, and what is spread over workers."""
    workers = exam.random.randint(3, 6)
    odd = [" ", "0", "ключ", "a/b", "\N{WHITE SMILING FACE}" * 40, ""]
    unkeyed = exam.messages(workers + 3, sleep_s=0.002)
    orders = accounts(exam.messages(3 * len(odd), sleep_s=0.001), *odd)
    async with exam.start(workers=workers) as run:
        await run.hold()
        await run.publish(unkeyed)
        await run.until(taken=workers + 2)
        await run.publish(orders)
        await run.release()
        await run.until(settled=len(unkeyed) + len(orders))


@guarantees(memory_is_bounded, no_message_is_lost)
async def test_more_keys_than_memory(exam: Exam) -> None:
    """A hundred customers, each with an order that fails for good and one that fails for a while.

    All is settled in the end. Lines, locks and counts that stay behind show.
    """
    bad = [*exam.messages(100, permanent=True), *exam.messages(100, transient=1)]
    orders = accounts(bad, *names(exam, 100))
    async with exam.start(workers=exam.random.randint(16, 20)) as run:
        await run.publish(orders)
        await run.until(settled=len(orders))
        await run.weigh()


@guarantees(shutdown_drains_in_flight)
@simulated_only("no broker's stream ends by itself")
async def test_the_source_ends_by_itself(exam: Exam) -> None:
    """Nobody has set `stop`, and there will be nothing to take any more: go home."""
    orders = accounts(exam.messages(8), *names(exam, 3))
    async with exam.start(workers=exam.random.randint(1, 4)) as run:
        await run.publish(orders)
        await run.until(settled=len(orders))
        await run.end_source()
        await run.until(returned=True)


@guarantees(shutdown_drains_in_flight, no_message_is_lost)
@simulated_only("its handlers take minutes")
async def test_work_that_takes_minutes(exam: Exam) -> None:
    """No pool may lose its patience, before the stop or after it: no handler has a time limit.

    Nothing comes while the first one is at work: a source that is silent for long has not ended.
    """
    workers = exam.random.randint(2, 4)
    first = accounts(exam.messages(1, sleep_s=600), *names(exam, 1))
    orders = accounts(exam.messages(3 * workers, sleep_s=45), *names(exam, 3))
    async with exam.start(workers=workers) as run:
        await run.publish(first)
        await run.until(settled=1, timeout_s=1000)
        await run.publish(orders)
        await run.until(settled=workers + 1, timeout_s=1000)
        await run.stop()
        await run.until(returned=True, timeout_s=1000)
