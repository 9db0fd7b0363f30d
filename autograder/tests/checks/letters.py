"""What `build.Story` tells, and dead letters beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from autograder.model import NOBODY_ASKED, Content, History, Kind
from autograder.tests.checks.build import Story

GOOD = {
    "dead-letter-reason": "order a: the database did not answer",
    "dead-letter-error": "Transient",
    "dead-letter-attempts": "1",
    "dead-letter-first-failed-at": "2026-11-27T08:00:00+00:00",
    "dead-letter-last-failed-at": "2026-11-27T08:00:00.020000+00:00",
}
"""The story of message `a`, which failed once."""


class Letters(Story):
    """A consumer with dead letters, and the examiner who reads them."""

    def __init__(self) -> None:
        super().__init__(workers=1)
        self._found = 0

    def content(self, kind: Kind, message: str, key: str, body: bytes, headers: Mapping) -> Self:
        self.say(kind, message, str(Content.of(body, headers)))
        self.events[-1] = replace(self.events[-1], key=key, delivery=0, attempt=0)
        return self

    def publish(
        self, *messages: str, key: str = "", body: bytes = b"{}", headers: Mapping | None = None
    ) -> Self:
        for message in messages:
            self.content(Kind.PUBLISHED, message, key, body, headers or {})
            self.say(Kind.CONFIRMED, message)
        return self

    def begin(self, task: str = "run max_attempts=2") -> Self:
        self.process += 1
        return self.say(Kind.SPAWNED, detail=task).say(Kind.RUN_STARTED)

    def letter(self, message: str) -> Self:
        """Written and confirmed."""
        return self.say(Kind.DEAD_LETTER, message).say(Kind.DEAD_LETTERED, message)

    def letter_fails(self, message: str) -> Self:
        self.say(Kind.DEAD_LETTER, message)
        return self.say(Kind.PUBLISH_FAILED, message, "dead letter")

    def letter_unheard(self, message: str) -> Self:
        return self.say(Kind.DEAD_LETTER, message, NOBODY_ASKED)

    def put(self, *messages: str, key: str = "", headers: Mapping | None = None) -> Self:
        for message in messages:
            self.content(Kind.LETTER_PUT, message, key, b"{}", headers or {})
        return self

    def take_letter(self, message: str) -> Self:
        self._deliveries[message] = 1 + max(self._deliveries.values(), default=0)
        return self.say(Kind.LETTER_TAKEN, message)

    def republish(self, message: str) -> Self:
        return self.say(Kind.REPUBLISH, message).say(Kind.REPUBLISHED, message)

    def ack_letter(self, message: str) -> Self:
        return self.say(Kind.LETTER_ACK, message).say(Kind.LETTER_SETTLED, message)

    def replay(self, *messages: str) -> Self:
        """One letter after the other, as it should be."""
        for message in messages:
            self.take_letter(message).republish(message).ack_letter(message)
        return self

    def found(
        self, message: str, *, key: str = "", body: bytes = b"{}", headers: Mapping | None = None
    ) -> Self:
        """Among the dead letters, at the end."""
        self._found += 1
        return self.content(
            Kind.LETTER_FOUND, message, key, body, GOOD if headers is None else headers
        )

    def queued(
        self, message: str, *, key: str = "", body: bytes = b"{}", headers: Mapping | None = None
    ) -> Self:
        """In the queue, at the end."""
        return self.content(Kind.MESSAGE_FOUND, message, key, body, headers or {})

    def history(self, *, looked: bool = True, **counts) -> History:
        """With `looked`, the examiner has read the dead letters."""
        history = super().history(**counts)
        letters = self._found if looked else -1
        return replace(history, broker=replace(history.broker, dead_letters=letters))
