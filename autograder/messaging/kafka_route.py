"""A route on Kafka: a topic, written by a producer and read by one reader of one partition.

A publication is confirmed when all replicas in sync have it (`acks=all`,
https://kafka.apache.org/41/configuration/producer-configs/). The reader is no member of a group that
shares partitions out: it assigns the partition to itself, which takes no time to join, and commits
how far it has come. Two replays at the same time would read the same letters.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from autograder.messaging import SettleFailed
from autograder.messaging.adapter import Lane
from autograder.messaging.envelope import ID_HEADER, as_bytes, from_bytes
from autograder.messaging.route import Letter, Posted, Route, Settlement
from autograder.messaging.watermark import Watermark

JOIN_S = 10.0
RETRY_S = 0.05
FETCH_S = 5.0
"""How long a letter that is known to be there may take."""


class AdapterRoute(Route):
    """A producer, and a reader once somebody reads. The client mends connections itself."""

    def __init__(self, lane: Lane) -> None:
        super().__init__(lane)
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs what it mends by itself
        self._producer = AIOKafkaProducer(
            bootstrap_servers=lane.url, acks="all", retry_backoff_ms=20, request_timeout_ms=2_000
        )
        self._reader: AIOKafkaConsumer | None = None
        self._place = TopicPartition(lane.channel, 0)
        self._watermark = Watermark(0)
        self._again: deque[Letter] = deque()  # letters that were given back

    async def connect(self) -> None:
        """Connect, and find out where the topic is."""
        try:
            async with asyncio.timeout(JOIN_S):
                await self._producer.start()
                while not await self._knows_the_topic():  # noqa: ASYNC110 - it has to be asked
                    await asyncio.sleep(RETRY_S)
        except (KafkaError, OSError) as error:
            await self.hang_up()
            raise ConnectionError(f"no Kafka broker answers at {self.lane.url}: {error}") from error

    async def _knows_the_topic(self) -> bool:
        """Whether the broker tells where it is: of one just made it may not, for a moment."""
        try:
            return bool(await self._producer.partitions_for(self.lane.channel))
        except UnknownTopicOrPartitionError:
            return False

    async def hang_up(self) -> None:
        """Disconnect."""
        await asyncio.gather(
            self._producer.stop(),
            *([self._reader.stop()] if self._reader else []),
            return_exceptions=True,
        )

    async def send(self, posted: Posted) -> None:
        """Publish, and wait until all replicas in sync have it.

        The client goes on trying when we have given up, so that a letter may come twice.
        """
        headers = [(name, as_bytes(value)) for name, value in posted.headers.items()]
        try:
            confirmed = await self._producer.send(
                self.lane.channel,
                value=posted.body,
                key=as_bytes(posted.key) or None,
                headers=[(ID_HEADER, as_bytes(posted.id)), *headers],
            )
            await asyncio.shield(confirmed)
        except KafkaError as error:
            raise ConnectionError(str(error)) from error

    async def next_letter(self) -> Letter | None:
        """The next record up to the end there is now, then what was given back."""
        reader = await self._reading()
        try:
            async with asyncio.timeout(FETCH_S):
                if not await self._ahead(reader):
                    return self._again.popleft() if self._again else None
                record = await reader.getone(self._place)
        except KafkaError as error:
            raise ConnectionError(str(error)) from error
        self._watermark.deliver(record.offset)
        headers = {name: from_bytes(value) for name, value in record.headers}
        identity, key = headers.pop(ID_HEADER, ""), from_bytes(record.key or b"")
        return Letter(Posted(identity, key, record.value or b"", headers), 1, record.offset, self)

    async def settle(self, letter: Letter, how: Settlement) -> None:
        """Commit as far as all is settled. What is given back is handed out again by us."""
        if how == "requeue":
            posted = Posted(letter.id, letter.key, letter.body, letter.headers)
            self._again.append(Letter(posted, letter.attempt + 1, letter.token, self))
            return
        offset = letter.token
        assert isinstance(offset, int)  # noqa: S101 - from `next_letter`
        assert self._reader is not None  # noqa: S101 - it was read by it
        self._watermark.finish(offset)
        try:
            async with asyncio.timeout(FETCH_S):
                await self._reader.commit({self._place: self._watermark.committable})
        except (KafkaError, OSError) as error:
            raise SettleFailed(f"the group did not take the commit: {error}") from error

    async def count(self) -> int:
        """Records that were not read, and those that were given back."""
        reader = await self._reading()
        try:
            async with asyncio.timeout(FETCH_S):
                return await self._ahead(reader) + len(self._again)
        except KafkaError as error:
            raise ConnectionError(str(error)) from error

    async def _ahead(self, reader: AIOKafkaConsumer) -> int:
        """Records between what was read and the end of the partition."""
        ends = await reader.end_offsets([self._place])
        return max(0, int(ends[self._place]) - int(await reader.position(self._place)))

    async def _reading(self) -> AIOKafkaConsumer:
        if self._reader is None:
            reader = AIOKafkaConsumer(
                bootstrap_servers=self.lane.url,
                group_id=self.lane.consumer,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                fetch_max_wait_ms=100,
                retry_backoff_ms=50,
            )
            try:
                async with asyncio.timeout(JOIN_S):
                    await reader.start()
                    reader.assign([self._place])
                    self._watermark = Watermark(int(await reader.position(self._place)))
            except (KafkaError, OSError) as error:
                await reader.stop()
                raise ConnectionError(f"the dead letters cannot be read: {error}") from error
            self._reader = reader
        return self._reader
