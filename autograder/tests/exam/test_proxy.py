"""The fault proxy relays bytes, breaks connections on purpose, and keeps Kafka clients on it."""

from __future__ import annotations

import asyncio
import struct

import pytest

from autograder.exam.proxy import FaultProxy, KafkaRewrite


@pytest.fixture
async def echo():
    async def answer(reader, writer):
        while data := await reader.read(1024):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()
    server.close()


@pytest.fixture
async def proxy(echo):
    proxy = FaultProxy(echo)
    await proxy.start()
    yield proxy
    await proxy.close()


async def talk(proxy: FaultProxy):
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def test_bytes_pass_both_ways(proxy):
    reader, writer = await talk(proxy)
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()


async def test_cut_resets_what_is_open_and_lets_new_ones_in(proxy):
    reader, writer = await talk(proxy)
    writer.write(b"x")
    await reader.readexactly(1)
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        await reader.readexactly(1)
    writer.close()
    reader, writer = await talk(proxy)
    writer.write(b"again")
    assert await reader.readexactly(5) == b"again"
    writer.close()


async def test_stall_is_silence_until_healed(proxy):
    reader, writer = await talk(proxy)
    proxy.stall()
    writer.write(b"x")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.readexactly(1), 0.2)
    proxy.heal()
    assert await asyncio.wait_for(reader.readexactly(1), 5) == b"x"
    writer.close()


async def test_slow_takes_longer(proxy):
    reader, writer = await talk(proxy)
    proxy.slow(0.05)
    began = asyncio.get_running_loop().time()
    writer.write(b"x")
    await reader.readexactly(1)
    assert asyncio.get_running_loop().time() - began >= 0.1
    writer.close()


async def test_a_broker_that_is_gone_resets_the_caller(proxy, unused_port):
    away = FaultProxy(("127.0.0.1", unused_port))
    await away.start()
    reader, writer = await talk(away)
    with pytest.raises(ConnectionResetError):
        await reader.readexactly(1)
    writer.close()
    await away.close()


@pytest.fixture
async def unused_port():
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(key: int, version: int, correlation: int) -> bytes:
    return frame(struct.pack(">hhi", key, version, correlation) + b"\x00\x01c")


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def compact(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


def metadata_v5(host: str, port: int) -> bytes:
    broker = struct.pack(">i", 1) + text(host) + struct.pack(">i", port) + text("rack")
    return struct.pack(">iii", 7, 0, 1) + broker + b"the rest"


def metadata_v9(host: str, port: int) -> bytes:
    broker = struct.pack(">i", 1) + compact(host) + struct.pack(">i", port) + b"\x00\x00"
    return struct.pack(">i", 7) + b"\x00" + struct.pack(">i", 0) + b"\x02" + broker + b"the rest"


def coordinator_v1(host: str, port: int) -> bytes:
    return (
        struct.pack(">iih", 7, 0, 0)
        + text("")
        + struct.pack(">i", 1)
        + text(host)
        + struct.pack(">i", port)
    )


@pytest.mark.parametrize(
    ("key", "version", "layout"),
    [(3, 5, metadata_v5), (3, 9, metadata_v9), (10, 1, coordinator_v1)],
)
def test_kafka_addresses_are_replaced(key, version, layout):
    rewrite = KafkaRewrite("127.0.0.1", 4711)
    rewrite.request(request(key, version, 7))
    answer = rewrite.response(frame(layout("broker.example.org", 9092)))
    assert answer == frame(layout("127.0.0.1", 4711))


def test_frames_arrive_in_pieces_and_other_answers_pass():
    rewrite = KafkaRewrite("127.0.0.1", 4711)
    asked = request(3, 5, 7) + request(1, 11, 8)
    for byte in asked:
        rewrite.request(bytes([byte]))
    fetch = frame(struct.pack(">i", 8) + b"records of broker.example.org")
    whole = frame(metadata_v5("broker.example.org", 9092)) + fetch
    out = b"".join(rewrite.response(bytes([byte])) for byte in whole)
    assert out == frame(metadata_v5("127.0.0.1", 4711)) + fetch


def test_no_coordinator_keeps_its_empty_address():
    rewrite = KafkaRewrite("127.0.0.1", 4711)
    rewrite.request(request(10, 1, 7))
    nobody = frame(coordinator_v1("", -1))
    assert rewrite.response(nobody) == nobody


async def test_closing_lets_nobody_wait_who_was_stalled(proxy):
    _, writer = await talk(proxy)
    proxy.stall()
    writer.write(b"x")
    await asyncio.sleep(0.1)
    await asyncio.wait_for(proxy.close(), 3)  # less than it is given: nothing was waited for
    assert [task for task in asyncio.all_tasks() if "_pump" in repr(task)] == []
    writer.close()
