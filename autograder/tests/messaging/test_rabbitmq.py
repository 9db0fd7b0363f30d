"""The RabbitMQ adapter keeps the contract, and what is RabbitMQ's own."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from autograder.exam.engines import Outgoing
from autograder.messaging import SettleFailed, rabbitmq_lane
from autograder.messaging.adapter import Lane
from autograder.messaging.rabbitmq_link import Connection
from autograder.tests.messaging.contract import ConnectionContract, ProcessContract
from autograder.tests.messaging.stage import LEASE_S, eventually, prompt, take, take_and_ack

pytestmark = pytest.mark.rabbitmq


@asynccontextmanager
async def line_to(lane):
    """A channel of nobody's but the test's."""
    connection = Connection(lane.url, heartbeat_s=60)
    await connection.open()
    try:
        yield await connection.line()
    finally:
        await connection.close(2)


async def depth(lane, queue):
    """Messages that are ready in one of the lane's queues."""
    async with line_to(lane) as line:
        answer = await line.ask(line.channel.queue_declare, queue, passive=True)
        return answer.method.message_count


class TestRabbit(ConnectionContract, ProcessContract):
    engine = "rabbitmq"
    nowhere = Lane("amqp://127.0.0.1:1", "nothing", "nobody")

    async def test_no_thread_is_started(self, stage):
        await stage.publish(1)
        before = threading.active_count()
        source = await stage.connect()
        await take_and_ack(source, 1)
        assert threading.active_count() == before

    # -- the window

    async def test_who_takes_everything_gets_everything_in_order_and_once(self, stage):
        await stage.publish(300)
        source = await stage.connect(prefetch=7)
        messages = await take(source, 300)
        assert [message.id for message in messages] == [f"m{n}" for n in range(300)]
        assert {message.attempt for message in messages} == {1}
        assert source.standing().in_hand == 300
        await asyncio.gather(*(message.ack() for message in messages))
        await stage.until_settled(300)

    @pytest.mark.parametrize("held", [3, 9, 40])
    async def test_held_messages_hold_nobody_up(self, stage, held):
        """Settled or not, in whatever order: the buffer stays within its bound, and nothing repeats."""
        await stage.publish(400)
        source = await stage.connect(prefetch=10)
        hand, seen, most = [], [], 0
        for number in range(400):
            [message] = await take(source, 1)
            seen.append((message.id, message.attempt))
            hand.append(message)
            most = max(most, source.standing().buffered)
            if len(hand) > held:
                await hand.pop(0 if number % 2 else -1).ack()
        assert seen == [(f"m{n}", 1) for n in range(400)]
        assert most <= 10
        await asyncio.gather(*(message.ack() for message in hand))
        await stage.until_settled(400)

    async def test_a_stop_in_the_middle_of_it_keeps_what_is_in_hand(self, stage):
        await stage.publish(100)
        source = await stage.connect(prefetch=8)
        in_hand = await take(source, 30)
        await prompt(source.stop_receiving())
        rest = await take_and_ack(await stage.connect(), 70)
        assert [message.id for message in rest] == [f"m{n}" for n in range(30, 100)]
        for message in in_hand:
            await message.ack()
        await stage.until_settled(100)

    @pytest.mark.parametrize("stopped", [True, False])
    async def test_a_burst_of_settlements_survives_the_end_of_the_connection(self, stage, stopped):
        """A node with its default settings keeps all but 32 back for a moment."""
        await stage.publish(100)
        source = await stage.connect(prefetch=50)
        messages = await take(source, 100)
        if stopped:
            await source.stop_receiving()
        await asyncio.gather(*(message.ack() for message in messages))
        await source.close()
        await stage.until_settled(100)

    # -- attempts, delays and dead letters

    async def test_no_number_of_attempts_makes_a_message_go_away(self, stage):
        """RabbitMQ 4 drops or dead-letters after 20 failures, unless it is told otherwise."""
        await stage.publish(1)
        source = await stage.connect()
        for attempt in range(1, 31):
            [message] = await take(source, 1)
            assert message.attempt == attempt
            await message.nack(requeue=True)
        await take_and_ack(source, 1)
        await stage.until_settled(1)

    async def test_attempts_are_carried_through_delays(self, stage):
        sent = Outgoing("id", "key", b"body", {"trace": "ä"})
        await stage.engine.publish(stage.lane, [sent])
        source = await stage.connect()
        for attempt, delay_s in (1, 0.0), (2, 0.01), (3, 0.0), (4, 0.02), (5, 0.02):
            [message] = await take(source, 1)
            assert message.attempt == attempt
            assert (message.id, message.key, message.body) == (sent.id, sent.key, sent.body)
            assert message.headers == sent.headers  # none of the broker's
            await message.nack(requeue=True, delay_s=delay_s)
        [message] = await take_and_ack(source, 1)
        assert message.attempt == 6
        await stage.until_settled(1)

    async def test_a_short_delay_is_not_held_up_by_a_long_one(self, stage):
        await stage.publish(2)
        source = await stage.connect()
        long, short = await take(source, 2)
        await long.nack(requeue=True, delay_s=30)
        await short.nack(requeue=True, delay_s=0.05)
        [first] = await take_and_ack(source, 1)
        assert first.id == short.id
        state = await stage.engine.state(stage.lane)
        assert (state.waiting, state.settled) == (1, 1)

    async def test_what_is_given_up_becomes_a_dead_letter(self, stage):
        await stage.publish(3)
        source = await stage.connect()
        for message in await take(source, 3):
            await message.nack(requeue=False)
        await stage.until_settled(3)
        assert await depth(stage.lane, rabbitmq_lane.dead_letters(stage.lane.channel)) == 3

    async def test_a_delay_over_a_connection_that_broke_settles_nothing(self, stage):
        await stage.publish(1)
        source = await stage.connect(cuttable=True)
        [message] = await take(source, 1)
        stage.cut()
        with pytest.raises(SettleFailed):
            await prompt(message.nack(requeue=True, delay_s=0.01))
        [again] = await take_and_ack(source, 1)
        assert again.attempt == 2
        await stage.until_settled(1)

    # -- connections

    async def test_silence_holds_settlements_up_and_loses_none(self, stage):
        await stage.publish(4)
        source = await stage.connect(cuttable=True)
        messages = await take(source, 4)
        stage.proxy.stall()
        acks = [asyncio.create_task(message.ack()) for message in messages]
        done, _ = await asyncio.wait(acks, timeout=0.3)
        assert not done
        stage.proxy.heal()
        await prompt(asyncio.gather(*acks))
        await stage.until_settled(4)

    async def test_stopping_on_a_silent_connection_ends_after_a_lease(self, stage):
        lane = await stage.open_lane(lease_s=1.0)
        await stage.publish(10, lane=lane)
        source = await stage.connect(lane=lane, cuttable=True)
        await take(source, 1)
        stage.proxy.stall()
        await prompt(source.stop_receiving())
        await prompt(source.close(), 5)

    @pytest.mark.slow
    async def test_a_peer_that_is_silent_for_long_is_given_up(self, stage):
        """Nothing but the heartbeat can tell: no byte arrives, and no error."""
        lane = await stage.open_lane(lease_s=2.0)
        await stage.publish(1, lane=lane)
        source = await stage.connect(lane=lane, cuttable=True)
        [message] = await take(source, 1)
        stage.proxy.stall()
        with pytest.raises(SettleFailed):
            await prompt(message.ack(), LEASE_S)
        stage.proxy.heal()
        await eventually(lambda: source.standing().connected, lambda: f"{source.standing()}")

    async def test_what_a_cut_connection_held_is_back_at_once(self, stage):
        await stage.publish(50)
        source = await stage.connect(prefetch=10, cuttable=True)
        await eventually(lambda: source.standing().buffered == 10, lambda: f"{source.standing()}")
        await take(source, 3)
        stage.cut()
        await eventually(lambda: source.standing().connections == 2, lambda: f"{source.standing()}")
        again = await take_and_ack(source, 50)
        assert len({message.id for message in again}) == 50
        await stage.until_settled(50)

    async def test_a_stopped_source_that_reconnects_receives_nothing(self, stage):
        await stage.publish(5)
        source = await stage.connect(cuttable=True)
        await take(source, 1)
        await prompt(source.stop_receiving())
        stage.cut()
        await eventually(lambda: source.standing().connections == 2, lambda: f"{source.standing()}")
        assert len(await take_and_ack(await stage.connect(), 5)) == 5
        assert source.standing().buffered == 0

    async def test_a_consumer_cancelled_by_the_broker_comes_back_with_the_queue(self, stage):
        """A deleted queue is no error to its consumers: the broker says that they are no more."""
        source = await stage.connect()
        name = stage.lane.channel
        async with line_to(stage.lane) as line:
            await line.ask(line.channel.queue_delete, name)
            await eventually(lambda: not source.standing().connected, lambda: "still connected")
            arguments = rabbitmq_lane.queue_arguments(name)
            await line.ask(line.channel.queue_declare, name, durable=True, arguments=arguments)
        await stage.publish(1)
        await take_and_ack(source, 1)

    async def test_closing_without_a_server_ends_at_once(self, stage):
        await stage.publish(5)
        source = await stage.connect(cuttable=True)
        await take_and_ack(source, 1)
        await stage.proxy.close()
        await eventually(lambda: not source.standing().connected, lambda: f"{source.standing()}")
        await prompt(source.close())
        assert len(await take_and_ack(await stage.connect(), 4)) == 4


# -- names and delays


@pytest.mark.parametrize("delay_s", [0.0001, 0.003, 0.01, 0.0101, 0.5, 0.75, 1.0, 59.9, 3600.0])
def test_a_delay_is_never_shorter_and_a_tenth_longer_at_most(delay_s):
    wait_ms = rabbitmq_lane.wait_ms(delay_s)
    assert wait_ms >= delay_s * 1000
    assert wait_ms <= delay_s * 1000 * 1.1 + 3  # and what rounding to milliseconds adds


def test_delays_with_jitter_share_their_queues():
    waits = {rabbitmq_lane.wait_ms(0.5 + n / 10_000) for n in range(5_000)}
    assert len(waits) <= 9


@pytest.mark.parametrize(
    ("headers", "before"),
    [
        ({}, 0),
        ({"x-delivery-count": 2}, 2),
        ({"x-acquired-count": 3, "x-delivery-count": 1}, 3),  # since 4.3: nacks are no failures
        ({"Ackademy-Attempts": 4}, 4),
        ({"Ackademy-Attempts": 4, "x-delivery-count": 1}, 5),
    ],
)
def test_deliveries_are_counted_by_every_version_of_the_broker(headers, before):
    assert rabbitmq_lane.deliveries_before(headers) == before
