"""The simulated broker keeps the port's contract, in each manner, at each pace, in virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from autograder.messaging import SettleFailed
from autograder.messaging.adapter import Lane
from autograder.sim.broker import SimBroker
from autograder.sim.log import FLUSH_S
from autograder.sim.schedule import PACES, Schedule
from autograder.tests.messaging import contract
from autograder.tests.messaging import stage as stages
from autograder.tests.messaging.contract import ConnectionContract, Contract
from autograder.tests.messaging.stage import LEASE_S, take, take_and_ack


class SimStage(stages.Stage):
    """A lane of the simulated broker."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__("sim", "")
        self.schedule = schedule

    async def __aenter__(self):
        self.engine = SimBroker(asyncio.get_running_loop().clock, self.schedule)
        self.lane = await self.open_lane()
        return self

    async def connect(self, *, prefetch=256, lane=None, cuttable=False):
        source = await self.engine.connect(lane or self.lane, prefetch=prefetch)
        self._stack.push_async_callback(source.close)
        return source

    def cut(self) -> None:
        self.engine.cut(self.lane)


class InVirtualTime:
    """Every test and fixture below runs on a `SimLoop`."""

    in_virtual_time = True  # see conftest.py
    manner = ""

    @pytest.fixture(params=["even", "spread", "instant"])
    async def stage(self, request, monkeypatch):
        loop = asyncio.get_running_loop()
        for module in contract, stages:
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=loop.time))
        async with SimStage(Schedule(1, self.manner, request.param)) as stage:
            yield stage

    async def test_nobody_at_the_address_is_a_connection_error(self):
        broker = SimBroker(asyncio.get_running_loop().clock, Schedule(1, self.manner))
        with pytest.raises(ConnectionError, match="has no nothing"):
            await broker.connect(Lane("", "nothing", "nobody"), prefetch=1)

    async def test_what_a_dead_process_held_comes_back_when_its_death_is_known(self, stage):
        await stage.publish(40, keys=4)
        source = await stage.connect()
        await take_and_ack(source, 10)
        await asyncio.sleep(1)  # a log has committed by then
        held = {message.id for message in await take(source, 10)}
        source.crash()
        await stage.engine.expire(stage.lane)
        messages = await take_and_ack(await stage.connect(), 30)
        assert len({message.id for message in messages}) == 30
        assert held <= {message.id for message in messages}
        await stage.until_settled(40)

    @pytest.mark.parametrize(
        "stage", ["even"], indirect=True
    )  # it takes seconds; pace is nothing to it
    async def test_the_backlog_does_not_grow_memory(self, stage):
        await super().test_the_backlog_does_not_grow_memory(stage)

    async def test_prefetch_is_at_least_one(self, stage):
        with pytest.raises(ValueError, match="prefetch"):
            await stage.connect(prefetch=0)


class TestQueue(InVirtualTime, ConnectionContract):
    manner = "queue"

    async def test_consumers_share_the_messages(self, stage):
        await stage.publish(10)
        first, second = await stage.connect(prefetch=5), await stage.connect(prefetch=5)
        await asyncio.sleep(1)
        counts = [source.standing().buffered for source in (first, second)]
        assert sorted(counts) == [5, 5]


class TestStream(InVirtualTime, ConnectionContract):
    manner = "stream"

    async def test_unread_messages_go_back_though_nobody_waits_for_it(self, stage):
        first = await stage.connect()
        stopping = asyncio.create_task(first.stop_receiving())
        await asyncio.sleep(0)
        stopping.cancel()
        await stage.publish(3)  # its request is open still
        assert len(await take_and_ack(await stage.connect(), 3)) == 3

    async def test_what_comes_back_comes_before_what_is_new(self, stage):
        await stage.publish(3)
        source = await stage.connect(prefetch=1)
        [first] = await take(source, 1)
        await asyncio.sleep(1)  # the second is in the buffer, the third at the broker
        await first.nack(requeue=True)
        await asyncio.sleep(1)
        assert [message.id for message in await take_and_ack(source, 3)] == ["m1", "m0", "m2"]


class TestLog(InVirtualTime, Contract):
    manner = "log"

    async def test_what_is_above_the_lowest_unsettled_record_is_repeated_after_a_crash(self, stage):
        await stage.publish(5, keys=1)
        source = await stage.connect()
        messages = await take(source, 5)
        for message in messages[1:]:
            await message.ack()
        await asyncio.sleep(1)
        source.crash()
        again = await take_and_ack(await stage.connect(), 5)
        assert [message.id for message in again] == [message.id for message in messages]
        assert {message.attempt for message in again} == {1}
        assert (await stage.engine.state(stage.lane)).waiting <= 5

    async def test_members_share_the_partitions(self, stage):
        first, second = await stage.connect(), await stage.connect()
        await stage.publish(80, keys=40)
        await asyncio.sleep(1)
        mine, other = [
            await take_and_ack(each, each.standing().buffered) for each in (first, second)
        ]
        assert len(mine) + len(other) == 80
        assert mine
        assert other
        assert not {each.key for each in mine} & {each.key for each in other}
        await first.close()
        await stage.publish(40, keys=40)
        assert len(await take_and_ack(second, 40)) == 40

    async def test_a_member_that_joins_waits_a_second_for_what_others_have_in_hand(self, stage):
        await stage.publish(2, keys=1)
        first = await stage.connect()
        settled, lost = await take(first, 2)
        joining = asyncio.create_task(stage.connect())
        await asyncio.sleep(FLUSH_S / 2)
        await settled.ack()
        await first.stop_receiving()
        second = await joining
        with pytest.raises(SettleFailed):
            await lost.ack()
        [again] = await take_and_ack(second, 1)
        assert again.id == lost.id
        await stage.until_settled(2)

    async def test_settling_what_a_rebalance_took_away_fails(self, stage):
        await stage.publish(2, keys=1)
        source = await stage.connect()
        settled, lost = await take(source, 2)
        await settled.ack()
        stage.cut()
        with pytest.raises(SettleFailed):
            await lost.ack()
        [again] = await take_and_ack(source, 1)
        assert again.id == lost.id
        await stage.until_settled(2)


def test_a_lease_is_longer_than_any_pace():
    """What the contract calls prompt is far below a lease at every pace."""
    chance = Schedule(1).chance("any")
    slowest = max(draw(chance) for pace in PACES.values() for draw in (pace.deliver, pace.settle))
    assert slowest < LEASE_S / 10
