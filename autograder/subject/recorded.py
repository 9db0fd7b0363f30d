"""The port as the student sees it: the adapter's source and messages, with every call reported."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path

from autograder.messaging import AlreadySettled, Connection, Message, SettleFailed, Source
from autograder.model import BY_THE_MODULE, Kind
from autograder.subject.raised import Raised
from autograder.subject.reporter import Reporter

TURNS_OF_GRACE = 10  # loop turns a take may need to notice that stop was set


class Book:
    """Counts of one process: what the heartbeats tell."""

    def __init__(self, module: Path | None = None) -> None:
        self.raised = Raised(module)
        self.deliveries = count(1)
        self.in_hand = 0
        self.settling = 0
        self.busy = 0
        self.held = 0
        self.keys: set[str] = set()  # of all messages that were taken

    @contextmanager
    def adapter_at_work(self) -> Iterator[None]:
        """What goes on meanwhile is the adapter's time, and the broker's: nobody stands still."""
        self.settling += 1
        try:
            yield
        finally:
            self.settling -= 1

    @contextmanager
    def asking(self, reporter: Reporter, *, waits: bool) -> Iterator[None]:
        """As long as a store is asked, nobody else stands still if it `waits`; what it raises is told."""
        with self.adapter_at_work() if waits else nullcontext(), self.raised.telling(reporter):
            yield


class RecordedDelivery:
    """A `Message` that also knows its number in this process, and under it reports what happens."""

    __slots__ = ("__weakref__", "_book", "_inner", "_reporter", "_settle_called", "delivery")

    def __init__(self, inner: Message, reporter: Reporter, book: Book) -> None:
        self._inner = inner
        self._reporter = reporter
        self._book = book
        self._settle_called = False
        self.delivery = next(book.deliveries)

    @property
    def id(self) -> str:
        """The producer's id."""
        return self._inner.id

    @property
    def key(self) -> str:
        """What order is about."""
        return self._inner.key

    @property
    def body(self) -> bytes:
        """The payload."""
        return self._inner.body

    @property
    def headers(self) -> Mapping[str, str]:
        """What the producer said beside the body."""
        return self._inner.headers

    @property
    def attempt(self) -> int:
        """1 on the first delivery."""
        return self._inner.attempt

    def report(self, kind: Kind, detail: str = "") -> None:
        """Report an event of this delivery."""
        inner = self._inner
        self._reporter.event(kind, inner.id, inner.key, self.delivery, inner.attempt, detail)

    def tell_handled(self) -> None:
        """Report the exception that the code handles at this moment, if there is one."""
        self._book.raised.tell(sys.exception(), lambda text: self.report(Kind.RAISED, text))


class RecordedMessage(RecordedDelivery):
    """One delivery of the source."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Message {self.id} key={self.key!r} attempt={self.attempt}>"

    async def ack(self) -> None:
        """See `autograder.messaging.Message.ack`."""
        self._claim(Kind.ACK, "")
        self._book.settling += 1
        try:
            await self._reporter.all_sent()
            await self._inner.ack()
        except SettleFailed:
            self._settled(Kind.SETTLE_FAILED)
            raise
        finally:
            self._book.settling -= 1
        self._settled(Kind.SETTLED)

    async def nack(self, *, requeue: bool, delay_s: float = 0.0) -> None:
        """See `autograder.messaging.Message.nack`."""
        self._claim(Kind.REQUEUE if requeue else Kind.GIVE_UP, f"{delay_s:g}" if delay_s else "")
        self._book.settling += 1
        try:
            await self._reporter.all_sent()
            await self._inner.nack(requeue=requeue, delay_s=delay_s)
        except SettleFailed:
            self._settled(Kind.SETTLE_FAILED)
            raise
        finally:
            self._book.settling -= 1
        self._settled(Kind.SETTLED)

    def _claim(self, kind: Kind, detail: str) -> None:
        self.tell_handled()
        if self._settle_called:
            self.report(Kind.SETTLED_TWICE, kind)
            raise AlreadySettled(f"message {self.id} was acked or nacked before")
        self._settle_called = True
        self.report(kind, detail)

    def _settled(self, kind: Kind) -> None:
        self._book.in_hand -= 1
        self.report(kind)


class RecordedSource:
    """The adapter's source, with takes and the stop reported."""

    def __init__(self, inner: Source, reporter: Reporter, book: Book) -> None:
        self._inner = inner
        self._reporter = reporter
        self._book = book

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        inner = await self._inner.__anext__()  # type: ignore[attr-defined] # an adapter's source is its own iterator: adapter.py
        # No await from here on: a message that left the adapter is reported and handed out.
        message = RecordedMessage(inner, self._reporter, self._book)
        self._book.in_hand += 1
        self._book.keys.add(inner.key)
        self._book.raised.next_take()
        message.report(Kind.TAKEN)
        return message

    async def stop_receiving(self) -> None:
        """See `autograder.messaging.Source.stop_receiving`."""
        self._reporter.event(Kind.SOURCE_STOPPED)
        with self._book.adapter_at_work():
            await self._inner.stop_receiving()
        self._reporter.event(Kind.SOURCE_CLOSED)


class RecordedConnection(RecordedSource):
    """A source that its module closes itself."""

    def __init__(self, inner: Connection, reporter: Reporter, book: Book) -> None:
        super().__init__(inner, reporter, book)
        self._connection = inner

    async def close(self) -> None:
        """See `autograder.messaging.Connection.close`."""
        self._reporter.event(Kind.DISCONNECTING)
        with self._book.adapter_at_work():
            await self._connection.close()
        self._reporter.event(Kind.DISCONNECTED)


class StopEvent(asyncio.Event):
    """The `stop` a student waits for, reported when it is set and again when it must be in force.

    A loop needs a few turns until the task that waits for `stop` has run and cancelled the takes
    of others. Takes in those turns are nobody's fault.
    """

    def __init__(self, reporter: Reporter) -> None:
        super().__init__()
        self._reporter = reporter
        self._asked = False

    def set(self) -> None:
        """Set by the student's own code: reported as that, for nobody has asked the pool to stop."""
        if not self.is_set():
            self._reporter.event(Kind.STOP_SET, detail=BY_THE_MODULE)
            super().set()

    def ask(self) -> None:
        """Set by whoever runs the pool; the first time, report it and start counting turns."""
        if not self._asked:
            self._asked = True
            self._reporter.event(Kind.STOP_SET)
            super().set()
            self._after_turns(TURNS_OF_GRACE)

    def _after_turns(self, turns: int) -> None:
        if turns == 0:
            self._grace_is_over()
        else:
            asyncio.get_running_loop().call_soon(self._after_turns, turns - 1)

    def _grace_is_over(self) -> None:
        """Takes from here on are new work."""
        self._reporter.event(Kind.STOP_IN_FORCE)
