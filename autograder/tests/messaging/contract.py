"""What the port promises, as tests. Each adapter inherits them; none is changed for one of them."""

from __future__ import annotations

import asyncio
import gc
import sys
import time

import pytest

from autograder.exam.engines import Outgoing
from autograder.messaging import AlreadySettled, Message, SettleFailed, Source
from autograder.messaging.adapter import Lane, open_source
from autograder.tests.messaging.stage import (
    LEASE_S,
    PATIENCE_S,
    Stage,
    eventually,
    kill,
    prompt,
    take,
    take_and_ack,
)

CONSUMER = """
import asyncio, sys
from autograder.messaging.adapter import Lane, open_source

async def main():
    engine, url, channel, consumer, lease_s = sys.argv[1:6]
    async with open_source(engine, Lane(url, channel, consumer, float(lease_s)), prefetch=256) as source:
        for _ in range(10):
            await (await anext(source)).ack()
        for _ in range(10):
            await anext(source)
        print("ten settled, ten in hand", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


class Contract:
    """What holds on every engine."""

    engine = ""
    nowhere = Lane("", "nothing", "nobody")  # a lane on which no broker answers

    @pytest.fixture
    async def stage(self, request):
        url = "" if self.engine == "memory" else request.getfixturevalue("bench").server(self.engine).url  # fmt: skip
        async with Stage(self.engine, url) as stage:
            yield stage

    # -- taking

    async def test_sources_and_messages_are_what_the_port_says(self, stage):
        await stage.publish(1)
        source = await stage.connect()
        assert isinstance(source, Source)
        assert aiter(source) is source
        [message] = await take(source, 1)
        assert isinstance(message, Message)
        assert (message.id, message.key, message.attempt) == ("m0", "", 1)

    async def test_each_key_comes_in_the_order_of_publishing(self, stage):
        ids = await stage.publish(200, keys=5)
        messages = await take_and_ack(await stage.connect(prefetch=16), 200)
        assert {message.id for message in messages} == set(ids)
        for key in {message.key for message in messages}:
            numbers = [int(each.id[1:]) for each in messages if each.key == key]
            assert numbers == sorted(numbers)

    @pytest.mark.parametrize(
        "key",
        ["", "order-7", "ключ 🔑", " both ends ", "two\r\nlines", "100%25", "a.b.>.*", "\ud800", "k" * 1000],
    )  # fmt: skip
    async def test_any_text_may_be_a_key(self, stage, key):
        sent = Outgoing("ид 1", key, bytes(range(256)), {"trace": "ä\n%", "Empty": ""})
        await stage.engine.publish(stage.lane, [sent])
        [message] = await take(await stage.connect(), 1)
        assert (message.id, message.key, message.body) == (sent.id, sent.key, sent.body)
        assert dict(message.headers) == sent.headers

    async def test_an_empty_body_is_a_body(self, stage):
        await stage.engine.publish(stage.lane, [Outgoing("m0")])
        [message] = await take(await stage.connect(), 1)
        assert message.body == b""
        assert message.headers == {}

    async def test_what_is_published_later_arrives_later(self, stage):
        source = await stage.connect()
        pending = asyncio.create_task(anext(source))
        await asyncio.sleep(0.3)  # an idle phase is part of what is tested here
        assert not pending.done()
        await stage.publish(1)
        assert (await prompt(pending)).id == "m0"

    async def test_many_tasks_take_from_one_source(self, stage):
        ids = await stage.publish(300, keys=7)
        source = await stage.connect(prefetch=20)
        taken = []

        async def work():
            async for message in source:
                taken.append(message.id)
                await asyncio.sleep(0)
                await message.ack()

        workers = [asyncio.create_task(work()) for _ in range(16)]
        await stage.until_settled(300)
        assert sorted(taken) == sorted(ids)
        await source.stop_receiving()
        await prompt(asyncio.gather(*workers))

    async def test_a_cancelled_take_loses_nothing(self, stage):
        source = await stage.connect()
        pending = [asyncio.create_task(anext(source)) for _ in range(3)]
        await asyncio.sleep(0)
        pending[0].cancel()
        pending[1].cancel()
        ids = await stage.publish(2)
        messages = [await prompt(pending[2]), *await take(source, 1)]
        assert sorted(message.id for message in messages) == ids

    async def test_takes_cancelled_as_messages_arrive_lose_nothing(self, stage):
        ids = await stage.publish(300)
        source = await stage.connect(prefetch=8)
        taken = []
        for turn in range(100_000):
            pending = asyncio.create_task(anext(source))
            for _ in range(turn % 4):
                await asyncio.sleep(0)
            pending.cancel()
            try:
                message = await pending
            except asyncio.CancelledError:
                continue
            taken.append(message.id)
            await message.ack()
            if len(taken) == len(ids):
                break
        assert sorted(taken) == sorted(ids)

    async def test_the_buffer_stays_within_prefetch(self, stage):
        await stage.publish(400, keys=8)
        source = await stage.connect(prefetch=10)
        most = 0
        for _ in range(400):
            [message] = await take(source, 1)
            most = max(most, source.standing().buffered)
            await message.ack()
        assert 0 < most <= 10

    async def test_standing_counts(self, stage):
        await stage.publish(30)
        source = await stage.connect(prefetch=10)
        await eventually(lambda: source.standing().buffered == 10, lambda: f"{source.standing()}")
        first, second = await take(source, 2)
        standing = source.standing()
        assert (standing.in_hand, standing.connected) == (2, True)
        await first.ack()
        await second.nack(requeue=False)
        assert source.standing().in_hand == 0

    # -- stopping

    async def test_stopping_ends_pending_and_later_takes(self, stage):
        source = await stage.connect()
        pending = [asyncio.create_task(anext(source)) for _ in range(3)]
        await asyncio.sleep(0)
        await prompt(source.stop_receiving())
        ends = await prompt(asyncio.gather(*pending, return_exceptions=True))
        assert [type(end) for end in ends] == [StopAsyncIteration] * 3
        with pytest.raises(StopAsyncIteration):
            await anext(source)

    async def test_stopping_gives_unread_messages_back_at_once(self, stage):
        ids = await stage.publish(50)
        first = await stage.connect()
        await take_and_ack(first, 3)
        await eventually(lambda: first.standing().buffered > 0, lambda: f"{first.standing()}")
        await prompt(first.stop_receiving())
        second = await stage.connect()
        began = time.monotonic()
        rest = await take_and_ack(second, 47)
        assert time.monotonic() - began < LEASE_S / 2
        assert len({message.id for message in rest}) == 47
        assert {message.id for message in rest} < set(ids)
        await stage.until_settled(50)

    async def test_what_is_in_hand_after_a_stop_can_be_settled(self, stage):
        await stage.publish(5)
        source = await stage.connect()
        messages = await take(source, 5)
        await prompt(source.stop_receiving())
        for message in messages:
            await message.ack()
        await stage.until_settled(5)

    async def test_what_is_in_hand_after_a_stop_can_be_requeued(self, stage):
        await stage.publish(2)
        source = await stage.connect()
        for message in await take(source, 2):
            await source.stop_receiving()
            await message.nack(requeue=True)
        again = await take_and_ack(await stage.connect(), 2)
        assert [message.attempt for message in again] == [2, 2]
        await stage.until_settled(2)

    async def test_stopping_may_be_repeated(self, stage):
        source = await stage.connect()
        await prompt(asyncio.gather(source.stop_receiving(), source.stop_receiving()))
        await prompt(source.stop_receiving())
        await prompt(source.close())
        await prompt(source.close())
        await prompt(source.stop_receiving())
        with pytest.raises(StopAsyncIteration):
            await anext(source)

    async def test_a_cancelled_stop_is_still_a_stop(self, stage):
        await stage.publish(20)
        first = await stage.connect()
        await take_and_ack(first, 1)
        stopping = asyncio.create_task(first.stop_receiving())
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(StopAsyncIteration):
            await anext(first)
        await prompt(first.stop_receiving())
        assert len(await take_and_ack(await stage.connect(), 19)) == 19

    async def test_closing_gives_everything_back_and_leaves_no_task(self, stage):
        await stage.publish(20)
        before = asyncio.all_tasks()
        source = await stage.connect()
        in_hand = await take(source, 4)
        pending = asyncio.create_task(anext(source))
        assert (await prompt(pending)).id
        await prompt(source.close())
        assert {task.get_coro() for task in asyncio.all_tasks() - before} == set()
        with pytest.raises(SettleFailed):
            await in_hand[0].ack()
        assert len(await take_and_ack(await stage.connect(), 20)) == 20

    # -- settling

    async def test_settled_means_that_the_broker_counts_it(self, stage):
        await stage.publish(100, keys=9)
        source = await stage.connect()
        for number, message in enumerate(await take(source, 100)):
            if number % 3:
                await message.ack()
            else:
                await message.nack(requeue=False)
        await stage.until_settled(100)

    @pytest.mark.parametrize("first", ["ack", "requeue", "give up"])
    @pytest.mark.parametrize("second", ["ack", "requeue", "give up"])
    async def test_settling_twice_is_refused(self, stage, first, second):
        await stage.publish(1)
        [message] = await take(await stage.connect(), 1)

        async def settle(how):
            if how == "ack":
                await message.ack()
            else:
                await message.nack(requeue=how == "requeue", delay_s=0)

        await settle(first)
        with pytest.raises(AlreadySettled):
            await settle(second)

    async def test_of_two_settlements_at_the_same_time_one_is_refused(self, stage):
        await stage.publish(1)
        [message] = await take(await stage.connect(), 1)
        ends = await asyncio.gather(
            message.ack(), message.nack(requeue=True), return_exceptions=True
        )
        assert [type(end) for end in ends] == [type(None), AlreadySettled]
        await stage.until_settled(1)

    async def test_a_requeued_message_comes_back_as_the_next_attempt(self, stage):
        await stage.publish(1)
        source = await stage.connect()
        for attempt in 1, 2, 3:
            [message] = await take(source, 1)
            assert (message.id, message.attempt) == ("m0", attempt)
            await message.nack(requeue=True)
        [message] = await take_and_ack(source, 1)
        assert (message.id, message.attempt, message.body) == ("m0", 4, b"x" * 100)
        await stage.until_settled(1)

    async def test_a_delay_is_kept_and_others_go_on(self, stage):
        await stage.publish(10)
        source = await stage.connect()
        [delayed] = await take(source, 1)
        asked = time.monotonic()
        await delayed.nack(requeue=True, delay_s=0.5)
        others = await take_and_ack(source, 9)
        assert delayed.id not in {message.id for message in others}
        [again] = await take_and_ack(source, 1)
        assert time.monotonic() - asked >= 0.5
        assert (again.id, again.attempt) == (delayed.id, 2)
        await stage.until_settled(10)

    async def test_a_negative_delay_is_refused_and_settles_nothing(self, stage):
        await stage.publish(1)
        [message] = await take(await stage.connect(), 1)
        with pytest.raises(ValueError, match="negative"):
            await message.nack(requeue=True, delay_s=-1)
        await message.ack()

    async def test_a_message_given_up_never_comes_back(self, stage):
        await stage.publish(2)
        source = await stage.connect()
        given_up, other = await take(source, 2)
        await given_up.nack(requeue=False)
        await other.nack(requeue=True)
        assert [message.id for message in await take_and_ack(source, 1)] == [other.id]
        await stage.until_settled(2)

    async def test_long_work_does_not_come_back(self, stage):
        lane = await stage.open_lane(lease_s=1.0)
        await stage.publish(3, lane=lane)
        source = await stage.connect(lane=lane)
        in_hand = await take(source, 2)  # and one in the buffer
        await asyncio.sleep(2.5)  # two and a half leases: time is the subject here
        [unread] = await take(source, 1)
        assert [message.attempt for message in (*in_hand, unread)] == [1, 1, 1]
        for message in (*in_hand, unread):
            await message.ack()
        state = await stage.engine.state(lane)
        assert state.redelivered <= 0

    # -- lost connections

    async def test_the_source_survives_a_cut(self, stage):
        # what was on its way when the connection broke may come back only when its lease runs out
        stage.lane = await stage.open_lane(lease_s=2.0)
        ids = await stage.publish(300, keys=5)
        source = await stage.connect(prefetch=20, cuttable=True)
        seen = set()

        async def work():
            async for message in source:
                seen.add(message.id)
                try:
                    await message.ack()
                except SettleFailed:
                    continue

        workers = [asyncio.create_task(work()) for _ in range(4)]
        for reached in 50, 150:
            await eventually(lambda n=reached: len(seen) >= n, lambda: f"{len(seen)} seen")
            stage.cut()
        await stage.until_settled(300)
        assert seen == set(ids)
        await source.stop_receiving()
        await prompt(asyncio.gather(*workers))

    async def test_the_backlog_does_not_grow_memory(self, stage):
        count, block = 20_000, 2_000
        await stage.publish(count, keys=50)
        source = await stage.connect(prefetch=256)
        for _ in range(2 * block // 100):
            await take_and_ack(source, 100)
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range((count - 2 * block) // 100):
            await take_and_ack(source, 100)
        gc.collect()
        grown = sys.getallocatedblocks() - before
        await stage.until_settled(count)
        # a single small object kept of each message would be 16,000 blocks
        assert grown < 8_000, f"{grown} blocks more after {count - 2 * block} messages"

    async def test_nobody_at_the_address_is_a_connection_error(self):
        with pytest.raises(ConnectionError):
            async with (
                asyncio.timeout(PATIENCE_S),
                open_source(self.engine, self.nowhere, prefetch=1),
            ):
                pass


class ConnectionContract(Contract):
    """What holds where a delivery belongs to the connection that brought it."""

    async def test_settling_after_a_cut_fails_and_the_message_comes_back(self, stage):
        await stage.publish(3)
        source = await stage.connect(cuttable=True)
        settled, lost, third = await take(source, 3)
        await settled.ack()
        stage.cut()
        with pytest.raises(SettleFailed):
            await prompt(lost.ack())
        with pytest.raises(SettleFailed):  # and again: it settled nothing
            await prompt(lost.nack(requeue=False))
        with pytest.raises(SettleFailed):
            await prompt(third.nack(requeue=True))
        again = await take_and_ack(source, 2)
        assert {message.id for message in again} == {lost.id, third.id}
        assert {message.attempt for message in again} == {2}
        await stage.until_settled(3)


class ProcessContract(Contract):
    """What holds where a consumer can be another process."""

    first_attempt_after_a_kill = 2

    async def test_what_a_killed_process_held_comes_back_when_its_death_is_known(self, stage):
        await stage.publish(40, keys=4)
        process = await stage.start_consumer(CONSUMER)
        await prompt(process.stdout.readline(), PATIENCE_S)
        await self.until_kept(stage, 10)
        await kill(process)
        await stage.engine.expire(stage.lane)
        began = time.monotonic()
        messages = await take_and_ack(await stage.connect(), 30)
        assert time.monotonic() - began < LEASE_S / 2
        assert len({message.id for message in messages}) == 30
        assert max(message.attempt for message in messages) == self.first_attempt_after_a_kill
        await stage.until_settled(40)

    async def until_kept(self, stage, count):
        """Wait until this many settlements would survive a crash."""
        state = await stage.engine.state(stage.lane)

        async def kept() -> bool:
            nonlocal state
            state = await stage.engine.state(stage.lane)
            return state.settled == count

        await eventually(kept, lambda: f"{count} settled: {state}")
