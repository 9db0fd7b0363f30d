"""The queues of one lane on RabbitMQ: their names, what they are declared with, and the delays.

A lane is a quorum queue under the lane's own name, and beside it `NAME.dead` for what was given
up, `NAME.delays` with the names of the delay queues in use (AMQP cannot list queues, and whoever
counts or deletes them must know), and the delay queues themselves, made when first needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

ATTEMPTS_HEADER = "Ackademy-Attempts"
"""On the copy of a message that waits out a delay: how often it was delivered before."""

UNREACHABLE = 1_000_000
"""Deliveries that no message lives to see. See `rabbitmq` for why there is a limit at all."""

_LETTERS = ".letters"
_HOUR_MS = 3_600_000
_SPARE_MS = 60_000
_FIRST_MS, _STEP = 10, 1.1
_COUNTS = ("x-acquired-count", "x-delivery-count")
_BROKERS_HEADERS = frozenset(
    (
        *_COUNTS, ATTEMPTS_HEADER, "x-death",
        "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason",
        "x-last-death-exchange", "x-last-death-queue", "x-last-death-reason",
    )
)  # fmt: skip


def dead_letters(queue: str) -> str:
    """Where the broker puts what was given up."""
    return f"{queue}.dead"


def letters(queue: str) -> str:
    """Where a consumer that counts attempts itself puts its letters: an exchange and its queue."""
    return f"{queue}{_LETTERS}"


def is_letters(queue: str) -> bool:
    """Whether this queue is reached by an exchange of its own name."""
    return queue.endswith(_LETTERS)


def delays(queue: str) -> str:
    """Where the names of delay queues in use are noted."""
    return f"{queue}.delays"


def delay_queue(queue: str, wait_ms: int) -> str:
    """Where messages wait for so long."""
    return f"{queue}.after-{wait_ms}ms"


def queue_arguments(queue: str) -> dict[str, Any]:
    """A quorum queue that dead-letters, and that goes away if its examiner dies.

    https://www.rabbitmq.com/docs/quorum-queues and https://www.rabbitmq.com/docs/ttl#queue-ttl.
    """
    return {
        "x-queue-type": "quorum",
        "x-delivery-limit": UNREACHABLE,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead_letters(queue),
        "x-expires": _HOUR_MS,
    }


def side_arguments() -> dict[str, Any]:
    """For the two queues beside it."""
    return {"x-queue-type": "classic", "x-expires": _HOUR_MS}


def delay_arguments(queue: str, wait_ms: int) -> dict[str, Any]:
    """A queue whose messages go back to the lane's after `wait_ms`.

    It expires when nobody has declared it for a while; everything in it has left by then, because
    whoever publishes declares it first. The time is the queue's: a time per message would hold up
    short waits behind long ones.
    """
    return {
        "x-queue-type": "classic",
        "x-message-ttl": wait_ms,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue,
        "x-expires": wait_ms + _SPARE_MS,
    }


def wait_ms(delay_s: float) -> int:
    """How long to wait for a delay: never shorter, longer by a tenth at most.

    Whole steps, so that delays with jitter share queues: about 130 lie between 10 ms and an hour.
    """
    wanted = math.ceil(delay_s * 1000) + 1  # the broker may count from the millisecond before
    if wanted <= _FIRST_MS:
        return wanted
    step = math.ceil(math.log(wanted / _FIRST_MS, _STEP))
    wait = math.ceil(_FIRST_MS * _STEP**step)
    return wait if wait >= wanted else math.ceil(_FIRST_MS * _STEP ** (step + 1))


def producers(headers: Mapping[str, Any] | None) -> dict[str, Any]:
    """The headers without those that the broker, or the copying of a delayed message, added."""
    return {name: it for name, it in (headers or {}).items() if name not in _BROKERS_HEADERS}


def deliveries_before(headers: Mapping[str, Any]) -> int:
    """How often a message was delivered before this time.

    The broker writes its counts on what comes back, not on what comes for the first time.
    """
    if not any(map(headers.__contains__, _COUNTS)) and ATTEMPTS_HEADER not in headers:
        return 0
    counted = max(int(headers.get(name, 0)) for name in _COUNTS)
    return counted + int(headers.get(ATTEMPTS_HEADER, 0))
