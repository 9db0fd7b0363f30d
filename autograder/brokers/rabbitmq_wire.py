"""The few methods of AMQP 0-9-1 that prove a RabbitMQ server ready.

Protocol: https://www.rabbitmq.com/resources/specs/amqp0-9-1.pdf and, for the capability,
https://www.rabbitmq.com/docs/auth-notification. Written by hand because importing a client costs
more than the whole conversation.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from autograder.brokers.server import NotReadyError

DEFAULT_PORT = 5672
DEFAULT_TLS_PORT = 5671

_HEADER = b"AMQP\x00\x00\x09\x01"
_METHOD, _HEARTBEAT, _END = 1, 8, b"\xce"
_MAX_FRAME_BYTES = 1 << 20

_START, _START_OK, _TUNE, _TUNE_OK = (10, 10), (10, 11), (10, 30), (10, 31)
_OPEN, _OPEN_OK, _CLOSE, _CLOSE_OK = (10, 40), (10, 41), (10, 50), (10, 51)
_CHANNEL_OPEN, _CHANNEL_OPEN_OK = (20, 10), (20, 11)

# a refused login is answered with a reason only to clients that say they understand one
_CAPABILITIES = (
    b"\x0ccapabilitiesF" + struct.pack(">I", 31) + b"\x1cauthentication_failure_closet\x01"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an AMQP URL leads to, and as whom."""

    host: str
    port: int
    tls: bool
    user: str
    password: str
    vhost: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def place(url: str) -> Place:
    """The parts of `amqp://user:password@host:port/vhost`, with RabbitMQ's defaults for what is missing.

    https://www.rabbitmq.com/docs/uri-spec, with one kindness: a bare `/` means the default vhost
    too, as in every example that people copy. Raises `ValueError` for what is no URL.
    """
    parts = urlsplit(url if "://" in url else f"amqp://{url}")
    tls = parts.scheme == "amqps"
    return Place(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or (DEFAULT_TLS_PORT if tls else DEFAULT_PORT),
        tls=tls,
        user=unquote(parts.username) if parts.username else "guest",
        password=unquote(parts.password) if parts.password is not None else "guest",
        vhost=unquote(parts.path[1:]) or "/",
    )


def probe(url: str, *, timeout_s: float = 5.0) -> str:
    """Log in, open a channel and leave in good order; returns the server's version.

    Raises
    ------
    NotReadyError
        Nobody answers, the answer is not RabbitMQ's, or the login or the vhost is refused.
    """
    try:
        at = place(url)
    except ValueError as error:
        raise NotReadyError(f"{url.rpartition('@')[2]} is no address: {error}") from error
    try:
        return _probe_one(at, timeout_s)
    except NotReadyError as error:
        raise NotReadyError(f"{at}: {error}") from error
    except (OSError, struct.error, IndexError) as error:
        raise NotReadyError(f"{at}: {error or type(error).__name__}") from error


def _probe_one(at: Place, timeout_s: float) -> str:
    with contextlib.ExitStack() as open_sockets:
        connection = socket.create_connection((at.host, at.port), timeout=timeout_s)
        open_sockets.enter_context(connection)
        connection.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )  # methods go out one by one
        if at.tls:
            context = ssl.create_default_context()
            connection = context.wrap_socket(connection, server_hostname=at.host)
            open_sockets.enter_context(connection)
        stream = open_sockets.enter_context(connection.makefile("rwb"))
        stream.write(_HEADER)
        stream.flush()
        version = _version(_expect(stream, _START))
        login = f"\0{at.user}\0{at.password}".encode()
        properties = struct.pack(">I", len(_CAPABILITIES)) + _CAPABILITIES
        answer = properties + _short(b"PLAIN") + _long(login) + _short(b"en_US")
        _say(stream, 0, _START_OK, answer)
        channels, frame_bytes, _ = struct.unpack(">HIH", _expect(stream, _TUNE))
        _say(stream, 0, _TUNE_OK, struct.pack(">HIH", channels, frame_bytes, 0))
        _say(stream, 0, _OPEN, _short(at.vhost.encode()) + b"\0\0")
        _expect(stream, _OPEN_OK)
        _say(stream, 1, _CHANNEL_OPEN, b"\0")
        _expect(stream, _CHANNEL_OPEN_OK)
        _say(stream, 0, _CLOSE, struct.pack(">H", 200) + _short(b"bye") + struct.pack(">HH", 0, 0))
        _expect(stream, _CLOSE_OK)
    return version


def _say(stream: Any, channel: int, method: tuple[int, int], arguments: bytes) -> None:
    payload = struct.pack(">HH", *method) + arguments
    stream.write(struct.pack(">BHI", _METHOD, channel, len(payload)) + payload + _END)
    stream.flush()


def _expect(stream: Any, method: tuple[int, int]) -> bytes:
    """The arguments of the next method, which has to be this one; heartbeats are passed over."""
    while True:
        kind, payload = _frame(stream)
        if kind == _HEARTBEAT:
            continue
        if kind != _METHOD:
            raise NotReadyError("answers, but not as a RabbitMQ server")
        found = struct.unpack_from(">HH", payload)
        if found == method:
            return payload[4:]
        if found == _CLOSE:
            code, length = struct.unpack_from(">HB", payload, 4)
            text = payload[7 : 7 + length].decode("utf-8", "replace")
            raise NotReadyError(f"the RabbitMQ server says: {text} ({code})")
        raise NotReadyError("answers, but not as a RabbitMQ server")


def _frame(stream: Any) -> tuple[int, bytes]:
    head: bytes = stream.read(7)
    if not head:
        raise NotReadyError("closed the connection without an answer")
    if head.startswith(b"AMQP"):  # what a server answers to a header it does not speak
        raise NotReadyError("speaks another version of AMQP than 0-9-1")
    if len(head) < 7:
        raise NotReadyError("answers, but not as a RabbitMQ server")
    kind, _, size = struct.unpack(">BHI", head)
    if kind not in {_METHOD, _HEARTBEAT} or size > _MAX_FRAME_BYTES:
        raise NotReadyError("answers, but not as a RabbitMQ server")
    rest: bytes = stream.read(size + 1)
    if rest[-1:] != _END or len(rest) != size + 1:
        raise NotReadyError("closed the connection in the middle of an answer")
    return kind, rest[:-1]


def _version(start: bytes) -> str:
    """What the server properties say; they are a table of names and tagged values.

    The field is looked up by its encoding, a length, a name and the tag of a long string: the
    table's other types need no knowing.
    """
    (size,) = struct.unpack_from(">I", start, 2)  # after the two bytes of the protocol's version
    properties = start[6 : 6 + size]
    at = properties.find(b"\x07versionS")
    if at < 0:
        raise NotReadyError("answers as an AMQP server that does not tell its version")
    (length,) = struct.unpack_from(">I", properties, at + 9)
    return properties[at + 13 : at + 13 + length].decode("utf-8", "replace")


def _short(text: bytes) -> bytes:
    if len(text) > 255:
        raise NotReadyError("the name of the vhost is longer than AMQP allows")
    return bytes([len(text)]) + text


def _long(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text
