"""What the port promises of dead letters and of publishing, as tests. Each adapter inherits them."""

from __future__ import annotations

import asyncio
import time

import pytest

from autograder.exam.engines import Outgoing
from autograder.messaging import AlreadySettled, DeadLetters, Message, PublishFailed
from autograder.messaging.adapter import Lane
from autograder.messaging.route import CONFIRM_S, open_route
from autograder.tests.messaging.stage import Stage, eventually, prompt


class LettersStage(Stage):
    """A lane with its dead letters."""

    async def __aenter__(self):
        await super().__aenter__()
        self.letters = await self.engine.open_letters(self.lane)
        self._stack.push_async_callback(self.engine.drop_lane, self.letters)
        return self

    async def route(self, *, lane=None, cuttable=False):
        """A connection to the dead letters, closed with the stage if not before."""
        lane = lane or self.letters
        if cuttable:
            lane = await self.seen_through_proxy(lane)
        return await self._stack.enter_async_context(open_route(self.name, lane))

    async def put(self, count: int) -> list[str]:
        """Letters `d0`, `d1`, ... of the examiner's."""
        letters = [Outgoing(f"d{n}", f"key-{n}", b"x", {"trace": str(n)}) for n in range(count)]
        return await self.engine.publish(self.letters, letters)

    async def found(self) -> list:
        """What the examiner finds there, taken out."""
        return await self.engine.read(self.letters)

    def fall_silent(self) -> None:
        self.proxy.stall()

    def heal(self) -> None:
        self.proxy.heal()


class LettersContract:
    """What holds on every engine."""

    engine = ""
    nowhere = Lane("", "nothing", "nobody")  # a lane on which no broker answers

    @pytest.fixture
    async def stage(self, request):
        url = "" if self.engine == "memory" else request.getfixturevalue("bench").server(self.engine).url  # fmt: skip
        async with LettersStage(self.engine, url) as stage:
            yield stage

    async def test_routes_and_letters_are_what_the_port_says(self, stage):
        await stage.put(1)
        route = await stage.route()
        assert isinstance(route, DeadLetters)
        letter = await prompt(anext(route))
        assert isinstance(letter, Message)
        assert (letter.id, letter.key, letter.attempt) == ("d0", "key-0", 1)

    async def test_published_means_that_it_is_there(self, stage):
        route = await stage.route()
        for number in range(20):
            await prompt(
                route.publish(b"%d" % number, id=f"m{number}", key="k", headers={"n": "1"})
            )
        assert [each.id for each in await stage.found()] == [f"m{n}" for n in range(20)]

    @pytest.mark.parametrize("text", ["", "order-7", "ключ 🔑", " both ends ", "two\r\nlines", "100%25", "k" * 1000])  # fmt: skip
    async def test_any_text_may_be_a_key_or_in_a_header(self, stage, text):
        body = bytes(range(256))
        await (await stage.route()).publish(body, id="ид 1", key=text, headers={"reason": text})
        letter = await prompt(anext(await stage.route()))
        assert (letter.id, letter.key, letter.body) == ("ид 1", text, body)
        assert dict(letter.headers) == {"reason": text}

    async def test_what_the_examiner_finds_is_what_was_published(self, stage):
        await (await stage.route()).publish(b"\xff\x00", id="m 1", key="ключ", headers={"a": "%"})
        [found] = await stage.found()
        assert (found.id, found.key, found.body) == ("m 1", "ключ", b"\xff\x00")
        assert dict(found.headers) == {"a": "%"}

    async def test_publishing_to_the_lane_is_a_first_delivery_there(self, stage):
        route = await stage.route(lane=stage.lane)
        await route.publish(b"again", id="m0", key="k", headers={"trace": "7"})
        message = await prompt(anext(await stage.connect()), 10)
        assert (message.id, message.key, message.body) == ("m0", "k", b"again")
        assert (dict(message.headers), message.attempt) == ({"trace": "7"}, 1)
        await message.ack()

    async def test_letters_come_oldest_first_and_end(self, stage):
        ids = await stage.put(5)
        seen = []
        async for letter in await stage.route():
            seen.append(letter.id)
            await letter.ack()
        assert seen == ids

    async def test_no_letters_are_an_end_at_once_and_a_later_one_is_seen(self, stage):
        route = await stage.route()
        assert [letter async for letter in route] == []
        await stage.put(1)
        assert [letter.id async for letter in route] == ["d0"]

    async def test_counting(self, stage):
        route = await stage.route()
        assert await route.count() == 0
        await stage.put(3)
        assert await route.count() == 3
        await (await prompt(anext(route))).ack()
        assert await route.count() == 2

    async def test_acked_letters_are_gone_and_others_stay(self, stage):
        ids = await stage.put(4)
        route = await stage.route()
        first, second = await anext(route), await anext(route)
        await first.ack()
        await second.nack(requeue=False)
        await anext(route)
        await route.close()
        seen = [letter.id async for letter in await stage.route()]
        assert sorted(seen) == ids[2:]

    async def test_a_letter_given_back_comes_again(self, stage):
        await stage.put(2)
        route = await stage.route()
        await (await anext(route)).nack(requeue=True)
        seen = []
        async for letter in route:
            seen.append((letter.id, letter.attempt))
            await letter.ack()
        assert sorted(seen) == [("d0", 2), ("d1", 1)]
        assert await stage.found() == []

    async def test_letters_in_hand_at_the_end_are_found(self, stage):
        ids = await stage.put(3)
        route = await stage.route()
        await anext(route)
        await route.close()
        await stage.engine.expire(stage.letters)
        assert sorted(each.id for each in await stage.found()) == ids

    async def test_settling_twice_is_refused(self, stage):
        await stage.put(1)
        letter = await anext(await stage.route())
        await letter.ack()
        with pytest.raises(AlreadySettled):
            await letter.nack(requeue=True)

    async def test_without_waiting_it_arrives_in_good_weather(self, stage):
        route = await stage.route()
        route.publish_nowait(b"x", id="m0")

        async def arrived():
            return await route.count() == 1

        await eventually(arrived, lambda: "no letter")

    async def test_closing_twice_and_leaving_no_task(self, stage):
        before = asyncio.all_tasks()
        route = await stage.route()
        await route.publish(b"x", id="m0")
        await prompt(route.close())
        await prompt(route.close())
        assert {task.get_coro() for task in asyncio.all_tasks() - before} == set()


class ConnectedLettersContract(LettersContract):
    """What a connection of one's own adds: it can fall silent, and break."""

    async def test_silence_is_no_confirmation_and_ends(self, stage):
        route = await stage.route(cuttable=True)
        await route.publish(b"x", id="before")
        stage.fall_silent()
        began = asyncio.get_running_loop().time()
        with pytest.raises(PublishFailed, match="did not confirm message silent"):
            await route.publish(b"x", id="silent")
        assert asyncio.get_running_loop().time() - began < CONFIRM_S + 2
        stage.heal()
        await eventually(lambda: _published(route, "after"), lambda: "not published")
        assert {"before", "after"} <= {each.id for each in await stage.found()}

    async def test_others_go_on_while_one_is_silent(self, stage):
        route = await stage.route(cuttable=True)
        other = await stage.route(lane=stage.lane)
        stage.fall_silent()
        await other.publish(b"x", id="m0")
        with pytest.raises(PublishFailed):
            await route.publish(b"x", id="silent")
        stage.heal()

    async def test_a_broken_connection_is_made_again(self, stage):
        route = await stage.route(cuttable=True)
        await route.publish(b"x", id="before")
        stage.proxy.cut()
        await eventually(lambda: _published(route, "after"), lambda: "not published")
        assert {"before", "after"} <= {each.id for each in await stage.found()}

    async def test_closing_in_silence_takes_no_longer_than_a_confirmation(self, stage):
        route = await stage.route(cuttable=True)
        stage.fall_silent()
        route.publish_nowait(b"x", id="m0")
        began = time.monotonic()
        await route.close()
        assert time.monotonic() - began < CONFIRM_S + 2
        stage.heal()

    async def test_nobody_at_the_address_is_a_connection_error(self):
        with pytest.raises(ConnectionError):
            async with open_route(self.engine, self.nowhere):
                pass


async def _published(route, name) -> bool:
    try:
        await route.publish(b"x", id=name)
    except PublishFailed:
        return False
    return True
