"""What the examiner's engines owe it: names, confirmations, honest counts, and faults as ours."""

from __future__ import annotations

import asyncio
import re
import time
from urllib.parse import urlsplit

import pytest

from autograder.exam import engines
from autograder.exam.engines import ENGINES, Outgoing, lane_name, open_engine
from autograder.exam.proxy import FaultProxy
from autograder.messaging.adapter import open_source
from autograder.model import BrokerState, GraderError, UsageError


def test_lane_names_cannot_be_guessed_and_are_legal():
    names = {lane_name("test x[nats-1].ä/…") for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch("test-x-nats-1------[0-9a-f]{16}", name) for name in names)


async def test_an_unknown_engine_is_a_usage_error():
    with pytest.raises(UsageError, match="nats, rabbitmq, kafka"):
        await open_engine("carrier pigeon", "")


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ENGINES])
def server(request, bench):
    return bench.server(request.param)


@pytest.fixture
async def engine(server):
    engine = await open_engine(server.engine, server.url)
    yield engine
    await engine.close()


@pytest.fixture
async def lane(engine):
    lane = await engine.open_lane("engines")
    yield lane
    await engine.drop_lane(lane)


def outgoing(count, start=0):
    return [Outgoing(f"m{n}", f"key-{n % 9}", b"x" * 200) for n in range(start, start + count)]


async def test_publishing_confirms_each_message_in_order(engine, lane):
    assert await engine.publish(lane, outgoing(50)) == [f"m{n}" for n in range(50)]
    assert (await engine.state(lane)).waiting == 50


async def test_publishing_is_pipelined(engine, lane):
    began = time.monotonic()
    await engine.publish(lane, outgoing(20_000))
    took = time.monotonic() - began
    assert (await engine.state(lane)).waiting == 20_000
    assert took < 20, f"{took:.1f} s for 20,000 messages: about 1 s on a quiet machine"


async def test_the_state_follows_what_a_consumer_does(engine, lane):
    await engine.publish(lane, outgoing(10))
    async with open_source(engine.name, lane, prefetch=4) as source:
        for _ in range(6):
            await (await anext(source)).ack()
        await source.stop_receiving()
        state = await engine.state(lane)
        deadline = time.monotonic() + 10
        while state.settled < 6 and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
            state = await engine.state(lane)
    assert state.settled == 6
    assert state.waiting + max(state.unsettled, 0) == 4


async def test_lanes_do_not_see_each_other(engine):
    lanes = await asyncio.gather(*(engine.open_lane("many") for _ in range(5)))
    assert len({lane.channel for lane in lanes} | {lane.consumer for lane in lanes}) == 10
    publishings = [engine.publish(lane, outgoing(n * 100)) for n, lane in enumerate(lanes)]
    await asyncio.gather(*publishings)
    states = await asyncio.gather(*(engine.state(lane) for lane in lanes))
    assert [state.waiting for state in states] == [0, 100, 200, 300, 400]
    await asyncio.gather(*(engine.drop_lane(lane) for lane in lanes))


async def test_a_fresh_lane_is_empty_and_expiring_it_does_nothing(engine, lane):
    await engine.expire(lane)
    state = await engine.state(lane)
    assert (state.waiting, state.settled) == (0, 0)
    assert isinstance(state, BrokerState)


async def test_expiring_touches_nothing_that_is_settled(engine, lane):
    await engine.publish(lane, outgoing(20))
    async with open_source(engine.name, lane, prefetch=64) as source:
        messages = [await anext(source) for _ in range(20)]
        for message in messages[::2]:
            await message.ack()
    await engine.expire(lane)
    await engine.expire(lane)
    seen = set()
    async with open_source(engine.name, lane, prefetch=64) as source:
        while not {message.id for message in messages[1::2]} <= seen:
            message = await asyncio.wait_for(anext(source), 10)
            seen.add(message.id)
            await message.ack()
    if engine.name == "nats":  # Kafka repeats what is settled above the watermark
        assert seen == {message.id for message in messages[1::2]}


async def test_a_lane_may_be_dropped_twice(engine):
    lane = await engine.open_lane("gone")
    await engine.drop_lane(lane)
    await engine.drop_lane(lane)


async def test_an_address_without_a_broker_is_our_fault(server):
    scheme, found, _ = server.url.rpartition("//")
    with pytest.raises(
        GraderError, match=r"at 127\.0\.0\.1:1 |at nats://127\.0\.0\.1:1 "
    ) as caught:
        await open_engine(server.engine, f"{scheme}{found}127.0.0.1:1")
    assert caught.value.next_command == "ackademy brokers status"


async def test_a_broker_that_goes_away_is_our_fault(server, monkeypatch):
    parts = urlsplit(server.url if "//" in server.url else f"//{server.url}")
    proxy = FaultProxy((parts.hostname, parts.port), kafka=server.engine == "kafka")
    await proxy.start()
    url = f"{parts.scheme}://127.0.0.1:{proxy.port}".removeprefix("://")
    engine = await open_engine(server.engine, url)
    lane = await engine.open_lane("doomed")
    monkeypatch.setattr(engines, "PATIENCE_S", 1.0)
    await proxy.close()
    for attempt in (
        engine.publish(lane, outgoing(5)),
        engine.state(lane),
        engine.expire(lane),
        engine.open_lane("another"),
        engine.drop_lane(lane),
    ):
        with pytest.raises(GraderError):
            await attempt
    await engine.close()


@pytest.mark.nats
async def test_publishing_to_nobody_is_refused(bench):
    engine = await open_engine("nats", bench.server("nats").url)
    assert re.fullmatch(r"2\.\d+\.\d+", engine.version)
    lane = await engine.open_lane("dropped")
    await engine.drop_lane(lane)
    with pytest.raises(GraderError, match="refuses messages"):
        await engine.publish(lane, outgoing(3))
    with pytest.raises(GraderError):
        await engine.state(lane)
    await engine.close()
