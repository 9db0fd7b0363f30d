"""The few messages of PostgreSQL's protocol that prove a server ready.

Protocol: https://www.postgresql.org/docs/current/protocol-flow.html and, for the login,
https://www.postgresql.org/docs/current/sasl-authentication.html (SCRAM, RFC 5802). Written by hand
because importing a client costs more than the whole conversation.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from autograder.brokers.server import NotReadyError

DEFAULT_PORT = 5432

_PROTOCOL, _WANT_TLS = 196608, 80877103  # 3.0, and the code that asks for TLS
_LOGGED_IN, _CLEARTEXT, _MD5, _SASL, _SASL_CONTINUE, _SASL_FINAL = 0, 3, 5, 10, 11, 12
_MAX_MESSAGE_BYTES = 1 << 20
_TLS_WANTED = frozenset({"require", "verify-ca", "verify-full"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a PostgreSQL URL leads to, and as whom."""

    host: str
    port: int
    user: str
    password: str
    database: str
    tls: bool

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def place(url: str) -> Place:
    """The parts of `postgresql://user:password@host:port/database?sslmode=require`.

    What is missing is as libpq has it: https://www.postgresql.org/docs/current/libpq-connect.html.
    Raises `ValueError` for what is no URL.
    """
    parts = urlsplit(url if "://" in url else f"postgresql://{url}")
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ValueError(f"not an address of PostgreSQL: {parts.scheme}://")
    user = unquote(parts.username) if parts.username else "postgres"
    options = dict(pair.partition("=")[::2] for pair in parts.query.split("&"))
    return Place(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or DEFAULT_PORT,
        user=user,
        password=unquote(parts.password or ""),
        database=unquote(parts.path[1:]) or user,
        tls=options.get("sslmode", "") in _TLS_WANTED,
    )


def probe(url: str, *, timeout_s: float = 5.0) -> str:
    """Log in and ask for 1; returns the server's version.

    Raises
    ------
    NotReadyError
        Nobody answers, the answer is not PostgreSQL's, the login is refused, or the server is still
        starting.
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
                connection = open_sockets.enter_context(_encrypted(connection, at))
            stream = open_sockets.enter_context(connection.makefile("rwb"))
            return _Conversation(stream, at).hold()
    except (OSError, ValueError, struct.error, IndexError, KeyError) as error:
        raise NotReadyError(f"{at}: {error or type(error).__name__}") from error


def _encrypted(connection: socket.socket, at: Place) -> ssl.SSLSocket:
    connection.sendall(struct.pack(">ii", 8, _WANT_TLS))
    if connection.recv(1) != b"S":
        raise NotReadyError(f"{at} does not speak TLS")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing secret is sent
    return context.wrap_socket(connection, server_hostname=at.host)


class _Conversation:
    """One login and one question."""

    def __init__(self, stream: Any, at: Place) -> None:
        self._stream = stream
        self._at = at
        self._version = ""

    def hold(self) -> str:
        self._start()
        self._log_in()
        self._wait_for(b"Z")
        self._send(b"Q", b"SELECT 1\0")
        if self._wait_for(b"D")[6:] != b"1":  # one column, of one byte
            raise NotReadyError(f"{self._at} does not answer SELECT 1 with 1")
        self._wait_for(b"Z")
        self._send(b"X", b"")
        return self._version.partition(" ")[0] or "unknown"

    def _start(self) -> None:
        words = ("user", self._at.user, "database", self._at.database)
        body = struct.pack(">i", _PROTOCOL) + b"".join(f"{word}\0".encode() for word in words)
        body += b"application_name\0ackademy\0\0"
        self._stream.write(struct.pack(">i", len(body) + 4) + body)
        self._stream.flush()

    def _log_in(self) -> None:
        while True:
            body = self._wait_for(b"R")
            kind = struct.unpack(">i", body[:4])[0]
            if kind == _LOGGED_IN:
                return
            if kind == _CLEARTEXT:
                self._send(b"p", self._at.password.encode() + b"\0")
            elif kind == _MD5:
                self._send(b"p", _md5(self._at, body[4:8]))
            elif kind == _SASL:
                self._scram(body[4:])
            else:
                raise NotReadyError(f"{self._at} wants a login of kind {kind}, which we cannot")

    def _scram(self, mechanisms: bytes) -> None:
        """SCRAM-SHA-256 without channel binding, RFC 5802 section 3."""
        if b"SCRAM-SHA-256" not in mechanisms.split(b"\0"):
            raise NotReadyError(f"{self._at} wants a login of a kind that we cannot")
        nonce = secrets.token_urlsafe(18)
        bare = f"n=,r={nonce}"  # the user's name was in the first message already
        first = f"n,,{bare}".encode()
        self._send(b"p", b"SCRAM-SHA-256\0" + struct.pack(">i", len(first)) + first)
        challenge = self._wait_for(b"R")
        if struct.unpack(">i", challenge[:4])[0] != _SASL_CONTINUE:
            raise NotReadyError(f"{self._at} breaks off the login")
        told = challenge[4:].decode()
        parts = dict(part.split("=", 1) for part in told.split(","))
        final = f"c=biws,r={parts['r']}"
        key = hashlib.pbkdf2_hmac(
            "sha256", self._at.password.encode(), base64.b64decode(parts["s"]), int(parts["i"])
        )
        client = hmac.digest(key, b"Client Key", "sha256")
        signature = hmac.digest(
            hashlib.sha256(client).digest(), f"{bare},{told},{final}".encode(), "sha256"
        )
        proof = bytes(one ^ other for one, other in zip(client, signature, strict=True))
        self._send(b"p", f"{final},p={base64.b64encode(proof).decode()}".encode())
        if struct.unpack(">i", self._wait_for(b"R")[:4])[0] != _SASL_FINAL:
            raise NotReadyError(f"{self._at} breaks off the login")

    def _send(self, kind: bytes, body: bytes) -> None:
        self._stream.write(kind + struct.pack(">i", len(body) + 4) + body)
        self._stream.flush()

    def _wait_for(self, wanted: bytes) -> bytes:
        """The body of the next message of this kind; what comes before it is passed over."""
        while True:
            head = self._stream.read(5)
            if not head:
                raise NotReadyError(f"{self._at} closed the connection without an answer")
            length = struct.unpack(">i", head[1:])[0] - 4 if len(head) == 5 else -1
            if not 0 <= length <= _MAX_MESSAGE_BYTES or not head[:1].isalpha():
                raise NotReadyError(f"{self._at} answers, but not as a PostgreSQL server")
            body: bytes = self._stream.read(length)
            if head[:1] == b"E":
                raise NotReadyError(f"the PostgreSQL server says: {_complaint(body)}")
            if head[:1] == b"S" and body.startswith(b"server_version\0"):
                self._version = body.split(b"\0")[1].decode("utf-8", "replace")
            if head[:1] == wanted:
                return body


def _md5(at: Place, salt: bytes) -> bytes:
    inner = hashlib.md5((at.password + at.user).encode(), usedforsecurity=False).hexdigest()
    outer = hashlib.md5(inner.encode() + salt, usedforsecurity=False).hexdigest()
    return b"md5" + outer.encode() + b"\0"


def _complaint(body: bytes) -> str:
    """The sentence of an ErrorResponse: its field M."""
    for field in body.split(b"\0"):
        if field[:1] == b"M":
            return field[1:].decode("utf-8", "replace")
    return "an error"
