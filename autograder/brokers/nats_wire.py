"""The few words of the NATS protocol that prove a server ready.

Protocol: https://docs.nats.io/reference/reference-protocols/nats-protocol and, for the JetStream
request, https://docs.nats.io/reference/reference-protocols/nats_api_reference. Written by hand
because importing a client costs more than starting the server.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import uuid
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from autograder.brokers.server import NotReadyError


def probe(url: str, *, timeout_s: float = 5.0) -> str:
    """Connect, PING, and ask JetStream about the account; returns the server's version.

    `url` may name several servers, separated by commas: the first that answers counts.

    Raises
    ------
    NotReadyError
        Nobody answers, the answer is not NATS, the login is refused, or JetStream is off.
    """
    reasons = []
    for each in url.split(","):
        try:
            return _probe_one(each.strip(), timeout_s)
        except NotReadyError as error:
            reasons.append(str(error))
        except (OSError, ValueError, IndexError, KeyError) as error:
            reasons.append(f"{_plain(each)}: {error or type(error).__name__}")
    raise NotReadyError("; ".join(reasons))


def _probe_one(url: str, timeout_s: float) -> str:
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    host, port = parts.hostname or "127.0.0.1", parts.port or 4222
    with contextlib.ExitStack() as open_sockets:
        connection = socket.create_connection((host, port), timeout=timeout_s)
        open_sockets.enter_context(connection)
        # the INFO line comes in the clear even when TLS follows, and nothing follows it unasked
        with connection.makefile("rb", buffering=0) as unbuffered:
            line = unbuffered.readline()
        if not line.startswith(b"INFO "):
            raise NotReadyError(f"{host}:{port} answers, but not as a NATS server")
        info: dict[str, Any] = json.loads(line[5:])
        if parts.scheme == "tls" or info.get("tls_required"):
            context = ssl.create_default_context()
            connection = context.wrap_socket(connection, server_hostname=host)
            open_sockets.enter_context(connection)
        with connection.makefile("rwb") as stream:
            _log_in(stream, parts.username, parts.password)
            _ask_jetstream(stream)
    return str(info["version"])


def _log_in(stream: Any, user: str | None, password: str | None) -> None:
    options: dict[str, Any] = {
        "verbose": False,
        "pedantic": False,
        "lang": "python",
        "version": "ackademy",
        "protocol": 1,
        "headers": True,
        "no_responders": True,
    }
    if user and password:
        options |= {"user": unquote(user), "pass": unquote(password)}
    elif user:
        options["auth_token"] = unquote(user)
    stream.write(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
    stream.flush()
    _read_until(stream, b"PONG")


def _ask_jetstream(stream: Any) -> None:
    inbox = f"_INBOX.{uuid.uuid4().hex}".encode()
    stream.write(b"SUB %b 1\r\nPUB $JS.API.INFO %b 0\r\n\r\n" % (inbox, inbox))
    stream.flush()
    head = _read_until(stream, b"MSG", b"HMSG").split()
    if head[0] == b"HMSG":  # a bodiless 503: no responders, so nobody serves JetStream
        raise NotReadyError("the NATS server runs without JetStream (start it with -js)")
    answer = json.loads(stream.read(int(head[-1])))
    if "error" in answer:
        raise NotReadyError(f"JetStream says: {answer['error'].get('description', 'error')}")


def _read_until(stream: BinaryIO, *verbs: bytes) -> bytes:
    """The next line that begins with one of `verbs`; PINGs on the way are answered."""
    while line := stream.readline():
        verb = line.split(None, 1)[0].upper() if line.strip() else b""
        if verb in verbs:
            return line
        if verb == b"PING":
            stream.write(b"PONG\r\n")
            stream.flush()
        elif verb == b"-ERR":
            text = line[4:].strip().decode("utf-8", "replace").strip("'")
            raise NotReadyError(f"the NATS server says: {text}")
    raise NotReadyError("the NATS server closed the connection")


def _plain(url: str) -> str:
    """A URL without its password, for a message."""
    return url.rpartition("@")[2]
