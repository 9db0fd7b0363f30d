"""What grades `run` and `charge` of `idempotent_handler`. Gates and break points decide what falls together.

Each scenario's docstring says which wrong designs it is for; NOTES.md has the table. Every one of
them ends with the examiner's own look into the database.
"""

from __future__ import annotations

import json

from autograder.checks.concurrency import concurrency_is_bounded
from autograder.checks.effects import (
    ack_follows_commit,
    distinct_messages_are_not_swallowed,
    effect_happens_once,
    every_delivery_is_settled,
    failed_attempt_can_be_retried,
    same_id_other_payload_is_refused,
)
from autograder.checks.leases import (
    held_leases_get_a_pause,
    leases_are_released,
    leases_expire,
    one_holder_at_a_time,
    only_the_owner_releases,
)
from autograder.checks.loss import no_message_is_lost
from autograder.exam import Exam, guarantees

TTL_S = 60  # longer than any scenario: what ends a lease here is the examiner's hand
LONG_S = 300  # so that no number in the module passes for both
SHORT_S = 1  # whoever renews a lease does it within half of that


@guarantees(
    effect_happens_once,
    distinct_messages_are_not_swallowed,
    every_delivery_is_settled,
    no_message_is_lost,
)
async def test_payments_come_again(exam: Exam) -> None:
    """All of them twice, among new ones: the second time in another order, and some a third time."""
    first, later = exam.messages(20, keys=4), exam.messages(10, keys=4)
    async with exam.start(workers=exam.random.randint(2, 6), bears=("duplicates", "cuts")) as run:
        await run.publish(first)
        await run.until(settled=len(first))
        again = [*first, *later, *exam.random.sample(first, 5)]
        exam.random.shuffle(again)
        await run.publish(again)
        await run.until(settled=len(first) + len(later))
        await run.stop()
        await run.until(returned=True)


@guarantees(
    effect_happens_once,
    ack_follows_commit,
    distinct_messages_are_not_swallowed,
    no_message_is_lost,
)
async def test_two_deliveries_at_the_same_time(exam: Exam) -> None:
    """Both are in hand while the first is held in its transaction: looks before writes show here.

    So does a second one that is acked because somebody has the first in hand. There are workers for
    both of each pair and for the others, so by the time these are done the second of each pair stands
    wherever the design lets it stand; one of them takes its time, so what was given back comes again.
    """
    pairs = exam.random.randint(2, 3)
    held, others = exam.messages(pairs), [*exam.messages(11), *exam.messages(1, sleep_s=0.3)]
    async with exam.start(workers=2 * pairs + 2) as run:
        await run.hold(held)
        await run.publish([each for order in held for each in (order, order)])
        await run.until(started=pairs)
        await run.publish(others)
        await run.until(settled=len(others))
        await run.count_effects()
        await run.release(held)
        await run.until(settled=len(held) + len(others))
        await run.stop()
        await run.until(returned=True)


@guarantees(
    failed_attempt_can_be_retried,
    effect_happens_once,
    every_delivery_is_settled,
    no_message_is_lost,
)
async def test_attempts_that_fail(exam: Exam) -> None:
    """The row is written, and then the handler raises: a mark that stays, or a row that stays, shows.

    What has failed for good comes again, too, as it does from the dead letters: it was never booked. New ones
    come behind it, so that it is in hand when the stop comes.
    """
    heal = [
        *exam.messages(4, transient=1),
        *exam.messages(4, error=1),
        *exam.messages(1, transient=3),
        *exam.messages(1, transient=6),
    ]
    hopeless = exam.messages(2, permanent=True)
    fine, late = exam.messages(8), exam.messages(4)
    orders = [*heal, *hopeless, *fine]
    exam.random.shuffle(orders)
    async with exam.start(workers=exam.random.randint(2, 4), bears=("duplicates", "cuts")) as run:
        await run.publish(orders)
        await run.until(failed=4 + 4 + 3 + 6 + len(hopeless))
        await run.publish([*heal, *hopeless, *late])
        await run.until(settled=len(orders) + len(late))
        await run.stop()
        await run.until(returned=True)


@guarantees(ack_follows_commit, effect_happens_once, no_message_is_lost)
async def test_killed_between_commit_and_ack(exam: Exam) -> None:
    """SIGKILL in a call of ack(), and before it a look into the database: it has to be there by now."""
    orders = exam.messages(20, keys=5)
    async with exam.start(workers=exam.random.randint(2, 5), bears=("duplicates", "cuts")) as run:
        await run.break_at("ack", exam.random.randint(2, 12))
        await run.publish(orders)
        await run.until(at_break=True)
        await run.count_effects()
        await run.kill()
        await run.restart()
        await run.until(settled=len(orders))
        await run.stop()
        await run.until(returned=True)


@guarantees(
    effect_happens_once,
    failed_attempt_can_be_retried,
    distinct_messages_are_not_swallowed,
    no_message_is_lost,
)
async def test_killed_at_a_commit(exam: Exam) -> None:
    """SIGKILL right after the first commit, and after the second: two transactions for one message show."""
    for commit in (1, 2):
        orders = exam.messages(8)
        async with exam.start(workers=1) as run:
            await run.break_at("committed", commit)
            await run.publish(orders)
            await run.until(at_break=True)
            await run.kill()
            await run.restart()
            await run.until(settled=len(orders))
            await run.stop()
            await run.until(returned=True)


@guarantees(failed_attempt_can_be_retried, effect_happens_once, no_message_is_lost)
async def test_killed_in_the_middle_of_work(exam: Exam) -> None:
    """SIGKILL while every worker is inside its handler: whatever is marked by then is marked too soon."""
    workers = exam.random.randint(2, 5)
    orders = exam.messages(15, keys=3)
    async with exam.start(workers=workers) as run:
        await run.hold()
        await run.publish(orders)
        await run.until(started=workers)
        await run.kill()
        await run.release()
        await run.restart()
        await run.until(settled=len(orders))
        await run.stop()
        await run.until(returned=True)


@guarantees(distinct_messages_are_not_swallowed, no_message_is_lost)
async def test_payments_that_look_alike(exam: Exam) -> None:
    """The same customer pays the same amount again: another id is another payment."""
    same = exam.messages(10, keys=1, body=json.dumps({"amount": 4200}).encode())
    async with exam.start(workers=exam.random.randint(1, 4), bears=("duplicates", "cuts")) as run:
        await run.publish(same)
        await run.until(settled=len(same))
        await run.stop()
        await run.until(returned=True)


@guarantees(same_id_other_payload_is_refused, effect_happens_once, no_message_is_lost)
async def test_another_amount_under_a_known_id(exam: Exam) -> None:
    """A producer's mistake must not pass for a repetition, and a repetition not for a mistake.

    Another process has to tell them apart, in which `hash` of a body is another number.
    """
    orders = exam.messages(12)
    wrong, again = exam.altered(orders[:5]), orders[5:]
    late = [*wrong, *again, *exam.messages(3)]
    exam.random.shuffle(late)
    async with exam.start(workers=exam.random.randint(2, 4)) as run:
        await run.publish(orders)
        await run.until(settled=len(orders))
        await run.stop()
        await run.until(returned=True)
        await run.restart(hash_seed=1)
        await run.publish(late)
        await run.until(settled=len(orders) + 3, given_up=len(wrong))
        await run.stop()
        await run.until(returned=True)


@guarantees(effect_happens_once, concurrency_is_bounded, no_message_is_lost)
async def test_the_connection_breaks_under_the_handlers(exam: Exam) -> None:
    """The broker brings back what is still being worked on: old and new deliveries in one process.

    More wait than there are workers, and none of these comes to an end: a task per message shows.
    """
    workers = exam.random.randint(2, 5)
    orders = exam.messages(15)
    async with exam.start(workers=workers, proxy=True) as run:
        await run.hold()
        await run.publish(orders)
        await run.until(started=workers)
        await run.cut()
        await run.until(reconnected=1)
        await run.release()
        await run.until(settled=len(orders))
        await run.stop()
        await run.until(returned=True)


@guarantees(
    effect_happens_once,
    distinct_messages_are_not_swallowed,
    every_delivery_is_settled,
    no_message_is_lost,
)
async def test_the_database_goes_in_the_middle_of_a_commit(exam: Exam) -> None:
    """Nobody can know whether it is done: what was is not booked again, and what was not is booked."""
    orders = exam.messages(8)
    done = [True, True, False]
    exam.random.shuffle(done)
    async with exam.start(workers=exam.random.randint(1, 3)) as run:
        await run.lose_commits(*done)
        await run.publish(orders)
        await run.until(settled=len(orders))
        await run.stop()
        await run.until(returned=True)


@guarantees(
    effect_happens_once,
    distinct_messages_are_not_swallowed,
    every_delivery_is_settled,
    no_message_is_lost,
)
async def test_two_consumers_of_one_subscription(exam: Exam) -> None:
    """A rolling deployment: the old process is in its transaction, and the new one gets the same messages.

    For whoever guards within the process only: a lock for each id, a set of those in progress. The old
    one was told to stop and takes nothing any more, so all that is published goes to the new one. As
    above, it has workers for the repetitions and for the others. On Kafka there may be four: both
    deliveries come to the new one, and once more if the old one leaves the group after it has joined.
    """
    held, others = exam.messages(1), exam.messages(10)
    async with exam.start(workers=4 + exam.random.randint(1, 3)) as run:
        await run.hold(held)
        await run.publish(held)
        await run.until(started=1)
        await run.stop()
        await run.add_consumer()
        await run.publish([*held, *others])
        await run.until(settled=len(others))
        await run.release(held)
        await run.until(settled=len(held) + len(others))
        await run.stop()
        await run.until(returned=True)


# -- the second contract: charges under a lease


@guarantees(
    one_holder_at_a_time,
    held_leases_get_a_pause,
    leases_are_released,
    every_delivery_is_settled,
    no_message_is_lost,
)
async def test_another_consumer_holds_the_lease(exam: Exam) -> None:
    """Before the work, of some messages, and then no more: what was given back is charged after all.

    For whoever takes no answer for an answer, has a key of its own, or acks what is somebody else's. One
    other message takes its time, so the held ones are met several times: for whoever has the patience of one,
    or of a second.
    """
    held, others = exam.messages(2), [*exam.messages(5), *exam.messages(1, sleep_s=1.2)]
    async with exam.start(function="charge", workers=4, ttl_s=TTL_S) as run:
        await run.take_leases(held)
        await run.publish([*held, *others])
        await run.until(settled=len(others), lease_refused=len(held))
        await run.look_at_leases(held)
        await run.free_leases(held)
        await run.until(settled=len(held) + len(others))
        await run.stop()
        await run.until(returned=True)


@guarantees(
    one_holder_at_a_time,
    leases_expire,
    leases_are_released,
    no_message_is_lost,
)
async def test_two_deliveries_of_one_charge(exam: Exam) -> None:
    """Both are on their way to take the lease at the same time; later the first one's time is over.

    One more message comes a second time only then: to the first, both are the first attempt. For a look
    before the take, for a lease that comes after the work, for one token for all, or for what two share.
    """
    pairs = exam.random.randint(1, 2)
    held, once, others = exam.messages(pairs), exam.messages(1), exam.messages(4)
    pairs += 1
    async with exam.start(function="charge", workers=2 * pairs + 2, ttl_s=TTL_S) as run:
        await run.hold(held, at="take")
        await run.hold([*held, *once])
        await run.publish([each for order in held for each in (order, order)])
        await run.publish([*once, *others])
        await run.until(settled=len(others))
        await run.release(held, at="take")
        await run.until(started=pairs + len(others))
        await run.look_at_leases([*held, *once])
        await run.end_leases([*held, *once])
        await run.publish(once)
        await run.until_still(lease_taken=2 * pairs + len(others))
        await run.look_at_leases([*held, *once])
        await run.release([*held, *once])
        await run.until(settled=pairs + len(others))
        await run.stop()
        await run.until(returned=True)


@guarantees(only_the_owner_releases, every_delivery_is_settled, no_message_is_lost)
async def test_the_lease_is_lost(exam: Exam) -> None:
    """While the handler is at work, and again while the release is on its way to the server.

    For a release that asks nobody, and for one that asks first and deletes then.
    """
    at_work, at_the_end = exam.messages(1), exam.messages(1)
    async with exam.start(function="charge", workers=3, ttl_s=TTL_S) as run:
        await run.hold(at_work)
        await run.hold(at_the_end, at="release")
        await run.publish([*at_work, *at_the_end])
        await run.until(started=2, lease_waits=1)
        await run.take_leases([*at_work, *at_the_end])
        await run.release(at_work)
        await run.release(at_the_end, at="release")
        await run.stop()
        await run.until(returned=True)


@guarantees(only_the_owner_releases, every_delivery_is_settled, no_message_is_lost)
async def test_the_lease_is_lost_before_it_is_renewed(exam: Exam) -> None:
    """While one more message takes its time, a renewal falls due: for one that asks nobody.

    Whoever does not renew notices nothing; whoever does may go on, or end its work and begin anew.
    """
    lost, other = exam.messages(1), exam.messages(1, sleep_s=0.55 * SHORT_S)
    async with exam.start(function="charge", workers=3, ttl_s=SHORT_S) as run:
        await run.hold(lost)
        await run.publish(lost)
        await run.until(started=1)
        await run.take_leases(lost)
        await run.publish(other)
        await run.until(finished=1)
        await run.look_at_leases(lost)
        await run.free_leases(lost)
        await run.release(lost)
        await run.until(settled=2)
        await run.stop()
        await run.until(returned=True)


@guarantees(leases_are_released, no_message_is_lost, every_delivery_is_settled)
async def test_charges_that_fail(exam: Exam) -> None:
    """The next attempt meets the lease of the last one, if that one has kept it."""
    heal = [*exam.messages(2, transient=1), *exam.messages(2, error=1)]
    hopeless, fine = exam.messages(1, permanent=True), exam.messages(3)
    orders = [*heal, *hopeless, *fine]
    exam.random.shuffle(orders)
    async with exam.start(function="charge", workers=exam.random.randint(2, 4), ttl_s=TTL_S) as run:
        await run.publish(orders)
        await run.until(settled=len(orders))
        await run.stop()
        await run.until(returned=True)


@guarantees(every_delivery_is_settled, no_message_is_lost)
async def test_connections_break_under_the_charges(exam: Exam) -> None:
    """That to the leases on the way to a take, which is then none, and on the way back from a release.

    Then that to the broker, under a handler: its ack is refused, and so would be whatever comes after it.
    """
    orders, last = exam.messages(5), exam.messages(1)
    workers = exam.random.randint(1, 3)
    async with exam.start(function="charge", workers=workers, ttl_s=TTL_S, proxy=True) as run:
        await run.hold(last)
        await run.lose_lease_commands("take", "release")
        await run.publish(orders)
        await run.until(settled=len(orders))
        await run.publish(last)
        await run.until(running=1)
        await run.cut()
        await run.until(reconnected=1)
        await run.release(last)
        await run.until(settled=len(orders) + 1)
        await run.stop()
        await run.until(returned=True)


@guarantees(one_holder_at_a_time, only_the_owner_releases, leases_expire, no_message_is_lost)
async def test_killed_under_the_lease(exam: Exam) -> None:
    """SIGKILL in the middle of the work: nobody goes on before the time is over, then somebody does.

    The first message is alone in the world, and the time of its lease is over when the next process
    begins: its first take, too. For tokens that begin with the process.
    """
    workers = exam.random.randint(2, 3)
    first, later = exam.messages(1), exam.messages(workers - 1)
    orders = [*first, *later]
    async with exam.start(function="charge", workers=workers, ttl_s=LONG_S) as run:
        await run.hold()
        await run.publish(first)
        await run.until(running=1)
        await run.look_at_leases(first)
        await run.kill()
        await run.end_leases(first)
        await run.restart()
        await run.until(running=1)
        await run.look_at_leases(first)
        await run.publish(later)
        await run.until(running=workers)
        await run.look_at_leases(orders)
        await run.kill()
        await run.restart()
        await run.until(lease_refused=workers)
        await run.end_leases(orders)
        await run.until(running=workers)
        await run.look_at_leases(orders)
        await run.release()
        await run.until(settled=len(orders))
        await run.stop()
        await run.until(returned=True)
