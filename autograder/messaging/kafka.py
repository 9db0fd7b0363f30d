"""The port on Kafka: one member of a consumer group.

How Kafka differs from a queue, and what this adapter makes of it:

- *There is no acknowledgement of one message.* A group commits one offset per partition. Settling a
  message marks it in a `Watermark`; the watermark is committed in the background, one commit at a
  time, and again at a stop, a revocation and the end. "Settled" means that the bookkeeping has it: a crash
  before the next commit delivers it again, and so does every settled message above the lowest unsettled one.
- *Nothing can be requeued.* The adapter keeps a record that is to come back and hands it out again
  after its delay, while others go on. The watermark cannot pass it meanwhile.
- *Kafka counts no attempts.* The adapter does, and stores the counts of unfinished records in the
  commit's metadata, so that whoever reads the partition next goes on counting. A try that a crash
  ended is not counted, nor are those that do not fit (about 500 records at a time).
- *Partitions belong to a member, not to a connection.* A broken connection is mended by the client and
  costs nothing. What ends a delivery is losing the partition in a rebalance: settling then raises
  `SettleFailed`, even if the same partition has come back meanwhile, because another member may have
  read on from the committed offset.
- *Handing back is leaving.* Unread records need no word to the broker: they were not committed. But
  another member gets them only when this one leaves the group, which it does after a stop, as soon as nothing
  is in hand any more. A process that dies keeps its partitions until `session_timeout_ms` is over.
- *Order* is per partition, and a key is always in the same one. An empty key is in any.

Clients: https://aiokafka.readthedocs.io/en/stable/consumer.html; the group protocol:
https://kafka.apache.org/41/design/protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from autograder.messaging import SettleFailed
from autograder.messaging.adapter import Lane, Standing
from autograder.messaging.buffer import Buffer
from autograder.messaging.delivery import Delivery
from autograder.messaging.envelope import ID_HEADER, from_bytes
from autograder.messaging.kafka_partition import Partition

COMMIT_EVERY_S = 0.05
"""The pause between two commits: what was settled within it shares one."""

FLUSH_S = 1.0
"""How long what is in hand, or a commit, may hold up a revocation, and the client its own end."""

LAST_COMMIT_S = 2.0
"""How long the last commit may take: on a busy machine it is late, and what was settled would come again."""

WINDOW = 10_000
"""Records of one partition above its watermark, at most: a crash would repeat them all."""

BROKER_MINIMUM_SESSION_S = 6.0
"""`group.min.session.timeout.ms` of a broker as it comes; a shorter session is refused."""

KEEP_ALIVE_S = 60.0
"""How long the source may not poll. The client leaves the group after `max_poll_interval_ms`."""

JOIN_S = 30.0
"""How long joining may take: a member that died without a word holds it up for its session."""

RUN = 16
"""Records read from one partition before the next one's turn."""

RETRY_S = 0.1
POLL_MS = 100


async def connect(lane: Lane, *, prefetch: int) -> KafkaSource:
    """Join the group; returns with partitions assigned. Raises `ConnectionError` if that fails."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs what it mends by itself
    source = KafkaSource(lane, prefetch)
    await source.open()
    return source


class KafkaMessage(Delivery):
    """One delivery. `attempt` is counted by the adapter; see the module."""

    __slots__ = ("_source", "offset", "partition")

    def __init__(
        self, record: Any, attempt: int, partition: Partition, source: KafkaSource
    ) -> None:
        headers = {name: from_bytes(value) for name, value in record.headers}
        super().__init__(
            headers.pop(ID_HEADER, "") or f"{record.topic}-{record.partition}-{record.offset}",
            from_bytes(record.key or b""),
            record.value or b"",
            headers,
            attempt,
        )
        self.offset: int = record.offset
        self.partition = partition
        self._source = source

    def again(self) -> KafkaMessage:
        """The same record as its next delivery."""
        copy = object.__new__(KafkaMessage)
        Delivery.__init__(copy, self.id, self.key, self.body, self.headers, self.attempt + 1)
        copy.offset, copy.partition, copy._source = self.offset, self.partition, self._source
        return copy

    async def _ack(self) -> None:
        self._source.finish(self)

    async def _requeue(self, delay_s: float) -> None:
        self._source.bring_back(self, delay_s)

    async def _give_up(self) -> None:
        self._source.finish(self)  # skipped: the group goes on behind it


class KafkaSource:
    """Messages of one topic, as far as its partitions are assigned to this member."""

    def __init__(self, lane: Lane, prefetch: int) -> None:
        if prefetch < 1:
            raise ValueError(f"prefetch is at least 1: {prefetch}")
        self._lane = lane
        self._prefetch = prefetch
        self._partitions: dict[TopicPartition, Partition] = {}
        self._ready = asyncio.Event()  # partitions are assigned and their attempts known
        self._buffer: Buffer[KafkaMessage] = Buffer()
        self._waiting: deque[KafkaMessage] = deque()  # for room in the buffer
        self._in_hand: set[KafkaMessage] = set()
        self._empty_handed = asyncio.Event()
        self._empty_handed.set()
        self._room = asyncio.Event()  # half of the buffer is free
        self._room.set()
        self._settled = asyncio.Event()  # there may be something to commit
        self._committing = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._left = asyncio.Event()
        self._turn = 0
        self._assignments = 0
        self._tasks: list[asyncio.Task[None]] = []
        session_s = max(lane.lease_s, BROKER_MINIMUM_SESSION_S)
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=lane.url,
            group_id=lane.consumer,
            enable_auto_commit=False,
            auto_offset_reset="earliest",  # a new group wants what was there before it, too
            isolation_level="read_committed",
            session_timeout_ms=int(session_s * 1000),
            heartbeat_interval_ms=500,  # how soon a rebalance is noticed
            fetch_max_wait_ms=100,
            max_partition_fetch_bytes=256 * 1024,
            retry_backoff_ms=50,
        )

    def __aiter__(self) -> KafkaSource:
        return self

    async def __anext__(self) -> KafkaMessage:
        message = await self._buffer.take()
        self._in_hand.add(message)
        self._empty_handed.clear()
        self._refill()
        if self._free > self._prefetch // 2:
            self._room.set()
        return message

    async def open(self) -> None:
        """Join the group and begin to receive."""
        self._consumer.subscribe([self._lane.channel], listener=_Rebalance(self))
        try:
            async with asyncio.timeout(JOIN_S):
                await self._consumer.start()
                await self._ready.wait()
        except (KafkaError, OSError) as error:
            await self._leave()
            reason = f"no Kafka broker lets us in at {self._lane.url}: {error}"
            raise ConnectionError(reason) from error
        self._tasks = [
            asyncio.create_task(self._work(), name="ackademy: receive"),
            asyncio.create_task(self._commit_what_is_settled(), name="ackademy: commit"),
        ]

    def standing(self) -> Standing:
        """Counts as of now. Connected means a member of the group, with partitions assigned."""
        connected = self._ready.is_set() and not self._left.is_set()
        buffered = len(self._buffer) + len(self._waiting)
        return Standing(buffered, len(self._in_hand), connected, self._assignments)

    def finish(self, message: KafkaMessage) -> None:
        """Settle for good. Raises `SettleFailed` if the partition was lost meanwhile."""
        self._release(message)
        message.partition.finish(message.offset)
        self._settled.set()

    def bring_back(self, message: KafkaMessage, delay_s: float) -> None:
        """Hand the record out again, not before `delay_s`. Raises as `finish` does."""
        self._release(message)
        message.partition.attempts[message.offset] = message.attempt
        self._settled.set()
        asyncio.get_running_loop().call_later(delay_s, self._offer, message.again())

    async def stop_receiving(self) -> None:
        """End all takes at once; leave the group as soon as nothing is in hand.

        Returns when the group was left, or at once if something is in hand still.
        """
        self._stopping.set()
        self._buffer.end()
        self._drop_unread()
        if self._tasks and not self._in_hand:
            await self._left.wait()

    async def close(self) -> None:
        """Commit, leave the group and disconnect."""
        self._stopping.set()
        self._buffer.end()
        self._drop_unread()
        self._empty_handed.set()  # what is in hand is not waited for
        if self._tasks:
            await asyncio.wait({self._tasks[0]})
        if self._tasks and not self._left.is_set():  # a loop that is torn down has cancelled it
            await self._leave()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    # -- behind the student's back

    async def _work(self) -> None:
        """Receive until the stop; then be a member until everything in hand is settled."""
        while not self._stopping.is_set():
            try:
                await self._receive()
            except KafkaError:  # a broker in trouble: the client mends what it can
                await asyncio.sleep(RETRY_S)
        await self._empty_handed.wait()
        await self._leave(LAST_COMMIT_S)

    async def _receive(self) -> None:
        """Fill the buffer with short runs of each partition in turn, or wait for room.

        A fetched batch is a long run of one partition. Handed out as it is, it would keep a pool
        that works on several keys at once waiting for other keys.
        """
        if not await _within(KEEP_ALIVE_S, self._room.wait()):
            # the group has to see that we are alive; a pause throws away what was fetched ahead
            self._consumer.pause(*self._consumer.assignment())
            await self._consumer.getmany()
            return
        await _within(RETRY_S, self._ready.wait())
        partitions = self._open_partitions()
        run = max(1, min(RUN, self._free // max(1, len(partitions))))
        received = 0
        for partition in partitions:
            received += await self._read(run, partition.place)
        if not received:
            await self._read(run, wait_ms=POLL_MS)
        if self._free <= 0:
            self._room.clear()

    async def _read(self, run: int, *places: TopicPartition, wait_ms: int = 0) -> int:
        """Take one run over from the client; returns how many records it has."""
        room = min(run, self._free)
        if room <= 0 or self._stopping.is_set():
            return 0
        runs = await self._consumer.getmany(*places, timeout_ms=wait_ms, max_records=room)
        for place, records in runs.items():
            if not self._ready.is_set() or place not in self._partitions:
                # assigned while we waited, and not set up yet: read it again afterwards
                self._consumer.seek(place, records[0].offset)
                continue
            partition = self._partitions[place]
            for record in records:
                self._offer(KafkaMessage(record, partition.deliver(record.offset), partition, self))
        return sum(map(len, runs.values()))

    def _open_partitions(self) -> list[Partition]:
        """The partitions to read from, each time beginning with another one.

        One whose window is full is paused until its oldest record is settled.
        """
        full = {each.place for each in self._partitions.values() if each.window >= WINDOW}
        paused = self._consumer.paused()
        self._consumer.pause(*full - paused)
        self._consumer.resume(*paused - full)
        self._turn += 1
        places = sorted(self._partitions.keys() - full)
        return [
            self._partitions[places[(self._turn + n) % len(places)]] for n in range(len(places))
        ]

    @property
    def _free(self) -> int:
        return self._prefetch - len(self._buffer) - len(self._waiting)

    def _offer(self, message: KafkaMessage) -> None:
        """Into the buffer, or in line for it."""
        if message.partition.ended or self._stopping.is_set():
            return  # not committed: it comes back to whoever reads the partition next
        self._waiting.append(message)
        self._refill()

    def _refill(self) -> None:
        while self._waiting and len(self._buffer) < self._prefetch:
            self._buffer.put(self._waiting.popleft())

    def _release(self, message: KafkaMessage) -> None:
        if message.partition.ended:
            raise SettleFailed("the partition of the message was taken away: it is delivered again")
        self._in_hand.discard(message)
        if not self._in_hand:
            self._empty_handed.set()

    def _drop_unread(self) -> None:
        self._buffer.drain()
        self._waiting.clear()
        self._room.set()

    async def _commit_what_is_settled(self) -> None:
        while True:
            await self._settled.wait()
            self._settled.clear()
            await self._commit()
            await asyncio.sleep(COMMIT_EVERY_S)

    async def _commit(self) -> None:
        """Commit what has moved. One at a time: an older commit must not arrive after a newer one."""
        async with self._committing:
            partitions = list(self._partitions.values())
            moved = [(each, commit) for each in partitions if (commit := each.to_commit())]
            if not moved:
                return
            try:
                await self._consumer.commit({each.place: commit for each, commit in moved})
            except KafkaError:  # a rebalance is under way, or the broker is in trouble
                self._settled.set()
            else:
                for each, commit in moved:
                    each.committed = commit

    async def _leave(self, patience_s: float = FLUSH_S) -> None:
        """Commit, leave the group, disconnect: as far as the broker plays along."""
        await _within(patience_s, self._commit())
        self._end_partitions()
        await _within(FLUSH_S, self._consumer.stop())
        self._left.set()

    # -- the group's coordinator calls these two, in this order, at every rebalance

    async def on_revoked(self) -> None:
        """Drain first, fence second: what is finished within `FLUSH_S` still gets committed."""
        self._ready.clear()
        self._drop_unread()
        await _within(FLUSH_S, self._empty_handed.wait())
        await _within(FLUSH_S, self._commit())
        self._end_partitions()

    async def on_assigned(self, places: Iterable[TopicPartition]) -> None:
        """A new epoch of each partition, with the attempts its last reader knew of."""
        partitions = {place: Partition(place) for place in places}
        with suppress(KafkaError):  # then the attempts count from 1
            # committed() keeps the offset only and drops the metadata
            coordinator = self._consumer._coordinator  # noqa: SLF001 - there is no public way to them
            for place, at in (await coordinator.fetch_committed_offsets(list(partitions))).items():
                partitions[place].resume(at.offset, at.metadata)
        self._partitions = partitions
        self._assignments += 1
        self._ready.set()

    def _end_partitions(self) -> None:
        for partition in self._partitions.values():
            partition.ended = True
        self._partitions = {}
        self._in_hand.clear()
        self._empty_handed.set()


class _Rebalance(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    def __init__(self, source: KafkaSource) -> None:
        self._source = source

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._source.on_revoked()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await self._source.on_assigned(assigned)


async def _within(seconds: float, work: Awaitable[object]) -> bool:
    """Whether it was done in time; a broker's refusal counts as done."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    except KafkaError:
        return True
    return True
