"""The JetStream adapter keeps the contract, and what is JetStream's own."""

from __future__ import annotations

import asyncio
import time

import pytest

from autograder.messaging.adapter import Lane
from autograder.tests.messaging.contract import CONSUMER, ConnectionContract, ProcessContract
from autograder.tests.messaging.stage import eventually, kill, prompt, take, take_and_ack

pytestmark = pytest.mark.nats


class TestNats(ConnectionContract, ProcessContract):
    engine = "nats"
    nowhere = Lane("nats://127.0.0.1:1", "nothing", "nobody")

    async def test_without_a_word_a_killed_process_keeps_its_messages_for_a_lease(self, stage):
        stage.lane = await stage.open_lane(lease_s=1.0)
        await stage.publish(20)
        process = await stage.start_consumer(CONSUMER)
        await prompt(process.stdout.readline(), 10)
        await kill(process)
        killed = time.monotonic()
        messages = await take_and_ack(await stage.connect(), 10)
        assert time.monotonic() - killed < 5
        assert {message.attempt for message in messages} == {2}
        await stage.until_settled(20)

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

    async def test_what_was_lost_is_handed_back_with_the_next_connection(self, stage):
        await stage.publish(50)
        source = await stage.connect(prefetch=10, cuttable=True)
        await eventually(lambda: source.standing().buffered == 10, lambda: f"{source.standing()}")
        # with seven left there is no room for the next request: nothing is on its way at the cut
        await take(source, 3)
        stage.cut()
        await eventually(lambda: source.standing().in_hand == 0, lambda: f"{source.standing()}")
        again = await take_and_ack(source, 50)
        assert len({message.id for message in again}) == 50
        await stage.until_settled(50)

    async def test_closing_without_a_server_leaves_the_rest_to_the_lease(self, stage):
        stage.lane = await stage.open_lane(lease_s=1.0)
        await stage.publish(5)
        source = await stage.connect(cuttable=True)
        await take_and_ack(source, 1)
        await stage.proxy.close()
        await eventually(lambda: not source.standing().connected, lambda: f"{source.standing()}")
        await prompt(source.close())
        assert len(await take_and_ack(await stage.connect(), 4)) == 4
