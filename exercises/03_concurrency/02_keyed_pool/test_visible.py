"""A part of what grades your pool, for you to read. `ackademy check` runs these and harder ones.

Your module runs in a process of its own, against a real broker. A scenario publishes orders with
keys, decides which handlers wait at a gate and for how long, and does what operations do: it stops
the pool, or restarts it. It asserts nothing. The guarantees named above it judge what happened.
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
from autograder.exam import Exam, Order, guarantees


def accounts(orders: list[Order], *keys: str) -> list[Order]:
    """The same orders, dealt out to these keys in turn."""
    return [replace(each, key=keys[n % len(keys)]) for n, each in enumerate(orders)]


@guarantees(order_is_kept_per_key, one_at_a_time_per_key, empty_key_is_handled, no_message_is_lost)
async def test_slow_deposits_and_quick_purchases(exam: Exam) -> None:
    keys = ["anna", "boris", "", "dora"]  # the third has none, which is a key like others
    deposits = accounts(exam.messages(4, sleep_s=0.01), *keys)
    purchases = accounts(exam.messages(4), *keys)
    withdrawals = accounts(exam.messages(4, sleep_s=0.002), *keys)
    async with exam.start(workers=4) as run:
        await run.publish([*deposits, *purchases, *withdrawals])
        await run.until(settled=12)


@guarantees(keys_run_in_parallel, concurrency_is_bounded, backpressure_holds)
async def test_thirty_accounts_at_once(exam: Exam) -> None:
    keys = [f"account-{n}" for n in range(30)]
    orders = accounts(exam.messages(30, sleep_s=0.005), *keys)
    async with exam.start(workers=8) as run:
        await run.hold()  # every handler that starts now waits at a gate
        await run.publish(orders)
        await run.until(taken=10)  # there is room for workers + 2 in every pool
        await run.release()
        await run.until(settled=30)


@guarantees(slow_key_does_not_block_others)
async def test_one_account_is_slow(exam: Exam) -> None:
    others = accounts(exam.messages(24), *(f"account-{n}" for n in range(24)))
    async with exam.start(workers=12) as run:
        await run.hold(key="slow")
        await run.publish(accounts(exam.messages(2), "slow"))
        await run.until(started=1)
        await run.publish(others)
        await run.until(finished=12)  # half of them: the others may share its lane
        await run.release()
        await run.until(settled=26)


@guarantees(order_survives_a_retry, failed_work_is_not_acked, one_failure_is_one_failure)
async def test_deposits_fail_at_first(exam: Exam) -> None:
    keys = ["anna", "boris", "clara", "dora"]
    failing = accounts(exam.messages(4, transient=1), *keys)  # raise Transient the first time
    behind = accounts(exam.messages(8), *keys)  # and these have to wait until they are done
    async with exam.start(workers=2) as run:
        await run.publish([*failing, *behind])
        await run.until(settled=12)


@guarantees(same_key_same_route_across_restarts)
async def test_the_same_accounts_after_a_restart(exam: Exam) -> None:
    held = [f"slow-{n}" for n in range(8)]
    others = [f"account-{n}" for n in range(10)]
    done = 0
    async with exam.start(workers=16) as run:
        for hash_seed in 0, 17:
            if hash_seed:
                await run.stop()
                await run.until(returned=True)
                await run.restart(hash_seed=hash_seed)  # as after every deployment
            for key in held:
                await run.hold(key=key)
            await run.publish(accounts(exam.messages(8), *held))
            await run.until(taken=done + 8)
            await run.publish(accounts(exam.messages(10), *others))
            await run.until_still(finished=done + 10)  # or until the rest waits behind the held
            await run.release()
            done += 18
            await run.until(settled=done)


@guarantees(ack_follows_work, stop_means_no_new_work, shutdown_drains_in_flight)
async def test_stop_while_an_account_fails(exam: Exam) -> None:
    failing = accounts(exam.messages(1, transient=7), "anna")
    behind = accounts(exam.messages(2), "anna")
    fine = accounts(exam.messages(2), "boris")
    async with exam.start(workers=3) as run:
        await run.publish([*failing, *behind, *fine])
        await run.until(failed=2, settled=2)
        await run.stop()  # in the pause before the third try
        await run.publish(accounts(exam.messages(3), "clara"))
        await run.until(returned=True)
