"""The shelf between broker and takers: in order, ended at will, losing nothing."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.messaging.buffer import Buffer


async def test_first_in_first_out():
    buffer = Buffer()
    for number in range(3):
        buffer.put(number)
    assert [await buffer.take() for _ in range(3)] == [0, 1, 2]


async def test_the_longest_waiting_takes_first():
    buffer = Buffer()
    takers = [asyncio.create_task(buffer.take()) for _ in range(3)]
    await asyncio.sleep(0)
    for number in range(3):
        buffer.put(number)
    assert await asyncio.gather(*takers) == [0, 1, 2]


async def test_a_taker_cancelled_in_the_turn_of_arrival_hands_on():
    buffer = Buffer()
    first, second = (asyncio.create_task(buffer.take()) for _ in range(2))
    await asyncio.sleep(0)
    buffer.put("message")
    first.cancel()
    assert await second == "message"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_an_end_ends_all_and_drain_has_the_rest():
    buffer = Buffer()
    pending = asyncio.create_task(buffer.take())
    await asyncio.sleep(0)
    buffer.end()
    buffer.put("late")
    with pytest.raises(StopAsyncIteration):
        await buffer.take()
    ends = await asyncio.gather(pending, return_exceptions=True)
    assert isinstance(ends[0], StopAsyncIteration)
    assert buffer.ended
    assert buffer.drain() == ["late"]
    assert len(buffer) == 0


@settings(deadline=None)
@given(st.lists(st.sampled_from(["take", "cancel", "put", "turn"]), max_size=60))
def test_whatever_happens_each_message_has_one_taker(steps):
    async def run():
        buffer, takers, put = Buffer(), [], 0
        for step in steps:
            if step == "take":
                takers.append(asyncio.create_task(buffer.take()))
            elif step == "cancel" and takers:
                takers[put % len(takers)].cancel()
            elif step == "put":
                buffer.put(put)
                put += 1
            else:
                await asyncio.sleep(0)
        for _ in range(len(takers) + 2):
            await asyncio.sleep(0)
        waiting = [taker for taker in takers if not taker.done()]
        assert not (waiting and len(buffer)), "a message and a taker missed each other"
        taken = [taker.result() for taker in takers if taker.done() and not taker.cancelled()]
        assert sorted(taken + buffer.drain()) == list(range(put))
        buffer.end()
        await asyncio.gather(*takers, return_exceptions=True)

    asyncio.run(run())
