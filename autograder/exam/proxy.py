"""The fault proxy between a subject and its broker: cut, stall and slow down real connections.

TCP goes through untouched, with one exception: a Kafka client follows the addresses that brokers
advertise. So in answers to Metadata and FindCoordinator requests the broker's address is replaced
by the proxy's (https://kafka.apache.org/protocol, "Messages"): a client cannot walk around it,
and any broker will do, started by us or not.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlsplit

from autograder.messaging.adapter import Lane

_HIGH_WATER = 1 << 16
_METADATA, _FIND_COORDINATOR = 3, 10
_HOST = "127.0.0.1"


class FaultProxy:
    """Relays connections to `upstream`. Faults hit connections that are open and those to come."""

    def __init__(self, upstream: tuple[str, int], *, kafka: bool = False) -> None:
        self._upstream = upstream
        self._kafka = kafka
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._latency_s = 0.0
        self.port = 0

    async def start(self) -> None:
        """Listen on a free loopback port, kept in `port`."""
        self._server = await asyncio.start_server(self._accept, _HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Drop every connection and stop listening."""
        if self._server is not None:
            self._server.close()
        self.cut()
        self.heal()  # what waits to be let through finds its connection gone
        links = [link.done for link in self._links]
        if links:
            await asyncio.wait(links, timeout=5)

    def cut(self) -> None:
        """Reset every open connection (RST); new ones are accepted."""
        for link in list(self._links):
            link.reset()

    def stall(self) -> None:
        """Let no byte through in either direction; connections stay open: silence, not an error."""
        self._flowing.clear()

    def slow(self, latency_s: float) -> None:
        """Hold every chunk for this long, in each direction."""
        self._latency_s = latency_s

    def heal(self) -> None:
        """End stall and slowness."""
        self._latency_s = 0.0
        self._flowing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            _reset(writer)
            return
        link = _Link(writer, up_writer)
        self._links.add(link)
        rewrite = KafkaRewrite(_HOST, self.port) if self._kafka else None
        pumps = (
            self._pump(reader, up_writer, rewrite.request if rewrite else None),
            self._pump(up_reader, writer, rewrite.response if rewrite else None),
        )
        try:
            await asyncio.gather(*pumps)
        except OSError:
            link.reset()
        finally:
            link.close()
            self._links.discard(link)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        rewrite: Callable[[bytes], bytes] | None,
    ) -> None:
        while data := await reader.read(_HIGH_WATER):
            await self._flowing.wait()
            if self._latency_s:
                await asyncio.sleep(self._latency_s)
            if rewrite is not None:
                data = rewrite(data)
            writer.write(data)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()


class _Link:
    """The two ends of one relayed connection."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self._writers = writers
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def reset(self) -> None:
        for writer in self._writers:
            _reset(writer)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        if not self.done.done():
            self.done.set_result(None)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN: SO_LINGER with a time of 0, see socket(7)."""
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class KafkaRewrite:
    """Replaces broker addresses in one connection's answers, frame by frame.

    A frame is a 32-bit length and a payload. A request begins with its API key (16 bits), version
    (16) and correlation id (32); an answer begins with the correlation id of its request.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host.encode(), port
        self._requests = bytearray()
        self._responses = bytearray()
        self._versions: dict[int, tuple[int, int]] = {}  # correlation id -> API key, version

    def request(self, data: bytes) -> bytes:
        """Note what is asked; requests pass unchanged."""
        self._requests += data
        while len(self._requests) >= 4:
            (size,) = struct.unpack_from(">i", self._requests)
            if len(self._requests) < 4 + size:
                break
            key, version, correlation = struct.unpack_from(">hhi", self._requests, 4)
            if key in {_METADATA, _FIND_COORDINATOR}:
                self._versions[correlation] = key, version
            del self._requests[: 4 + size]
        return data

    def response(self, data: bytes) -> bytes:
        """Complete frames of the answer so far, addresses replaced."""
        self._responses += data
        out = bytearray()
        while len(self._responses) >= 4:
            (size,) = struct.unpack_from(">i", self._responses)
            if len(self._responses) < 4 + size:
                break
            frame = bytes(self._responses[4 : 4 + size])
            del self._responses[: 4 + size]
            (correlation,) = struct.unpack_from(">i", frame)
            asked = self._versions.pop(correlation, None)
            if asked is not None:
                frame = self._replaced(frame, *asked)
            out += struct.pack(">i", len(frame)) + frame
        return bytes(out)

    def _replaced(self, frame: bytes, key: int, version: int) -> bytes:
        """The frame with each `host, port` of ours. Layouts are those of the protocol guide."""
        flexible = version >= (9 if key == _METADATA else 3)
        cursor = _Cursor(frame, flexible=flexible)
        cursor.skip(4)  # correlation id
        cursor.skip_tags()
        if key == _METADATA:
            if version >= 3:
                cursor.skip(4)  # throttle time
            for _ in range(cursor.array_length()):
                cursor.skip(4)  # node id
                cursor.replace_address(self._host, self._port)
                if version >= 1:
                    cursor.skip_string()  # rack
                cursor.skip_tags()
        else:
            self._replace_coordinator(cursor, version)
        return cursor.finished()

    def _replace_coordinator(self, cursor: _Cursor, version: int) -> None:
        if version >= 1:
            cursor.skip(4)  # throttle time
        count = 1
        if version >= 4:  # several coordinators, each with its key first
            count = cursor.array_length()
        for _ in range(count):
            if version >= 4:
                cursor.skip_string()  # key
                cursor.skip(4)  # node id
                cursor.replace_address(self._host, self._port)
                cursor.skip(2)  # error code
                cursor.skip_string()  # error message
                cursor.skip_tags()
            else:
                cursor.skip(2)  # error code
                if version >= 1:
                    cursor.skip_string()  # error message
                cursor.skip(4)  # node id
                cursor.replace_address(self._host, self._port)


class _Cursor:
    """Walks over a Kafka answer and copies it, with some fields replaced."""

    def __init__(self, frame: bytes, *, flexible: bool) -> None:
        self._frame, self._at, self._flexible = frame, 0, flexible
        self._out = bytearray()
        self._copied = 0

    def skip(self, count: int) -> None:
        self._at += count

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._frame[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def array_length(self) -> int:
        if self._flexible:
            return self._varint() - 1
        (length,) = struct.unpack_from(">i", self._frame, self._at)
        self._at += 4
        return int(length)

    def skip_string(self) -> None:
        if self._flexible:
            length = self._varint() - 1
        else:
            (length,) = struct.unpack_from(">h", self._frame, self._at)
            self._at += 2
        self._at += max(length, 0)

    def skip_tags(self) -> None:
        if self._flexible:
            for _ in range(self._varint()):
                self._varint()
                self._at += self._varint()

    def replace_address(self, host: bytes, port: int) -> None:
        """Put `host` and `port` where the cursor stands; an empty host (no broker) stays."""
        self._out += self._frame[self._copied : self._at]
        start = self._at
        self.skip_string()
        old_host = self._frame[start : self._at]
        (old_port,) = struct.unpack_from(">i", self._frame, self._at)
        self._at += 4
        if old_port < 0:
            self._out += old_host + struct.pack(">i", old_port)
        else:
            prefix = bytes([len(host) + 1]) if self._flexible else struct.pack(">h", len(host))
            self._out += prefix + host + struct.pack(">i", port)
        self._copied = self._at

    def finished(self) -> bytes:
        return bytes(self._out + self._frame[self._copied :])


def seen_through(lane: Lane, proxy: FaultProxy | None) -> Lane:
    """The lane as the subject sees it: through the proxy, if there is one."""
    if proxy is None:
        return lane
    first = lane.url.split(",", maxsplit=1)[0]
    url = f"127.0.0.1:{proxy.port}"
    if "://" in first:  # who logs in, and where to, stays
        parts = urlsplit(first)
        login, at, _ = parts.netloc.rpartition("@")
        url = parts._replace(netloc=f"{login}{at}{url}").geturl()
    return replace(lane, url=url)
