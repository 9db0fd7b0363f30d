"""The simulated dead letters keep the contract, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from autograder.messaging import PublishFailed
from autograder.sim.broker import SimBroker
from autograder.sim.schedule import Schedule
from autograder.sim.source import Stored
from autograder.tests.messaging.letters_contract import LettersContract, LettersStage
from autograder.tests.messaging.stage import eventually


class SimLettersStage(LettersStage):
    """A lane of the simulated broker."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__("sim", "")
        self.schedule = schedule

    async def __aenter__(self):
        self.engine = SimBroker(asyncio.get_running_loop().clock, self.schedule)
        self.lane = await self.open_lane()
        self.box = self.engine.letters(self.lane)
        return self

    async def connect(self):
        source = await self.engine.connect(self.lane, prefetch=10)
        self._stack.push_async_callback(source.close)
        return source

    async def route(self, *, lane=None, cuttable=False):
        route = self.engine.route(self.lane, letters=lane is None)
        self._stack.push_async_callback(route.close)
        return route

    async def put(self, count):
        for n in range(count):
            self.box.waiting.append(Stored(f"d{n}", f"key-{n}", b"x", {"trace": str(n)}))
        return [f"d{n}" for n in range(count)]

    async def found(self):
        found = self.box.all()
        self.box.waiting.clear()
        return found


class InVirtualTime(LettersContract):
    in_virtual_time = True  # see conftest.py
    manner = ""

    @pytest.fixture(params=["even", "spread", "instant"])
    async def stage(self, request):
        async with SimLettersStage(Schedule(1, self.manner, request.param)) as stage:
            yield stage

    async def test_letters_in_hand_at_the_end_are_found(self, stage):
        ids = await stage.put(3)
        await anext(await stage.route())
        assert [each.id for each in await stage.found()] == ids

    async def test_silence_is_no_confirmation_and_ends(self, stage):
        route = await stage.route()
        await route.publish(b"x", id="before")
        stage.box.fall_silent()
        with pytest.raises(PublishFailed, match="it has said nothing for 1 s"):
            await route.publish(b"x", id="silent")
        stage.box.heal()
        await route.publish(b"x", id="after")
        assert {"before", "after"} <= {each.id for each in await stage.found()}

    async def test_what_a_dead_process_said_into_the_silence_never_arrives(self, stage):
        route = await stage.route()
        stage.box.fall_silent()
        route.publish_nowait(b"x", id="m0")
        await asyncio.sleep(5)
        stage.box.expire()
        stage.box.heal()
        assert await stage.found() == []

    async def test_silence_between_a_publisher_and_the_queue(self, stage):
        publish = await stage.route(lane=stage.lane)
        stage.engine.way(stage.lane).fall_silent()
        with pytest.raises(PublishFailed, match="it has said nothing for 1 s"):
            await publish.publish(b"x", id="silent")
        await (await stage.route()).publish(b"x", id="letter")  # that is another way
        stage.engine.way(stage.lane).heal()
        await publish.publish(b"x", id="after")
        assert (await stage.engine.state(stage.lane)).waiting in {1, 2}

    async def test_what_was_said_into_the_silence_may_arrive(self, stage):
        route, arrived = await stage.route(), []
        for number in range(30):
            stage.box.fall_silent()
            with pytest.raises(PublishFailed):
                await route.publish(b"x", id=f"m{number}")
            stage.box.heal()
            arrived.append(len(await stage.found()))
        await eventually(lambda: set(arrived) == {0, 1}, lambda: f"{arrived}")


class TestQueue(InVirtualTime):
    manner = "queue"


class TestStream(InVirtualTime):
    manner = "stream"


class TestLog(InVirtualTime):
    manner = "log"
