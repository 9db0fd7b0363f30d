"""Dead letters and publishing as the student sees them, with every call reported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from autograder.messaging import AlreadySettled, Message, PublishFailed, SettleFailed
from autograder.messaging.route import Posted, Route
from autograder.model import NOBODY_ASKED, Kind
from autograder.subject.recorded import Book, RecordedDelivery
from autograder.subject.reporter import Reporter

Gate = Callable[[Posted], Awaitable[None]]
"""Returns when the examiner lets this message pass."""


class RecordedPublish:
    """A `Publish`, reported. With a gate, the examiner can hold a message before it leaves."""

    def __init__(
        self,
        route: Route,
        reporter: Reporter,
        book: Book,
        kinds: tuple[Kind, Kind],
        gate: Gate | None = None,
    ) -> None:
        self._route = route
        self._reporter = reporter
        self._book = book
        self._call, self._done = kinds
        self._gate = gate

    async def __call__(
        self, body: bytes, *, id: str, key: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """See `autograder.messaging.Publish`."""
        check(body, id, key, headers)
        self._reporter.event(self._call, id, key)
        with self._book.adapter_at_work():
            try:
                if self._gate is not None:
                    await self._gate(Posted(id, key, body, headers or {}))
                await self._route.publish(body, id=id, key=key, headers=headers)
            except PublishFailed:
                self._reporter.event(Kind.PUBLISH_FAILED, id, key, detail=self._call)
                raise
        self._reporter.event(self._done, id, key)


class RecordedDeadLetters:
    """A `DeadLetters`, reported."""

    def __init__(self, route: Route, reporter: Reporter, book: Book) -> None:
        self._route = route
        self._reporter = reporter
        self._book = book
        kinds = Kind.DEAD_LETTER, Kind.DEAD_LETTERED
        self._publish = RecordedPublish(route, reporter, book, kinds)

    async def publish(
        self, body: bytes, *, id: str, key: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """See `autograder.messaging.DeadLetters.publish`."""
        await self._publish(body, id=id, key=key, headers=headers)

    def publish_nowait(
        self, body: bytes, *, id: str, key: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """See `autograder.messaging.DeadLetters.publish_nowait`."""
        check(body, id, key, headers)
        self._reporter.event(Kind.DEAD_LETTER, id, key, detail=NOBODY_ASKED)
        self._route.publish_nowait(body, id=id, key=key, headers=headers)

    async def count(self) -> int:
        """See `autograder.messaging.DeadLetters.count`."""
        with self._book.adapter_at_work():
            return await self._route.count()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        with self._book.adapter_at_work():
            letter = RecordedLetter(await self._route.__anext__(), self._reporter, self._book)
        self._book.raised.next_take()
        letter.report(Kind.LETTER_TAKEN)
        return letter


class RecordedLetter(RecordedDelivery):
    """One letter."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Letter {self.id} key={self.key!r}>"

    async def ack(self) -> None:
        """See `autograder.messaging.Message.ack`."""
        await self._settle(requeue=False, ack=True)

    async def nack(self, *, requeue: bool, delay_s: float = 0.0) -> None:
        """See `autograder.messaging.Message.nack`."""
        if delay_s < 0:
            raise ValueError(f"a delay is not negative: {delay_s}")
        await self._settle(requeue=requeue, ack=False)

    async def _settle(self, *, requeue: bool, ack: bool) -> None:
        self.tell_handled()
        if self._settle_called:
            self.report(Kind.SETTLED_TWICE, "letter")
            raise AlreadySettled(f"letter {self.id} was acked or nacked before")
        self._settle_called = True
        self.report(Kind.LETTER_BACK if requeue else Kind.LETTER_ACK, "" if ack else "nack")
        with self._book.adapter_at_work():
            try:
                await (self._inner.ack() if ack else self._inner.nack(requeue=requeue))
            except SettleFailed:
                self.report(Kind.SETTLE_FAILED)
                raise
        self.report(Kind.LETTER_SETTLED)


def check(body: object, identity: object, key: object, headers: object) -> None:
    """Raise `TypeError`, naming the argument, for what no broker can carry."""
    if not isinstance(body, bytes):
        raise TypeError(f"body is bytes, not {type(body).__name__}")
    for name, text in (("id", identity), ("key", key)):
        if not isinstance(text, str):
            raise TypeError(f"{name} is a str, not {type(text).__name__}")
    for name, text in dict(headers or {}).items():  # type: ignore[call-overload]  # as in `Publish`
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(f"headers are text: {name!r} is {text!r}")
        if not name or not all(" " < char < "\x7f" and char != ":" for char in name):
            raise ValueError(f"not a name of a header: {name!r}")
