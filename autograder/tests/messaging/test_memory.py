"""The broker in memory keeps the contract."""

from __future__ import annotations

import asyncio

from autograder.messaging.adapter import Lane
from autograder.tests.messaging.contract import ConnectionContract
from autograder.tests.messaging.stage import take, take_and_ack


class TestMemory(ConnectionContract):
    engine = "memory"
    nowhere = Lane("memory:0", "nothing", "")

    async def test_consumers_share_the_messages(self, stage):
        await stage.publish(10)
        first, second = await stage.connect(prefetch=5), await stage.connect(prefetch=5)
        shares = await asyncio.gather(take_and_ack(first, 5), take_and_ack(second, 5))
        assert {message.id for share in shares for message in share} == {f"m{n}" for n in range(10)}

    async def test_a_closed_consumer_returns_its_messages_in_their_order(self, stage):
        await stage.publish(6)
        source = await stage.connect(prefetch=3)
        await take(source, 2)
        await source.close()
        again = await take(await stage.connect(), 6)
        assert [message.id for message in again] == [f"m{n}" for n in range(6)]
        assert [message.attempt for message in again] == [2, 2, 2, 2, 2, 1]
