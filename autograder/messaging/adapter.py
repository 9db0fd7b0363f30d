"""What an adapter owes the host beyond the port: opening, closing, and telling how it stands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, repeat
from typing import Protocol

from autograder.messaging import Source


@dataclass(frozen=True, slots=True)
class Lane:
    """The names of one run on a broker: its own stream or topic, and its own consumer.

    `channel` is the JetStream stream, the Kafka topic, the RabbitMQ queue; `consumer` is the
    durable consumer or the consumer group. Created and dropped by the examiner; the adapter only
    uses them. `lease_s` is how long a message may be in hand without a sign of life before the
    broker delivers it again (JetStream's ack_wait, Kafka's session timeout).
    """

    url: str
    channel: str
    consumer: str
    lease_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Standing:
    """How an adapter stands at this moment; all counts are messages."""

    buffered: int  # received from the broker, not taken yet
    in_hand: int  # taken, not settled
    connected: bool
    connections: int = 1  # how often it connected so far; on Kafka, how often it was assigned


_RECONNECT_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def reconnect_pauses_s() -> Iterator[float]:
    """Seconds to wait before each attempt to connect again; the last pause repeats for ever."""
    return chain(_RECONNECT_PAUSES_S, repeat(_RECONNECT_PAUSES_S[-1]))


class AdapterSource(Source, Protocol):
    """A `Source` as its host sees it."""

    def standing(self) -> Standing:
        """Counts for the examiner's stall detection; never waits."""

    async def close(self) -> None:
        """Give everything unsettled back, make settlements durable, disconnect.

        What is still in hand is neither acked nor nacked; the broker delivers it again. May be
        called twice. Never raises because the connection is gone.
        """


async def connect(engine: str, lane: Lane, *, prefetch: int) -> AdapterSource:
    """Connect to `lane` with the adapter of this name; whoever asks for it closes it.

    Each adapter module offers `connect(lane, *, prefetch) -> AdapterSource`. Only the module of
    the engine in use is imported: a student's process stays small.
    """
    module = import_module(f"autograder.messaging.{engine}")
    source: AdapterSource = await module.connect(lane, prefetch=prefetch)
    return source


@asynccontextmanager
async def open_source(engine: str, lane: Lane, *, prefetch: int) -> AsyncIterator[AdapterSource]:
    """The same, closed when the context ends."""
    source = await connect(engine, lane, prefetch=prefetch)
    try:
        yield source
    finally:
        await source.close()
