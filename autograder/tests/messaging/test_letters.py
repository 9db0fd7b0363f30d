"""Every adapter's dead letters keep the contract."""

from __future__ import annotations

import pytest
from nats.aio.msg import Msg

from autograder.messaging.adapter import Lane
from autograder.tests.messaging.letters_contract import ConnectedLettersContract, LettersContract


class TestMemory(LettersContract):
    engine = "memory"


@pytest.mark.nats
class TestNats(ConnectedLettersContract):
    engine = "nats"
    nowhere = Lane("nats://127.0.0.1:1", "nothing", "nobody")

    async def test_a_letter_the_consumer_does_not_know_of_yet_is_read(self, stage, monkeypatch):
        """The stream confirms a message a moment before its consumers hear of it."""
        route = await stage.route()
        await stage.put(1)
        ask, answers = route._ask, []

        async def late(request):
            answers.append(request)
            return Msg(_client=None) if len(answers) == 1 else await ask(request)

        monkeypatch.setattr(route, "_ask", late)
        assert (await anext(route)).id == "d0"
        assert [b"no_wait" in each for each in answers] == [True, False]


@pytest.mark.rabbitmq
class TestRabbit(ConnectedLettersContract):
    engine = "rabbitmq"
    nowhere = Lane("amqp://127.0.0.1:1", "nothing", "nobody")

    async def test_a_letter_for_a_queue_that_is_gone_is_no_letter(self, stage):
        """The broker confirms what no queue takes: that it was returned has to be seen."""
        route = await stage.route()
        await stage.engine._ask("queue_delete", stage.letters.channel)
        with pytest.raises(ConnectionError):
            await route.publish(b"x", id="m0")


@pytest.mark.kafka
class TestKafka(ConnectedLettersContract):
    engine = "kafka"
    nowhere = Lane("127.0.0.1:1", "nothing", "nobody")
