"""How far a partition is done: the one number Kafka remembers for a group.

Kafka keeps no record of single messages. A group commits one offset per partition: everything below it
is done, everything from it on is delivered again to whoever reads next. With several messages
at work at once they finish in any order, so the number to commit is the *lowest unfinished* one:
a higher number would lose what is still at work when the process dies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

METADATA_LIMIT = 4_000
"""Bytes of text a commit may carry: `offset.metadata.max.bytes` of the broker is 4,096."""


class Watermark:
    """The offsets of one partition, from its assignment to its revocation, by what became of them.

    It is built from the offsets that were *delivered*, in their order, never by counting: offsets
    have gaps where transactions put their markers and where compaction removed records. Waiting for
    "the next number" would wait for ever.
    """

    def __init__(self, start: int) -> None:
        """`start` is where reading began: the committed offset, or the first one there was."""
        self._committable = start
        self._unfinished: deque[int] = deque()  # delivered, ascending; the done ones wait in front
        self._done: set[int] = set()
        self._highest = start - 1

    @property
    def committable(self) -> int:
        """The offset to commit: the lowest unfinished one, or the one after the last delivered."""
        return self._committable

    @property
    def window(self) -> int:
        """Deliveries that the watermark has not passed: what a crash now would repeat."""
        return len(self._unfinished)

    def deliver(self, offset: int) -> None:
        """A record was received. Offsets come in ascending order; anything else is a `ValueError`."""
        if offset <= self._highest:
            raise ValueError(f"offset {offset} after {self._highest}")
        self._highest = offset
        self._unfinished.append(offset)

    def finish(self, offset: int) -> None:
        """It is settled for good. Once per delivered offset; anything else is a `ValueError`."""
        if offset > self._highest or offset < self._committable or offset in self._done:
            raise ValueError(f"offset {offset} is not unfinished")
        self._done.add(offset)
        while self._unfinished and self._unfinished[0] in self._done:
            self._done.remove(self._unfinished.popleft())
        self._committable = self._unfinished[0] if self._unfinished else self._highest + 1


def attempts_as_text(attempts: Mapping[int, int], base: int) -> str:
    """Attempts by offset as text for a commit's metadata, relative to the committed offset `base`.

    `3:2 17:1` says that record `base + 3` was tried twice. What does not fit is left out, the highest
    offsets first: a count that is too low is better than a commit that is refused.
    """
    text = ""
    for offset in sorted(attempts):
        entry = f"{offset - base}:{attempts[offset]}"
        if len(text) + len(entry) + 1 > METADATA_LIMIT:
            break
        text = f"{text} {entry}" if text else entry
    return text


def attempts_from_text(text: str, base: int) -> dict[int, int]:
    """What `attempts_as_text` wrote; metadata of somebody else counts as none."""
    attempts = {}
    for entry in text.split():
        distance, _, tried = entry.partition(":")
        if not (distance.isdecimal() and tried.isdecimal()):
            return {}
        attempts[base + int(distance)] = int(tried)
    return attempts
