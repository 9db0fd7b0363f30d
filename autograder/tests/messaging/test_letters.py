"""Every adapter's dead letters keep the contract."""

from __future__ import annotations

import pytest

from autograder.messaging.adapter import Lane
from autograder.tests.messaging.letters_contract import ConnectedLettersContract, LettersContract


class TestMemory(LettersContract):
    engine = "memory"


@pytest.mark.nats
class TestNats(ConnectedLettersContract):
    engine = "nats"
    nowhere = Lane("nats://127.0.0.1:1", "nothing", "nobody")


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
