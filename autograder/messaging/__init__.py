"""The port: the three small protocols that students code against, on every broker.

A `Source` hands out `Message`s; a `Handler` does the work; the student's code stands between
them. What is promised here holds on every engine, and one contract test suite keeps each adapter
(`memory`, `nats`, `rabbitmq`, `kafka`) to it. Where the brokers differ, the adapter's own page says how.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol, runtime_checkable

__all__ = [
    "AlreadySettled",
    "Connect",
    "Connection",
    "DeadLetters",
    "Handler",
    "Message",
    "Permanent",
    "Publish",
    "PublishFailed",
    "SettleFailed",
    "Source",
    "Transient",
]


class Transient(Exception):  # noqa: N818 - named for what it says about the work, as in retry policies
    """The handler could not do it now: try again."""


class Permanent(Exception):  # noqa: N818 - the same
    """The handler never will: do not try again."""


class AlreadySettled(RuntimeError):  # noqa: N818 - a state, told at the second call
    """The delivery was acked or nacked before. A correct program never sees this."""


class SettleFailed(ConnectionError):  # noqa: N818 - the field's phrase
    """The connection that delivered the message is gone: the broker will deliver it again."""


class PublishFailed(ConnectionError):  # noqa: N818 - the same
    """The broker did not confirm: nobody knows whether it has the message.

    Publishing it again may bring it there twice. Taking it as published may lose it.
    """


@runtime_checkable
class Message(Protocol):
    """One delivery of one message. `attempt` starts at 1 and grows with each redelivery."""

    @property
    def id(self) -> str:
        """The producer's id: the same on every delivery."""

    @property
    def key(self) -> str:
        """What order is about: an account, an order. May be empty."""

    @property
    def body(self) -> bytes:
        """The payload as it was published."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What the producer said beside the body."""

    @property
    def attempt(self) -> int:
        """1 on the first delivery."""

    async def ack(self) -> None:
        """Say that the work is done: the broker forgets the message.

        Returns when the broker has it (Kafka: when the adapter's bookkeeping has it; the commit
        follows). Raises `AlreadySettled` the second time, `SettleFailed` if the connection that
        delivered the message is gone.
        """

    async def nack(self, *, requeue: bool, delay_s: float = 0.0) -> None:
        """Say that the work is not done.

        `requeue=True` brings the message back, with `attempt + 1`, not before `delay_s` seconds.
        `requeue=False` gives it up for good: it will not be delivered again. Raises as `ack` does.
        """


@runtime_checkable
class Source(Protocol):
    """An asynchronous iterator of messages.

    Several tasks may take from one source at once; messages are handed out in the order of
    delivery. Cancelling a pending take loses nothing. The source buffers behind your back (up to
    `prefetch` messages), so only what you *took* is in your hands.
    """

    def __aiter__(self) -> AsyncIterator[Message]:
        """The source is its own iterator, however often you ask."""

    async def stop_receiving(self) -> None:
        """End every pending and later take, and give unread messages back to the broker.

        Takes end with `StopAsyncIteration`. Messages already taken stay yours: finish them or
        `nack(requeue=True)` them. May be called twice, and after the source has ended.
        """


@runtime_checkable
class Connection(Source, Protocol):
    """A source that belongs to whoever opened it: nobody else closes it.

    A process that ends without closing leaves the broker to find out: until then it keeps back what
    that process had not settled, and what it had settled a moment ago may be delivered once more.
    """

    async def close(self) -> None:
        """Receive no more, make settlements durable, give everything unsettled back, disconnect.

        Settling on it afterwards raises `SettleFailed`. May be called twice, and after
        `stop_receiving`.
        """


Connect = Callable[[], Awaitable[Connection]]
"""Opens the one connection a process has, with a consumer on it. Raises `ConnectionError`."""

Handler = Callable[[Message], Awaitable[None]]
"""The work itself. Raises `Transient`, `Permanent`, or anything else (treat it as transient)."""


class Publish(Protocol):
    """What publishes to the queue that a letter once came from."""

    async def __call__(
        self, body: bytes, *, id: str, key: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish, and return when the broker has confirmed it. Raises `PublishFailed`."""


@runtime_checkable
class DeadLetters(Protocol):
    """The place beside the queue for messages that cannot be handled, over its own connection.

    Write to it with `publish`. Read from it as from a source, but for two things: letters come one
    at a time, the oldest first, and the iteration ends when none is left. What you took and did not
    settle comes again to whoever reads next.
    """

    async def publish(
        self, body: bytes, *, id: str, key: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Put a letter there, and return when the broker has confirmed that it has it.

        Raises `PublishFailed` if it has not within a second, or if the connection is lost.
        """

    def publish_nowait(
        self, body: bytes, *, id: str, key: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Hand a letter to the connection and go on. Nobody will tell whether the broker got it."""

    async def count(self) -> int:
        """How many letters wait there now. Raises `ConnectionError` if nobody answers."""

    def __aiter__(self) -> AsyncIterator[Message]:
        """The letters, the oldest first, up to the moment when none is left.

        Acking a letter takes it away; `nack(requeue=True)` leaves it, for this iteration or the
        next one, and keeps no delay.
        """
