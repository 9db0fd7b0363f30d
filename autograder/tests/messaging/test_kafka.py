"""The Kafka adapter keeps the contract, and what is Kafka's own."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
from aiokafka import AIOKafkaProducer

from autograder.messaging import SettleFailed, kafka
from autograder.messaging.adapter import Lane
from autograder.tests.messaging.contract import CONSUMER, ProcessContract
from autograder.tests.messaging.stage import (
    LEASE_S,
    PATIENCE_S,
    eventually,
    kill,
    prompt,
    take,
    take_and_ack,
)

pytestmark = pytest.mark.kafka

TRYING = """
import asyncio, sys
from autograder.messaging.adapter import Lane, open_source

async def main():
    engine, url, channel, consumer, lease_s = sys.argv[1:6]
    async with open_source(engine, Lane(url, channel, consumer, float(lease_s)), prefetch=256) as source:
        for _ in range(3):
            await (await anext(source)).nack(requeue=True)
        message = await anext(source)
        print(message.attempt, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


class TestKafka(ProcessContract):
    engine = "kafka"
    nowhere = Lane("127.0.0.1:1", "nothing", "nobody")
    first_attempt_after_a_kill = 1  # a try that a crash ended is not counted; see the adapter

    async def test_a_cut_costs_nothing(self, stage):
        """Partitions belong to the member of the group, and the client mends its connections."""
        await stage.publish(3)
        source = await stage.connect(cuttable=True)
        for message in await take(source, 3):
            stage.cut()
            await prompt(message.ack())
        await stage.until_settled(3)

    async def test_a_loop_that_is_torn_down_does_not_keep_it_open(self, stage):
        """Every task is cancelled then, and `finally: await source.close()` has to come back."""
        source = await stage.connect()
        for task in source._tasks:
            task.cancel()
        await asyncio.wait_for(source.close(), 10)

    # -- the watermark

    async def test_one_held_message_holds_the_commit_and_nothing_else(self, stage):
        await stage.publish(50, keys=1)
        source = await stage.connect()
        held, *others = await take(source, 50)
        for message in others:
            await message.ack()
        await asyncio.sleep(0.3)  # commits that would be wrong have had their time
        assert (await stage.engine.state(stage.lane)).settled == 0
        await held.ack()
        await stage.until_settled(50)

    async def test_a_crash_repeats_what_is_above_the_lowest_unsettled(self, stage):
        await stage.publish(10, keys=1)
        source = await stage.connect()
        messages = await take(source, 10)
        for message in messages[:3] + messages[5:]:
            await message.ack()
        await self.until_kept(stage, 3)
        await source.close()
        again = await take(await stage.connect(), 7)
        assert [message.id for message in again] == [f"m{n}" for n in range(3, 10)]

    async def test_gaps_of_transactions_do_not_stop_the_commits(self, stage):
        producer = AIOKafkaProducer(
            bootstrap_servers=stage.lane.url, transactional_id=stage.lane.channel
        )
        await producer.start()
        try:
            for number in range(6):
                await producer.begin_transaction()
                await producer.send_and_wait(stage.lane.channel, b"%d" % number, key=b"k")
                if number % 3 == 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        finally:
            await producer.stop()
        messages = await take_and_ack(await stage.connect(), 4)
        assert [message.body for message in messages] == [b"0", b"1", b"3", b"4"]
        assert {message.key for message in messages} == {"k"}
        # the last one delivered is number 4, at offset 8; markers and the aborted 5 lie behind it
        await eventually_kept(stage, 9)

    async def test_a_full_window_pauses_its_partition_alone(self, stage, monkeypatch):
        monkeypatch.setattr(kafka, "WINDOW", 40)
        stage.lane = await stage.open_lane(partitions=2)
        await stage.publish(400, keys=40)
        source = await stage.connect(prefetch=8)
        held = (await take(source, 1))[0]
        others = Counter()
        stuck = time.monotonic()
        while held.partition.window < 40:
            [message] = await take_and_ack(source, 1)
            others[message.partition.place] += 1
            assert time.monotonic() - stuck < PATIENCE_S
        for _ in range(100):
            [message] = await take_and_ack(source, 1)
            others[message.partition.place] += 1
        assert held.partition.window < 40 + kafka.RUN
        assert others[held.partition.place] < 40 + kafka.RUN
        await held.ack()
        for _ in range(400 - 1 - others.total()):
            await take_and_ack(source, 1)
        await stage.until_settled(400)

    # -- attempts

    async def test_attempts_outlive_a_killed_process(self, stage):
        await stage.publish(1)
        process = await stage.start_consumer(TRYING)
        assert await prompt(process.stdout.readline(), PATIENCE_S) == b"4\n"
        await asyncio.sleep(3 * kafka.COMMIT_EVERY_S)  # the commit with the count has gone out
        await kill(process)
        await stage.engine.expire(stage.lane)
        [message] = await take_and_ack(await stage.connect(), 1)
        assert message.attempt == 4
        await stage.until_settled(1)

    # -- the group

    async def test_the_restarted_process_does_not_wait_for_the_dead_ones_session(self, stage):
        await stage.publish(20)
        process = await stage.start_consumer(CONSUMER)
        await prompt(process.stdout.readline(), PATIENCE_S)
        await kill(process)
        killed = time.monotonic()
        await stage.engine.expire(stage.lane)
        await take(await stage.connect(), 1)
        assert time.monotonic() - killed < LEASE_S / 2

    async def test_losing_the_partition_ends_its_deliveries(self, stage):
        await stage.publish(2)
        source = await stage.connect()
        lost, other = await take(source, 2)
        await stage.engine.expire(stage.lane)  # the member is put out of the group, though it lives
        again = await take_and_ack(source, 2)
        for message in lost, other:
            with pytest.raises(SettleFailed):
                await message.ack()
            with pytest.raises(SettleFailed):
                await message.nack(requeue=True)
        assert {message.id for message in again} == {lost.id, other.id}
        await stage.until_settled(2)

    async def test_a_second_member_takes_over_without_repeats(self, stage):
        ids = await stage.publish(200, keys=40)
        first = await stage.connect(prefetch=20)
        in_hand = await take(first, 20)
        seen = [message.id for message in in_hand]
        joining = asyncio.create_task(stage.connect(prefetch=20))
        await asyncio.sleep(0.2)
        for message in in_hand:  # drain first, fence second: these are in time
            await message.ack()
        second = await prompt(joining, PATIENCE_S)

        async def work(source):
            async for message in source:
                seen.append(message.id)
                await message.ack()

        workers = [asyncio.create_task(work(source)) for source in (first, second)]
        await stage.until_settled(200)
        assert sorted(seen) == sorted(ids)
        await prompt(asyncio.gather(first.stop_receiving(), second.stop_receiving()), PATIENCE_S)
        await prompt(asyncio.gather(*workers))

    async def test_a_stopped_member_stays_until_its_hands_are_empty(self, stage):
        await stage.publish(10, keys=1)
        first = await stage.connect()
        in_hand = await take(first, 4)
        await prompt(first.stop_receiving())
        joining = asyncio.create_task(stage.connect())
        for message in in_hand:
            await message.ack()
        rest = await take_and_ack(await prompt(joining, PATIENCE_S), 6)
        assert [message.id for message in rest] == [f"m{n}" for n in range(4, 10)]
        await eventually(lambda: not first.standing().connected, lambda: f"{first.standing()}")

    async def test_partitions_take_turns(self, stage):
        stage.lane = await stage.open_lane(partitions=2)
        await stage.publish(1000, keys=40)
        source = await stage.connect(prefetch=200)
        await eventually(lambda: source.standing().buffered == 200, lambda: f"{source.standing()}")
        messages = await take(source, 100)
        shares = [sum(m.partition.place.partition == n for m in messages) for n in (0, 1)]
        assert min(shares) >= 100 // 2 - kafka.RUN


async def eventually_kept(stage, count):
    """Wait until the committed offsets add up to this."""
    state = await stage.engine.state(stage.lane)

    async def kept() -> bool:
        nonlocal state
        state = await stage.engine.state(stage.lane)
        return state.settled == count

    await eventually(kept, lambda: f"committed up to {count}: {state}")
