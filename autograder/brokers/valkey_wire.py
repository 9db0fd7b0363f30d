"""The few commands of the Redis protocol that prove a Valkey or Redis server ready.

Protocol: https://valkey.io/topics/protocol/ (RESP2, which every version of both speaks). Written by
hand because importing a client costs more than starting the server.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from autograder.brokers.server import NotReadyError

DEFAULT_PORT = 6379

_OLDEST = (6, 0)  # the first with users of their own, https://valkey.io/topics/acl/
_MAX_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """Where a Redis URL leads to, and as whom. Without a user, the password is the default user's."""

    host: str
    port: int
    tls: bool
    user: str
    password: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def place(url: str) -> Place:
    """The parts of `redis://user:password@host:port`; `rediss` means TLS. Raises `ValueError`."""
    parts = urlsplit(url if "://" in url else f"redis://{url}")
    if parts.scheme not in {"redis", "rediss", "valkey", "valkeys"}:
        raise ValueError(f"not an address of Redis or Valkey: {parts.scheme}://")
    if parts.path.strip("/") not in {"", "0"}:
        raise ValueError("it names a numbered database, and only 0 is used here")
    return Place(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or DEFAULT_PORT,
        tls=parts.scheme in {"rediss", "valkeys"},
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def probe(url: str, *, timeout_s: float = 5.0) -> str:
    """Log in, PING, and ask for the version, which is returned.

    Raises
    ------
    NotReadyError
        Nobody answers, the answer is not Redis's, the login is refused, or the server is too old.
    """
    try:
        at = place(url)
    except ValueError as error:
        raise NotReadyError(f"{url.rpartition('@')[2]} is no address: {error}") from error
    try:
        with contextlib.ExitStack() as open_sockets:
            connection = socket.create_connection((at.host, at.port), timeout=timeout_s)
            open_sockets.enter_context(connection)
            if at.tls:
                connection = ssl.create_default_context().wrap_socket(
                    connection, server_hostname=at.host
                )
                open_sockets.enter_context(connection)
            stream = open_sockets.enter_context(connection.makefile("rwb"))
            return _ask(stream, at)
    except (OSError, ValueError, IndexError) as error:
        raise NotReadyError(f"{at}: {error or type(error).__name__}") from error


def _ask(stream: Any, at: Place) -> str:
    if at.password:
        _call(stream, at, "AUTH", *([at.user] if at.user else []), at.password)
    if _call(stream, at, "PING") != "PONG":
        raise NotReadyError(f"{at} answers, but not as a Redis or Valkey server")
    told = str(_call(stream, at, "INFO", "server"))
    # Valkey says for old clients' sake which Redis it is like, and then its own version
    said = dict(line.partition(":")[::2] for line in told.split())
    version = said.get("valkey_version") or said.get("redis_version") or "unknown"
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < _OLDEST:
        raise NotReadyError(f"{at} is version {version}, and 6.0 is the first with users")
    return version


def _call(stream: Any, at: Place, *words: str) -> Any:
    encoded = [word.encode() for word in words]
    parts = [b"*%d\r\n" % len(encoded), *(b"$%d\r\n%b\r\n" % (len(it), it) for it in encoded)]
    stream.write(b"".join(parts))
    stream.flush()
    line = stream.readline(_MAX_ANSWER_BYTES)
    if not line:
        raise NotReadyError(f"{at} closed the connection without an answer")
    kind, rest = line[:1], line[1:].strip().decode("utf-8", "replace")
    if kind == b"+":
        return rest
    if kind == b"-":
        raise NotReadyError(f"the server says: {rest}")
    if kind == b"$" and 0 <= int(rest) <= _MAX_ANSWER_BYTES:
        return stream.read(int(rest) + 2)[:-2].decode("utf-8", "replace")
    raise NotReadyError(f"{at} answers, but not as a Redis or Valkey server")
