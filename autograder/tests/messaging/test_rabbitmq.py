"""The RabbitMQ adapter keeps the contract, and what is RabbitMQ's own."""

from __future__ import annotations

import pytest

from autograder.messaging.adapter import Lane
from autograder.tests.messaging.contract import ConnectionContract, ProcessContract

pytestmark = pytest.mark.rabbitmq


class TestRabbit(ConnectionContract, ProcessContract):
    engine = "rabbitmq"
    nowhere = Lane("amqp://127.0.0.1:1", "nothing", "nobody")
