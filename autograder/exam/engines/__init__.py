"""The examiner's own, independent client of each broker: it publishes, watches and cleans up.

Nothing here is shared with the subject but the broker: what an engine says about a lane is the
third witness, beside what the student's process reports and what the examiner published.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol

from autograder.messaging.adapter import Lane
from autograder.model import BrokerState, GraderError, UsageError

ENGINES = ("nats", "rabbitmq", "kafka")
"""The engines there are, each in the module of its name."""


PATIENCE_S = 30.0
"""How long one request to the broker may take before it counts as broken."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to publish. Header names are printable ASCII; every text may be any text."""

    id: str
    key: str = ""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """One connection to one broker, serving any number of lanes at the same time.

    Every method raises `GraderError` when the broker does not do its part: a broker that fails is
    never the student's fault.
    """

    name: str
    version: str  # the server's own, "" if it does not tell

    async def open_lane(self, label: str, *, lease_s: float = 5.0) -> Lane:
        """Create a stream or topic and its consumer, under names that cannot be guessed."""

    async def open_letters(self, lane: Lane) -> Lane:
        """Create the lane's dead letters: a stream, a topic, a queue behind an exchange, of its own.

        What is done with a lane can be done with this one: publish, expire, read, drop.
        """

    async def read(self, lane: Lane) -> list[Outgoing]:
        """Everything that waits in a lane, taken out of it: for the end of a run, when nobody consumes.

        The oldest first; on Kafka from the committed offset on, so it may have been settled.
        """

    async def publish(self, lane: Lane, messages: Sequence[Outgoing]) -> list[str]:
        """Publish in order, pipelined; returns the ids once the broker has confirmed them all."""

    async def state(self, lane: Lane) -> BrokerState:
        """The broker's own counts, now."""

    async def at_rest(self, lane: Lane) -> BrokerState:
        """The same, when nobody consumes: `waiting` is what would be delivered to whoever came now.

        What is `unsettled` then is with the dead, until a lease runs out.
        """

    async def expire(self, lane: Lane) -> None:
        """Have the broker deliver again, now, what a dead process left unsettled.

        Call it only when the process is known to be gone. Without it, redelivery waits for the
        lease to run out.
        """

    async def disown(self, lane: Lane) -> None:
        """Do what this broker does once it knows that a living consumer's connection is gone.

        Nothing, where the consumer's own client notices and hands back what it held.
        """

    async def drop_lane(self, lane: Lane) -> None:
        """Delete everything `open_lane` created. May be called twice."""

    async def close(self) -> None:
        """Disconnect. Lanes that were not dropped stay."""


@asynccontextmanager
async def our_fault(broker: str, *errors: type[Exception]) -> AsyncIterator[None]:
    """Turn what a broker does wrong, or does not do within `PATIENCE_S`, into a `GraderError`."""
    faults: tuple[type[Exception], ...] = (*errors, OSError)  # a TimeoutError is an OSError, too
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield
    except faults as error:
        reason = str(error) or type(error).__name__
        raise GraderError(
            f"{broker} does not do its part: {reason}.", next_command="ackademy brokers status"
        ) from error


def lane_name(label: str) -> str:
    """A name no student can guess, made of what every broker allows in a name."""
    return f"{re.sub('[^A-Za-z0-9_-]', '-', label)[:60]}-{secrets.token_hex(8)}"


async def open_engine(name: str, url: str) -> Engine:
    """Connect to the broker at `url`. Raises `GraderError` if nothing answers there."""
    if name not in ENGINES:
        raise UsageError(f"There is no engine called {name!r}. There are: {', '.join(ENGINES)}.")
    module = import_module(f"autograder.exam.engines.{name}")
    engine: Engine = await module.connect(url)
    return engine
