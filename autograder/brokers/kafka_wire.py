"""The few requests of the Kafka protocol that prove a broker ready.

Protocol: https://kafka.apache.org/protocol. Written by hand because importing a client costs a
quarter of a second. Versions of requests are the last ones before the compact encoding, which every
broker from 3.9 to 4.x still speaks (KIP-896), except ApiVersions 3, which carries feature levels.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from autograder.brokers.server import NotReadyError, address

T = TypeVar("T")

_METADATA, _FIND_COORDINATOR, _API_VERSIONS = 3, 10, 18
_CLIENT = b"ackademy"
_MAX_RESPONSE_BYTES = 8 * 1024 * 1024

# metadata.version feature level -> the first release that has it
# (org.apache.kafka.server.common.MetadataVersion)
_RELEASES = ((7, "3.3"), (8, "3.4"), (9, "3.5"), (12, "3.6"), (15, "3.7"), (20, "3.8"), (21, "3.9"),
             (22, "4.0"), (26, "4.1"), (28, "4.2"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """What a broker says of itself. `release` is empty when it has no feature level (ZooKeeper)."""

    release: str
    cluster_id: str
    advertised: tuple[tuple[str, int], ...]


def probe(url: str, *, timeout_s: float = 5.0) -> Answer:
    """Ask a broker for its versions and its cluster; returns what it says.

    `url` is a list of `host:port`, separated by commas: the first that answers counts.

    Raises
    ------
    NotReadyError
        Nobody answers, the answer is not Kafka's, or the cluster has no broker in service yet.
    """
    return _first(url, timeout_s, _describe)


def probe_coordinator(url: str, *, timeout_s: float = 5.0) -> Answer:
    """Like `probe`, and the group coordinator must be in service too.

    The first such question makes the broker create its offsets topic, so that the first consumer
    group does not wait for it.
    """
    return _first(url, timeout_s, _describe_with_coordinator)


def unreachable(answer: Answer, *, timeout_s: float = 2.0) -> str:
    """Which advertised broker cannot be reached from here, as a sentence; empty when all can."""
    for host, port in answer.advertised:
        try:
            socket.create_connection((host, port), timeout=timeout_s).close()
        except OSError as error:
            return f"it advertises itself as {host}:{port}, which cannot be reached ({error})"
    return ""


def _first(url: str, timeout_s: float, ask: Callable[[socket.socket], T]) -> T:
    reasons = []
    for each in url.split(","):
        host, port = address(each, 9092)
        try:
            with socket.create_connection((host, port), timeout=timeout_s) as connection:
                connection.settimeout(timeout_s)
                return ask(connection)
        except NotReadyError as error:
            reasons.append(f"{host}:{port}: {error}")
        except (OSError, struct.error, IndexError, UnicodeDecodeError) as error:
            reasons.append(f"{host}:{port}: {error or type(error).__name__}")
    raise NotReadyError("; ".join(reasons))


def _describe(connection: socket.socket) -> Answer:
    release = _ask_versions(connection)
    advertised, cluster_id = _ask_metadata(connection)
    if not advertised:
        raise NotReadyError("the cluster has no broker in service")
    return Answer(release, cluster_id, advertised)


def _describe_with_coordinator(connection: socket.socket) -> Answer:
    answer = _describe(connection)
    _ask_coordinator(connection)
    return answer


class _Reader:
    """Reads the protocol's primitive types from one response."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, code: str) -> int:
        value: int
        (value,) = struct.unpack_from(f">{code}", self._data, self._at)
        self._at += struct.calcsize(code)
        return value

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def take(self, length: int) -> bytes:
        taken = self._data[self._at : self._at + max(length, 0)]
        self._at += max(length, 0)
        return taken

    def string(self) -> str:
        return self.take(self.number("h")).decode()

    def compact_string(self) -> str:
        return self.take(self.varint() - 1).decode()

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def _ask_versions(connection: socket.socket) -> str:
    software = b"".join(bytes([len(text) + 1]) + text for text in (_CLIENT, b"1"))
    answer = _request(connection, _API_VERSIONS, 3, b"\0" + software + b"\0")
    if error := answer.number("h"):
        raise NotReadyError(f"ApiVersions answered with error {error}")
    for _ in range(answer.varint() - 1):
        answer.take(6)  # api key, lowest and highest version
        answer.skip_tags()
    answer.number("i")  # throttle time
    for _ in range(answer.varint()):
        tag, size = answer.varint(), answer.varint()
        field = _Reader(answer.take(size))
        if tag == 2:  # finalized features
            return _release(field)
    return ""


def _release(features: _Reader) -> str:
    for _ in range(features.varint() - 1):
        name, level, _lowest = features.compact_string(), features.number("h"), features.number("h")
        features.skip_tags()
        if name == "metadata.version":
            return next((text for first, text in reversed(_RELEASES) if level >= first), "")
    return ""


def _ask_metadata(connection: socket.socket) -> tuple[tuple[tuple[str, int], ...], str]:
    no_topics, no_auto_creation = struct.pack(">i", 0), b"\0"
    answer = _request(connection, _METADATA, 4, no_topics + no_auto_creation)
    answer.number("i")  # throttle time
    brokers = []
    for _ in range(answer.number("i")):
        answer.number("i")  # node id
        brokers.append((answer.string(), answer.number("i")))
        answer.string()  # rack
    return tuple(brokers), answer.string()


def _ask_coordinator(connection: socket.socket) -> None:
    group = struct.pack(">h", len(_CLIENT)) + _CLIENT + b"\0"  # key type 0: a consumer group
    answer = _request(connection, _FIND_COORDINATOR, 2, group)
    answer.number("i")  # throttle time
    if error := answer.number("h"):  # 15 COORDINATOR_NOT_AVAILABLE while the topic is being made
        raise NotReadyError(f"the group coordinator is not in service (error {error})")


def _request(connection: socket.socket, key: int, version: int, body: bytes) -> _Reader:
    head = struct.pack(">hhih", key, version, 1, len(_CLIENT)) + _CLIENT
    connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
    (length,) = struct.unpack(">i", _receive(connection, 4))
    if not 4 <= length <= _MAX_RESPONSE_BYTES:
        raise NotReadyError("answers, but not as a Kafka broker")
    answer = _Reader(_receive(connection, length))
    if answer.number("i") != 1:
        raise NotReadyError("answers, but not as a Kafka broker")
    return answer


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise NotReadyError("closed the connection without an answer")
        data += chunk
    return data
