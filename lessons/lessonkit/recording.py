"""Events of a consumer that runs in the lesson's own kernel, as a grader records them of a process."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from autograder.exam.recorder import Life, Recorder
from autograder.messaging import Handler, Message, Permanent, Transient
from autograder.model import Kind
from autograder.subject.recorded import Book, RecordedMessage


class Notebook:
    """Takes the events of recorded sources and messages, in this process."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.life: Life = self.recorder.begin_life()
        self.counts: Counter[Kind] = Counter()

    def event(
        self,
        kind: Kind,
        message: str = "",
        key: str = "",
        delivery: int = 0,
        attempt: int = 0,
        detail: str = "",
    ) -> None:
        """Note one event, now."""
        self.counts[kind] += 1
        line = [str(kind), message, key, delivery, attempt, detail]
        self.recorder.from_subject(time.monotonic(), self.life, line)

    async def all_sent(self) -> None:
        """Nothing has to be sent."""


def recorded(handle: Handler, book: Book, errors: Counter[str]) -> Handler:
    """The handler, reported; `errors` counts what it raises by type."""

    async def reported(message: Message) -> None:
        assert isinstance(message, RecordedMessage)  # noqa: S101 - from our own source
        book.busy += 1
        message.report(Kind.STARTED)
        try:
            await handle(message)
        except asyncio.CancelledError:
            message.report(Kind.CANCELLED)
            raise
        except Exception as error:
            name = type(error).__name__
            told = name.lower() if isinstance(error, Transient | Permanent) else name
            errors[name] += 1
            message.report(Kind.FAILED, told)
            raise
        else:
            message.report(Kind.FINISHED)
        finally:
            book.busy -= 1

    return reported
