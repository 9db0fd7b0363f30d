"""What every provider of every broker owes: one suite, inherited by each in `test_providers.py`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from functools import partial

import aiokafka
import asyncpg
import nats
import pika
import psutil
import pytest
import valkey.asyncio
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from autograder import brokers
from autograder.brokers import process, providers, records
from autograder.model import GraderError

PATIENCE_S = 30.0

# A grader that starts a server, says which, and then does nothing until it is killed. `untied`
# takes the parent-death signal away, as on systems that have none.
_GRADER = """
    import json, select, sys
    from autograder import brokers
    from autograder.brokers import process

    engine, provider, tie = sys.argv[1:]
    if tie == "untied":
        process._GATE = process._GATE.replace('"linux"', '"nowhere"')
    with brokers.acquire(engine, provider) as server:
        said = {
            "pid": server.pid, "started": server.started, "folder": str(server.folder),
            "container": server.container,
        }
        print(json.dumps(said), flush=True)
        while not select.select([sys.stdin], [], [], 0.1)[0]:
            pass  # not one long wait: a signal that comes just before its system call is heard at its end
"""


@contextlib.contextmanager
def grader(grounds, engine, provider, tie):
    """Another process that holds a server, and what it says of it."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_GRADER), engine, provider, tie],
        env=grounds.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as owner:
        try:
            yield owner, json.loads(owner.stdout.readline())
        finally:
            owner.kill()


async def use_nats(url):
    """A message there and back through JetStream, with the real client."""
    client = await nats.connect(url, connect_timeout=5)
    try:
        stream = client.jetstream()
        await stream.add_stream(name="contract", subjects=["contract.>"])
        await stream.publish("contract.a", b"hello")
        pull = await stream.pull_subscribe("contract.>", durable="contract")
        [message] = await pull.fetch(1, timeout=10)
        await message.ack_sync()
        assert message.data == b"hello"
        await stream.delete_stream("contract")
    finally:
        await client.close()


async def use_kafka(url):
    """A record there and back through a consumer group, with the real client."""
    admin = AIOKafkaAdminClient(bootstrap_servers=url)
    await admin.start()
    try:
        await admin.create_topics([NewTopic("contract", 2, 1)])
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=url, enable_idempotence=True
        ) as producer:
            await producer.send_and_wait("contract", b"hello")
        async with aiokafka.AIOKafkaConsumer(
            "contract",
            bootstrap_servers=url,
            group_id="contract",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=1500,
            heartbeat_interval_ms=500,
        ) as consumer:
            record = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            await consumer.commit()
            assert record.value == b"hello"
        await admin.delete_topics(["contract"])
    finally:
        await admin.close()


def talk_amqp(url):
    """A message there and back through a quorum queue, with the real client."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("contract", durable=True, arguments={"x-queue-type": "quorum"})
        channel.basic_publish("", "contract", b"hello", mandatory=True)
        delivered, _, body = channel.basic_get("contract")
        channel.basic_ack(delivered.delivery_tag)
        assert body == b"hello"
        channel.queue_delete("contract")


async def use_rabbitmq(url):
    """The same from a coroutine: the blocking client keeps its thread busy."""
    await asyncio.to_thread(talk_amqp, url)


async def use_postgres(url):
    """A row there and back, with the real client."""
    connection = await asyncpg.connect(url, timeout=PATIENCE_S)
    try:
        await connection.execute("CREATE TABLE contract (word TEXT PRIMARY KEY)")
        await connection.execute("INSERT INTO contract VALUES ($1)", "hello")
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute("INSERT INTO contract VALUES ($1)", "hello")
        assert await connection.fetchval("SELECT word FROM contract") == "hello"
        await connection.execute("DROP TABLE contract")
    finally:
        await connection.close()


async def use_valkey(url):
    """A key there and back, with the real client."""
    client = valkey.asyncio.Valkey.from_url(url)
    try:
        assert await client.set("contract", "hello", nx=True, ex=60)
        assert await client.set("contract", "again", nx=True, ex=60) is None
        assert await client.get("contract") == b"hello"
        await client.delete("contract")
    finally:
        await client.aclose()


USE = {
    "nats": use_nats,
    "kafka": use_kafka,
    "rabbitmq": use_rabbitmq,
    "postgres": use_postgres,
    "valkey": use_valkey,
}


class ProviderContract:
    """For every provider. Subclasses have a fixture `place` that makes the provider available."""

    engine: str
    provider: str
    version: str

    def acquire(self):
        return brokers.acquire(self.engine, self.provider)

    async def test_a_client_can_use_it_and_it_says_what_it_is(self, place):
        async with self.acquire() as server:
            assert (server.engine, server.provider) == (self.engine, self.provider)
            assert server.version == self.version
            assert server.address[1] > 0
            assert brokers.is_alive(server)
            await USE[self.engine](server.url)

    def test_it_is_named_among_those_available(self, place):
        assert brokers.available(self.engine)[self.provider] is None


class BorrowedContract(ProviderContract):
    """For servers that were there before and stay."""

    def test_leaving_it_leaves_it_running(self, place):
        with self.acquire() as server:
            pass
        assert brokers.is_alive(server)

    def test_a_server_that_does_not_answer_is_an_error_with_a_next_step(self, place, monkeypatch):
        def refuse(url, timeout_s):
            raise providers.NotReadyError("nobody answers")

        monkeypatch.setattr(providers, "PROBES", {self.engine: refuse})
        with pytest.raises(GraderError) as raised, self.acquire():
            pass
        assert raised.value.next_command


class StartedContract(ProviderContract):
    """For servers that are ours and must leave no trace."""

    def test_nothing_is_left_after_a_stop(self, place, grounds):
        with self.acquire() as server:
            assert server.folder is not None
            assert len(grounds.traces()) == 2  # a record and a folder
            process_of = psutil.Process(server.pid)
            assert os.getsid(server.pid) != os.getsid(0)  # the terminal's Ctrl-C is not for it
            # of TCP: RabbitMQ may keep a datagram socket open, through which it could tell a syslog
            sockets = process_of.net_connections("tcp")
            listening = {each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN}
            assert listening
            assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"}
        assert grounds.traces() == []
        assert not psutil.pid_exists(server.pid)
        assert not brokers.is_alive(server)

    def test_two_at_once_have_different_ports_and_folders(self, place, grounds):
        with self.acquire() as one, self.acquire() as other:
            assert one.url != other.url
            assert one.folder != other.folder
            assert brokers.is_alive(one)
            assert brokers.is_alive(other)
        assert grounds.traces() == []

    def test_a_server_that_is_killed_is_noticed_and_its_last_words_are_quoted(self, place, grounds):
        with self.acquire() as server:
            assert server.log is not None
            with server.log.open("a") as log:
                log.write("[ERR] the disk is on fire\n")
            os.kill(server.pid, signal.SIGKILL)
            assert process.wait_until(lambda: not brokers.is_alive(server), timeout_s=PATIENCE_S)
            with pytest.raises(GraderError, match="has died") as raised:
                brokers.require_alive(server)
            assert "the disk is on fire" in raised.value.sentence
            assert raised.value.exit_code == 3
        assert grounds.traces() == []

    def test_the_next_start_cleans_up_after_an_owner_killed_with_kill_9(self, place, grounds):
        with grader(grounds, self.engine, self.provider, "untied") as (owner, said):
            owner.kill()
            owner.wait()
        assert process.is_running(said["pid"], said["started"])
        with self.acquire() as server:
            assert not process.is_running(said["pid"], said["started"])
            assert not os.path.exists(said["folder"])  # noqa: PTH110 - a string from elsewhere
            assert [record.pid for record in records.all_records()] == [server.pid]
            assert any("left behind" in notice for notice in server.notices)
        assert grounds.traces() == []

    def test_an_owner_interrupted_by_ctrl_c_stops_it(self, place, grounds):
        with grader(grounds, self.engine, self.provider, "untied") as (owner, said):
            owner.send_signal(signal.SIGINT)
            owner.wait(PATIENCE_S)
        assert not process.is_running(said["pid"], said["started"])
        assert grounds.traces() == []

    async def test_a_start_that_is_cancelled_leaves_nothing(self, place, grounds):
        async def hold():
            async with self.acquire():
                await asyncio.Event().wait()

        task = asyncio.create_task(hold())
        under_way = partial(process.wait_until, lambda: bool(grounds.traces()))
        assert await asyncio.to_thread(under_way, timeout_s=PATIENCE_S, every_s=0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert grounds.traces() == []

    def test_it_can_be_kept_warm_and_taken_down(self, place, grounds):
        [kept] = brokers.up([self.engine], self.provider)
        assert brokers.up([self.engine]) == [kept]
        [standing] = brokers.status().servers
        assert standing.healthy
        assert standing.provider == self.provider
        assert standing.memory_bytes > 1_000_000
        with brokers.acquire(self.engine) as server:
            assert server == replace(kept, provider="warm")
        assert brokers.down() == [self.engine]
        assert not psutil.pid_exists(kept.pid)
        assert grounds.traces() == []
