"""What the examiner knows of a RabbitMQ lane: exactly, from the management API, or not at all."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from urllib.parse import urlsplit

import pytest

from autograder.exam.engines import Outgoing, open_engine
from autograder.exam.engines import rabbitmq_management as management
from autograder.messaging import rabbitmq_lane
from autograder.messaging.adapter import open_source
from autograder.model import GraderError

pytestmark = pytest.mark.rabbitmq


@pytest.fixture
def url(bench):
    return bench.server("rabbitmq").url


@pytest.fixture
async def engine(url):
    engine = await open_engine("rabbitmq", url)
    yield engine
    await engine.close()


@pytest.fixture
async def lane(engine):
    lane = await engine.open_lane("rabbit")
    yield lane
    await engine.drop_lane(lane)


def outgoing(count):
    return [Outgoing(f"m{n}", "", b"x") for n in range(count)]


async def queues_like(url, prefix):
    """Every queue of the node that bears the lane's name."""
    parts = urlsplit(url)
    at = f"http://{parts.hostname}:{parts.port + management.OFFSET}/api/queues?disable_stats=true"
    passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
    passwords.add_password(None, at, parts.username, parts.password, is_authenticated=True)
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))
    found = json.load(await asyncio.to_thread(opener.open, at))
    return [each["name"] for each in found if each["name"].startswith(prefix)]


async def test_the_version_is_the_servers_own(bench, engine):
    assert engine.version == bench.server("rabbitmq").version


async def test_what_a_living_consumer_holds_is_counted(engine, lane):
    await engine.publish(lane, outgoing(10))
    async with open_source("rabbitmq", lane, prefetch=4) as source:
        messages = [await anext(source) for _ in range(4)]
        await messages[0].ack()
        await messages[1].nack(requeue=False)
        state = await engine.state(lane)
    assert state.settled == 2
    assert state.unsettled == 6  # two in hand, and four that have come since
    assert state.waiting == 2


async def test_what_changed_a_moment_ago_is_never_reported_as_it_was(engine, lane):
    """The API's numbers are up to a second old, and the difference is what verdicts are made of."""
    await engine.publish(lane, outgoing(40))
    async with open_source("rabbitmq", lane, prefetch=100) as source:
        for settled in range(10, 41, 10):
            for _ in range(10):
                await (await anext(source)).ack()
            assert (await engine.state(lane)).settled == settled


async def test_without_a_management_api_the_engine_says_that_it_cannot_know(monkeypatch, url):
    monkeypatch.setenv(management.VARIABLE, "http://127.0.0.1:1")
    engine = await open_engine("rabbitmq", url)
    lane = await engine.open_lane("alone")
    await engine.publish(lane, outgoing(3))
    async with open_source("rabbitmq", lane, prefetch=10) as source:
        await (await anext(source)).ack()
        state = await engine.state(lane)
        assert (state.waiting, state.unsettled, state.settled) == (-1, -1, -1)
    await engine.expire(lane)
    state = await engine.state(lane)  # nobody consumes: there is nothing that is not known
    assert (state.waiting, state.unsettled, state.settled) == (2, 0, 1)
    await engine.drop_lane(lane)
    await engine.close()


async def test_another_brokers_management_api_is_not_believed(monkeypatch, url, engine, lane):
    """It does not know the lane's queue, whose name nobody can guess."""
    foreign = management.Management(url)
    assert await foreign.fresh_counts("no-such-queue") is None


async def test_delayed_messages_wait_with_the_broker(engine, lane):
    await engine.publish(lane, outgoing(3))
    async with open_source("rabbitmq", lane, prefetch=10) as source:
        for delay_s in 20, 30:
            await (await anext(source)).nack(requeue=True, delay_s=delay_s)
        await (await anext(source)).ack()
    await engine.expire(lane)
    state = await engine.state(lane)
    assert (state.waiting, state.unsettled, state.settled) == (2, 0, 1)


async def test_a_message_on_its_way_back_is_never_missed(engine, lane):
    """Between a delay queue and the lane's it is in neither; a count then would call it lost."""
    await engine.publish(lane, outgoing(60))
    async with open_source("rabbitmq", lane, prefetch=60) as source:
        for number in range(60):
            await (await anext(source)).nack(requeue=True, delay_s=2 + number * 0.01)
    await engine.expire(lane)
    looks = 0
    while (await engine._delayed(lane)) > 0:
        state = await engine.state(lane)
        assert (state.waiting, state.settled) == (60, 0)
        looks += 1
    assert looks > 1


async def test_dropping_a_lane_leaves_no_queue(engine, url):
    lane = await engine.open_lane("traces")
    await engine.publish(lane, outgoing(3))
    async with open_source("rabbitmq", lane, prefetch=10) as source:
        await (await anext(source)).nack(requeue=True, delay_s=20)
        await (await anext(source)).nack(requeue=False)
    waiting = rabbitmq_lane.delay_queue(lane.channel, rabbitmq_lane.wait_ms(20))
    assert waiting in await queues_like(url, lane.channel)
    await engine.drop_lane(lane)
    assert await queues_like(url, lane.channel) == []


async def test_expiring_waits_for_the_broker_to_notice(engine, lane):
    await engine.publish(lane, outgoing(20))
    async with open_source("rabbitmq", lane, prefetch=20) as source:
        await anext(source)
        expiring = asyncio.create_task(engine.expire(lane))
        done, _ = await asyncio.wait({expiring}, timeout=0.2)
        assert not done  # there is a consumer
    await asyncio.wait_for(expiring, 10)
    assert (await engine.state(lane)).waiting == 20


async def test_publishing_to_nobody_is_refused(engine):
    lane = await engine.open_lane("dropped")
    await engine.drop_lane(lane)
    with pytest.raises(GraderError, match="has no such queue"):
        await engine.publish(lane, outgoing(3))
    with pytest.raises(GraderError, match="NOT_FOUND"):
        await engine.state(lane)


async def test_an_id_longer_than_a_property_may_be_arrives(engine, lane):
    identity = "ж" * 200
    await engine.publish(lane, [Outgoing(identity)])
    async with open_source("rabbitmq", lane, prefetch=1) as source:
        message = await anext(source)
        assert message.id == identity
        await message.ack()
