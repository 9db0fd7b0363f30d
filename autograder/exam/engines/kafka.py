"""Kafka, as the examiner sees it: one topic and one group name per lane.

None of its clients is a member of the group: it looks at the committed offsets from outside.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.group import LeaveGroupRequest

from autograder.exam.engines import PATIENCE_S, Outgoing, lane_name, our_fault
from autograder.messaging.adapter import Lane
from autograder.messaging.envelope import ID_HEADER, as_bytes, from_bytes
from autograder.model import BrokerState, GraderError

if TYPE_CHECKING:
    from aiokafka.structs import RecordMetadata

PARTITIONS = 4
"""Partitions of a lane's topic, if not said otherwise."""

CONFIRM_WINDOW = 5_000
"""Messages published and not yet confirmed, at most."""


async def connect(url: str) -> KafkaEngine:
    """Connect to the broker at `url`, a `host:port`."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # errors are raised; it logs them, too
    engine = KafkaEngine(url)
    try:
        async with engine.ours():
            await engine.open()
    except GraderError:
        await engine.close()
        raise
    return engine


class KafkaEngine:
    """Three clients of one broker: to administrate, to publish, to ask for end offsets."""

    name = "kafka"
    version = ""  # the protocol does not tell the server's version

    def __init__(self, url: str) -> None:
        self._url = url
        self._admin = AIOKafkaAdminClient(bootstrap_servers=url, request_timeout_ms=10_000)
        self._producer = AIOKafkaProducer(
            bootstrap_servers=url,
            acks="all",
            enable_idempotence=True,  # a retried batch does not change the order
            max_batch_size=64 * 1024,
            retry_backoff_ms=20,
        )
        self._reader = AIOKafkaConsumer(bootstrap_servers=url, group_id=None, retry_backoff_ms=20)
        self._reading = asyncio.Lock()
        self._partitions: dict[str, list[TopicPartition]] = {}

    async def open(self) -> None:
        """Connect all three."""
        await asyncio.gather(self._admin.start(), self._producer.start(), self._reader.start())

    async def open_lane(
        self, label: str, *, lease_s: float = 5.0, partitions: int = PARTITIONS
    ) -> Lane:
        """A topic, and the name of a group that nobody has used."""
        return await self._open(lane_name(label), lease_s, partitions)

    async def open_letters(self, lane: Lane) -> Lane:
        """A topic beside the lane's. It has one partition: letters are few, and kept in order."""
        return await self._open(f"{lane.channel}-letters", lane.lease_s, 1)

    async def _open(self, name: str, lease_s: float, partitions: int) -> Lane:
        async with self.ours():
            said = await self._admin.create_topics([NewTopic(name, partitions, 1)])
            for _, code, *reason in said.topic_errors:
                if code:
                    raise for_code(code)(*reason)
        self._partitions[name] = [TopicPartition(name, each) for each in range(partitions)]
        return Lane(self._url, name, f"{name}-workers", lease_s)

    async def read(self, lane: Lane) -> list[Outgoing]:
        """From the committed offsets to the ends, by a client that is in no group."""
        places = self._partitions[lane.channel]
        async with self.ours():
            coordinator = await self._coordinator_of(lane)
            committed, ends = await asyncio.gather(
                self._admin.list_consumer_group_offsets(lane.consumer, coordinator, places),
                self._reader.end_offsets(places),
            )
            starts = {place: max(committed[place].offset, 0) for place in places}
            found = []
            for place in places:
                if starts[place] < ends[place]:
                    async with self._reading:  # one reader, and many runs at the same time
                        found += await self._records(place, starts[place], ends[place])
        return found

    async def _records(self, place: TopicPartition, start: int, end: int) -> list[Outgoing]:
        self._reader.assign([place])
        self._reader.seek(place, start)
        found = []
        while await self._reader.position(place) < end:
            record = await self._reader.getone(place)
            headers = {name: from_bytes(value) for name, value in record.headers}
            identity, key = headers.pop(ID_HEADER, ""), from_bytes(record.key or b"")
            found.append(Outgoing(identity, key, record.value or b"", headers))
        return found

    async def publish(self, lane: Lane, messages: Sequence[Outgoing]) -> list[str]:
        """Publish in order within each key; all replicas have every message when this returns."""
        for start in range(0, len(messages), CONFIRM_WINDOW):
            async with self.ours():
                window = messages[start : start + CONFIRM_WINDOW]
                confirmations = [await self._send(lane, message) for message in window]
                await asyncio.gather(*confirmations)
        return [message.id for message in messages]

    async def _send(self, lane: Lane, message: Outgoing) -> asyncio.Future[RecordMetadata]:
        """Put into the producer's batch; the future ends with the broker's answer."""
        headers = [(name, as_bytes(value)) for name, value in message.headers.items()]
        confirmation: asyncio.Future[RecordMetadata] = await self._producer.send(
            lane.channel,
            value=message.body,
            key=as_bytes(message.key) or None,  # without a key: any partition
            headers=[(ID_HEADER, as_bytes(message.id)), *headers],
        )
        return confirmation

    async def state(self, lane: Lane) -> BrokerState:
        """The committed offsets against the ends of the partitions.

        Kafka does not know what was delivered: `waiting` is all that is not committed.
        """
        places = self._partitions[lane.channel]
        async with self.ours():
            coordinator = await self._coordinator_of(lane)
            committed, ends, members = await asyncio.gather(
                self._admin.list_consumer_group_offsets(lane.consumer, coordinator, places),
                self._reader.end_offsets(places),
                self._members(lane, coordinator),
            )
        settled = sum(max(committed[place].offset, 0) for place in places)
        return BrokerState(
            waiting=sum(ends.values()) - settled, settled=settled, consumers=len(members)
        )

    async def at_rest(self, lane: Lane) -> BrokerState:
        """The same: what is not committed is delivered again, once the group has no dead member."""
        return await self.state(lane)

    async def expire(self, lane: Lane) -> None:
        """Leave the group in the dead process's place: its session does not have to run out."""
        async with self.ours():
            coordinator = await self._coordinator_of(lane)
            for identity in await self._members(lane, coordinator):
                # the client offers no method to remove a member
                await self._admin._send_request(  # noqa: SLF001 - see the line above
                    LeaveGroupRequest(lane.consumer, identity), coordinator
                )

    async def _members(self, lane: Lane, coordinator: int) -> list[str]:
        """The members of the lane's group, by the names that the broker gave them."""
        said = await self._admin.describe_consumer_groups([lane.consumer], coordinator)
        return [member[0] for response in said for group in response.groups for member in group[5]]

    async def disown(self, lane: Lane) -> None:
        """Put the consumer out of its group: its session is what delivered its messages."""
        await self.expire(lane)

    async def drop_lane(self, lane: Lane) -> None:
        """Delete the topic; the offsets of its group go with it."""
        self._partitions.pop(lane.channel, None)
        async with self.ours():
            said = await self._admin.delete_topics([lane.channel])
            for _, code in said.topic_error_codes:
                error = for_code(code)
                if code and error is not UnknownTopicOrPartitionError:
                    raise error(lane.channel)

    async def close(self) -> None:
        """Disconnect."""
        for stop in self._producer.stop, self._reader.stop, self._admin.close:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await stop()
            except (KafkaError, OSError):
                continue  # the broker is gone: so is the connection

    async def _coordinator_of(self, lane: Lane) -> int:
        """The broker that keeps the group. A fresh broker first makes the topic for the offsets."""
        while True:
            try:
                return int(await self._admin.find_coordinator(lane.consumer))
            except GroupCoordinatorNotAvailableError:
                await asyncio.sleep(0.02)

    def ours(self) -> AbstractAsyncContextManager[None]:
        """Charge what the broker does wrong to us."""
        return our_fault(f"The Kafka broker at {self._url}", KafkaError)
