"""What the Kafka adapter knows of one partition while it is assigned to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autograder.messaging.watermark import Watermark, attempts_as_text, attempts_from_text

if TYPE_CHECKING:
    from aiokafka import TopicPartition


class Partition:
    """One partition from its assignment to its revocation: an epoch of its own.

    Messages hold on to it. When it has ended they are nobody's business any more, even if a
    partition of the same number is assigned again: that is another epoch.
    """

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.ended = False
        self.attempts: dict[int, int] = {}  # by offset: tries of records that are not finished
        self.watermark: Watermark | None = None  # until the first record shows where reading began
        self.committed: tuple[int, str] | None = None

    def resume(self, offset: int, metadata: str) -> None:
        """Take over what the last reader committed."""
        self.committed = offset, metadata
        self.attempts = attempts_from_text(metadata, offset)

    def deliver(self, offset: int) -> int:
        """Note a received record; returns which attempt this is."""
        if self.watermark is None:
            self.watermark = Watermark(offset)
        self.watermark.deliver(offset)
        return self.attempts.get(offset, 0) + 1

    def finish(self, offset: int) -> None:
        """Note a settled record."""
        assert self.watermark is not None, "a record was delivered"  # noqa: S101 - for the reader and mypy
        self.watermark.finish(offset)
        self.attempts.pop(offset, None)

    @property
    def window(self) -> int:
        """Records delivered that the watermark has not passed."""
        return self.watermark.window if self.watermark else 0

    def to_commit(self) -> tuple[int, str] | None:
        """Offset and metadata, if they are not what was committed last."""
        if self.watermark is None or self.ended:
            return None
        offset = self.watermark.committable
        commit = offset, attempts_as_text(self.attempts, offset)
        return None if commit == self.committed else commit
