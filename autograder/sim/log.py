"""The manner of a log with partitions, as Kafka does it, and what its adapter makes of it.

One offset per partition is committed, in the background; settling is bookkeeping and takes no time.
A crash repeats whatever was settled since the last commit, and above the lowest unsettled record.
Nothing can be requeued: the consumer keeps a record that is to come back and hands it out again.
Attempts are the consumer's to count; a try that a crash ended is not counted. Order is per
partition; a key is always in the same one.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from dataclasses import dataclass, field

from autograder.messaging.watermark import Watermark
from autograder.model import BrokerState
from autograder.sim.broker import Channel
from autograder.sim.clock import Appointment, Clock
from autograder.sim.source import RECONNECT_S, Link, SimMessage, SimSource, Stored, gone
from autograder.sim.timing import Timing

PARTITIONS = 4
RUN = 16
"""Records read from one partition before the next one's turn, as in the adapter for Kafka."""

COMMIT_EVERY_S = 0.05
"""The pause between two commits; the same."""

FLUSH_S = 1.0
"""How long what is in hand may hold up a rebalance; the same."""


@dataclass(slots=True)
class Partition:
    """What the broker keeps: records, and how far the group has come."""

    records: list[Stored] = field(default_factory=list)  # from the committed offset on
    committed: int = 0
    attempts: dict[int, int] = field(default_factory=dict)  # of unfinished records, in the commit

    @property
    def end(self) -> int:
        """The offset that the next record gets."""
        return self.committed + len(self.records)

    def commit(self, offset: int, attempts: dict[int, int]) -> None:
        """The group is done with everything below: nobody will read it again."""
        del self.records[: offset - self.committed]
        self.committed = offset
        self.attempts = attempts


class Reading:
    """One partition as its reader knows it, from its assignment on."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.position = partition.committed
        self.watermark = Watermark(partition.committed)
        self.attempts = dict(partition.attempts)

    def commit(self) -> None:
        """Tell the broker how far this partition is done."""
        self.partition.commit(self.watermark.committable, dict(self.attempts))


class LogMessage(SimMessage):
    """One delivery of one record."""

    __slots__ = ("offset", "reading")
    offset: int
    reading: Reading


class LogChannel(Channel):
    """A topic and the group of consumers that its partitions are assigned to."""

    def __init__(self, clock: Clock, timing: Timing) -> None:
        super().__init__(clock, timing)
        self.partitions = [Partition() for _ in range(PARTITIONS)]
        self.members: list[LogSource] = []  # of the group, in the order in which they joined
        self._dead = 0  # members that died, until their session runs out

    def add(self, stored: Stored) -> None:
        """At the end of its key's partition; without a key, of any."""
        if stored.key:
            number = zlib.crc32(stored.key.encode(errors="surrogatepass")) % PARTITIONS
        else:
            number = self.timing.other.randrange(PARTITIONS)
        self.partitions[number].records.append(stored)
        for member in self.members:
            member.fetch()

    def state(self) -> BrokerState:
        """A log does not know what was delivered: `waiting` is all that is not committed."""
        settled = sum(each.committed for each in self.partitions)
        return BrokerState(
            waiting=sum(len(each.records) for each in self.partitions),
            settled=settled,
            consumers=self._dead + len(self.members),
        )

    def waiting_messages(self) -> list[Stored]:
        """All that is not committed."""
        return [record for each in self.partitions for record in each.records]

    def sources(self) -> list[SimSource]:
        """The members."""
        return list(self.members)

    async def connect(self, prefetch: int) -> SimSource:
        """Join the group; returns with partitions assigned. Those that are there let go of theirs first."""
        source = LogSource(self, prefetch)
        await source.pause(self.timing.settle())
        reading = [each for each in self.members if each.reads]
        self.members.append(source)
        for member in reading:
            await member.revoked()
        for member in reading:
            member.rejoin()
        source.assigned()
        return source

    def share(self, source: LogSource) -> list[Partition]:
        """The partitions of a member: one range for each, in the order of joining."""
        if source not in self.members:
            return []
        place, many = self.members.index(source), len(self.members)
        return self.partitions[place * PARTITIONS // many : (place + 1) * PARTITIONS // many]

    def leave(self, source: LogSource) -> None:
        """A member reads no more; the others read its partitions beside what they have."""
        if source in self.members:
            self.members.remove(source)
            for member in self.members:
                member.assigned()

    def expire(self) -> None:
        """Their sessions are over; `crash` has read no more."""
        self._dead = 0

    def die(self, source: LogSource) -> None:
        """A consumer is gone without a word: the group finds out later."""
        self._dead += 1
        self.leave(source)


class LogSource(SimSource):
    """A member of the group: the consumer of its share of the partitions."""

    def __init__(self, channel: LogChannel, prefetch: int) -> None:
        super().__init__(channel.clock, channel.timing, prefetch)
        self.channel = channel
        self._readings: list[Reading] = []
        self._again: deque[LogMessage] = deque()  # due again, and waiting for room
        self._turn = 0
        self._commit: Appointment | None = None
        self._revoked: asyncio.Future[None] | None = None  # set when nothing is in hand any more
        self._left = False

    def assigned(self) -> None:
        """Read each partition of its share, from the committed offset on if it did not read it before."""
        if self.stopping or self.link.broken:
            return
        known = {id(each.partition) for each in self._readings}
        share = self.channel.share(self)
        self._readings += [Reading(each) for each in share if id(each) not in known]
        self.fetch()

    @property
    def reads(self) -> bool:
        """Whether any partition is assigned to it."""
        return bool(self._readings)

    async def revoked(self) -> None:
        """Another member joins: what is settled within a second counts, the rest is lost to this one.

        One that had been stopped only waited for what it had in hand, so it leaves.
        """
        self.unread()
        self._again.clear()
        self._revoked = asyncio.get_running_loop().create_future()
        over = self.clock.call_later(FLUSH_S, self._let_go)
        if not self.held:
            self._let_go()
        await self._revoked
        over.cancel()
        if self._left:
            return
        self._end()
        if self.stopping:
            self._leave()

    def _let_go(self) -> None:
        if self._revoked is not None and not self._revoked.done():
            self._revoked.set_result(None)

    def rejoin(self) -> None:
        """With its new share, unless it has left."""
        self._revoked = None
        self._rejoin()

    def fetch(self) -> None:
        """Short runs of each partition in turn, as long as there is room; what comes back first."""
        if self._revoked is not None:
            return
        while self._again and self.room > 0:
            self._offer(self._again.popleft())
        read = True
        while read and self.room > 0 and not self.stopping and self._readings:
            read = False
            for _ in self._readings:
                reading = self._readings[self._turn % len(self._readings)]
                self._turn += 1
                read |= self._read(reading)

    def _read(self, reading: Reading) -> bool:
        """One run of one partition; whether there was any."""
        partition = reading.partition
        end = min(partition.end, reading.position + RUN, reading.position + self.room)
        for offset in range(reading.position, end):
            reading.watermark.deliver(offset)
            attempt = reading.attempts.get(offset, 0) + 1
            stored = partition.records[offset - partition.committed]
            self.send(self._message(stored, attempt, reading, offset))
        read = end > reading.position
        reading.position = max(end, reading.position)
        return read

    def _message(self, stored: Stored, attempt: int, reading: Reading, offset: int) -> LogMessage:
        message = LogMessage(stored, attempt, self.link, self)
        message.reading, message.offset = reading, offset
        return message

    def _offer(self, message: LogMessage) -> None:
        """Into the buffer: it never left the process."""
        self.held[message] = None
        self.buffer.put(message)

    # -- settling

    async def ack(self, message: SimMessage) -> None:
        """Note it; the commit follows."""
        record = self._release(message)
        record.reading.watermark.finish(record.offset)
        record.reading.attempts.pop(record.offset, None)
        self._settled()

    async def requeue(self, message: SimMessage, delay_s: float) -> None:
        """Hand it out again, after its delay."""
        record = self._release(message)
        record.reading.attempts[record.offset] = record.attempt
        again = self._message(record.stored, record.attempt + 1, record.reading, record.offset)

        def due() -> None:
            if not (again.link.broken or self.stopping):
                self._again.append(again)
                self.fetch()

        self.clock.call_later(delay_s, due)
        self._settled()

    def _release(self, message: SimMessage) -> LogMessage:
        assert isinstance(message, LogMessage)  # noqa: S101 - for the reader and mypy
        if message.link.broken:
            raise gone()
        del self.held[message]
        return message

    def _settled(self) -> None:
        """Commit before long; leave the group if it was stopped and this was the last in hand."""
        if not self.held:
            self._let_go()
        if self.stopping and not self.held:
            self._leave()
        elif self._commit is None:
            self._commit = self.clock.call_later(self.timing.settle(), self._commit_now)

    def _commit_now(self) -> None:
        for reading in self._readings:
            reading.commit()
        self._commit = self.clock.call_later(COMMIT_EVERY_S, self._rested)

    def _rested(self) -> None:
        """The pause is over: commit again if anything was settled within it."""
        self._commit = None
        if any(each.partition.committed != each.watermark.committable for each in self._readings):
            self._settled()

    # -- the end

    async def stop_receiving(self) -> None:
        """End all takes at once; leave the group as soon as nothing is in hand."""
        self.stopping = True
        self.buffer.end()
        self.unread()
        self._again.clear()
        if not self.held and not self._left:
            await self.pause(self.timing.settle())
            if not self.held:
                self._leave()

    async def close(self) -> None:
        """Commit, leave the group, disconnect."""
        self.stopping = True
        self.buffer.end()
        await self.pause(self.timing.settle())
        self._leave()

    def _leave(self) -> None:
        if not self._left:
            self._left = self.closed = True
            self._end()
            self.channel.leave(self)

    def _end(self) -> None:
        """Commit what is settled, and be done with these partitions."""
        if self._commit is not None:
            self._commit.cancel()
            self._commit = None
        for reading in self._readings:
            reading.commit()
        self._readings = []
        self._again.clear()
        self.lose()

    def cut(self) -> None:
        """A rebalance: what is settled gets committed, what is in hand is lost, all is read anew."""
        self._end()
        self.clock.call_later(RECONNECT_S + self.timing.settle(), self._rejoin)

    def _rejoin(self) -> None:
        if self._left or not self.link.broken:  # cut again meanwhile: one new connection is enough
            return
        self.link = Link(self.clock)
        self.connections += 1
        if not self.stopping:
            self.assigned()

    def crash(self) -> None:
        """What was not committed is repeated; the last commit may or may not have arrived."""
        if self._commit is not None:
            self._commit.cancel()
        if self._commit is not None and self.timing.other.random() < 0.5:
            for reading in self._readings:
                reading.commit()
        self._left = self.closed = True
        self._readings = []
        self._again.clear()
        self.lose()
        self.channel.die(self)
