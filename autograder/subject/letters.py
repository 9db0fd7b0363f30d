"""Dead letters and publishing as the student sees them, with every call reported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from autograder.messaging import AlreadySettled, Message, PublishFailed, SettleFailed
from autograder.messaging.route import Posted, Route
from autograder.model import NOBODY_ASKED, Kind
from autograder.subject.recorded import Book
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
        self._book.settling += 1  # from here on it is the adapter's time, and the broker's
        try:
            if self._gate is not None:
                await self._gate(Posted(id, key, body, headers or {}))
            await self._route.publish(body, id=id, key=key, headers=headers)
        except PublishFailed:
            self._reporter.event(Kind.PUBLISH_FAILED, id, key, detail=self._call)
            raise
        finally:
            self._book.settling -= 1
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
        self._book.settling += 1
        try:
            return await self._route.count()
        finally:
            self._book.settling -= 1

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        self._book.settling += 1
        try:
            letter = RecordedLetter(await self._route.__anext__(), self._reporter, self._book)
        finally:
            self._book.settling -= 1
        letter.report(Kind.LETTER_TAKEN)
        return letter


class RecordedLetter:
    """One letter, reported: a `Message` with a number among the process's deliveries."""

    def __init__(self, inner: Message, reporter: Reporter, book: Book) -> None:
        self._inner = inner
        self._reporter = reporter
        self._book = book
        self._settle_called = False
        self._delivery = next(book.deliveries)

    @property
    def id(self) -> str:
        """The id it was published with."""
        return self._inner.id

    @property
    def key(self) -> str:
        """Its key."""
        return self._inner.key

    @property
    def body(self) -> bytes:
        """The payload."""
        return self._inner.body

    @property
    def headers(self) -> Mapping[str, str]:
        """What was said beside the body."""
        return self._inner.headers

    @property
    def attempt(self) -> int:
        """1 on the first delivery of the letter."""
        return self._inner.attempt

    def __repr__(self) -> str:
        return f"<Letter {self.id} key={self.key!r}>"

    def report(self, kind: Kind, detail: str = "") -> None:
        """Report an event of this letter."""
        self._reporter.event(kind, self.id, self.key, self._delivery, self.attempt, detail)

    async def ack(self) -> None:
        """See `autograder.messaging.Message.ack`."""
        await self._settle(requeue=False, ack=True)

    async def nack(self, *, requeue: bool, delay_s: float = 0.0) -> None:
        """See `autograder.messaging.Message.nack`."""
        if delay_s < 0:
            raise ValueError(f"a delay is not negative: {delay_s}")
        await self._settle(requeue=requeue, ack=False)

    async def _settle(self, *, requeue: bool, ack: bool) -> None:
        if self._settle_called:
            self.report(Kind.SETTLED_TWICE, "letter")
            raise AlreadySettled(f"letter {self.id} was acked or nacked before")
        self._settle_called = True
        self.report(Kind.LETTER_BACK if requeue else Kind.LETTER_ACK, "" if ack else "nack")
        self._book.settling += 1
        try:
            await (self._inner.ack() if ack else self._inner.nack(requeue=requeue))
        except SettleFailed:
            self.report(Kind.SETTLE_FAILED)
            raise
        finally:
            self._book.settling -= 1
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
