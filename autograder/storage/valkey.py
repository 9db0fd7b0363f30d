"""Valkey or Redis behind the port `Lease`: one connection, one command at a time.

Protocol: https://valkey.io/topics/protocol/ (RESP2). What has to be one step and is no single
command is a script, which the server runs without anything in between:
https://valkey.io/commands/eval/, and for the pattern https://valkey.io/topics/distributed-locks/.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from autograder.storage import StoreGone

ANSWER_TIMEOUT_S = 10.0

_DELETE_IF_EQUALS = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
_EXPIRE_IF_EQUALS = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) "
    "else return 0 end"
)


class Refused(RuntimeError):  # noqa: N818 - the server's answer
    """The server refused a command. The text is its own."""


class Connection:
    """One connection, made when it is first needed and again after it broke."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 6379
        self._tls = parts.scheme in {"rediss", "valkeys"}
        login = (unquote(parts.username or ""), unquote(parts.password or ""))
        self._login = [word for word in login if word]
        self._turn = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, *words: str) -> Any:
        """One command and its answer. Raises `StoreGone`, `Refused`.

        A caller that is cancelled in between takes the connection along: the answer would be
        somebody else's.
        """
        async with self._turn:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    if self._streams is None:
                        await self._connect()
                    return await self._ask(words)
            except (OSError, EOFError, TimeoutError, ValueError) as error:
                self.close()
                raise StoreGone(str(error) or type(error).__name__) from error
            except asyncio.CancelledError:
                self.close()
                raise

    async def _connect(self) -> None:
        self._streams = await asyncio.open_connection(self._host, self._port, ssl=self._tls or None)
        if self._login:
            await self._ask(("AUTH", *self._login))

    async def _ask(self, words: tuple[str, ...]) -> Any:
        assert self._streams is not None  # noqa: S101 - for mypy: the caller has connected
        reader, writer = self._streams
        encoded = [word.encode("utf-8", "surrogatepass") for word in words]
        parts = [b"*%d\r\n" % len(encoded), *(b"$%d\r\n%b\r\n" % (len(it), it) for it in encoded)]
        writer.write(b"".join(parts))
        await writer.drain()
        return await _answer(reader)

    def close(self) -> None:
        """Hang up. The next call connects anew."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _answer(reader: asyncio.StreamReader) -> Any:
    line = await reader.readuntil(b"\r\n")
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return rest.decode()
    if kind == b":":
        return int(rest)
    if kind == b"-":
        raise Refused(rest.decode("utf-8", "replace"))
    if kind == b"$":
        if int(rest) < 0:
            return None
        return (await reader.readexactly(int(rest) + 2))[:-2].decode("utf-8", "surrogatepass")
    raise ValueError(f"an answer of an unknown kind: {line[:20]!r}")


class ValkeyLease:
    """The port over one connection. Every key gets `prefix` in front, which callers never see."""

    def __init__(self, connection: Connection, prefix: str = "") -> None:
        self._connection = connection
        self._prefix = prefix

    async def set_if_absent(self, key: str, value: str, *, ttl_s: float | None) -> bool:
        """`SET key value NX PX milliseconds`."""
        words = ["SET", self._prefix + key, value, "NX", *_life(ttl_s)]
        return await self._connection.call(*words) is not None

    async def delete_if_equals(self, key: str, value: str) -> bool:
        """Compare and delete, in a script."""
        return await self._script(_DELETE_IF_EQUALS, key, value)

    async def expire_if_equals(self, key: str, value: str, *, ttl_s: float) -> bool:
        """Compare and expire, in a script."""
        return await self._script(_EXPIRE_IF_EQUALS, key, value, str(_milliseconds(ttl_s)))

    async def _script(self, script: str, key: str, *arguments: str) -> bool:
        answer = await self._connection.call("EVAL", script, "1", self._prefix + key, *arguments)
        return bool(answer)

    async def get(self, key: str) -> str | None:
        """`GET key`."""
        value: str | None = await self._connection.call("GET", self._prefix + key)
        return value

    async def set(self, key: str, value: str, *, ttl_s: float | None = None) -> None:
        """`SET key value`, with `PX milliseconds`."""
        await self._connection.call("SET", self._prefix + key, value, *_life(ttl_s))

    async def expire(self, key: str, *, ttl_s: float) -> bool:
        """`PEXPIRE key milliseconds`."""
        words = ("PEXPIRE", self._prefix + key, str(_milliseconds(ttl_s)))
        return bool(await self._connection.call(*words))

    async def delete(self, key: str) -> bool:
        """`DEL key`."""
        return bool(await self._connection.call("DEL", self._prefix + key))


def _life(ttl_s: float | None) -> list[str]:
    return [] if ttl_s is None else ["PX", str(_milliseconds(ttl_s))]


def _milliseconds(ttl_s: float) -> int:
    """At least one: a life span of none is an error of the server's, and of the caller's."""
    if ttl_s <= 0:
        raise ValueError(f"a life span is longer than {ttl_s} s")
    return max(1, round(ttl_s * 1000))


@asynccontextmanager
async def open_valkey(url: str, *, prefix: str = "") -> AsyncIterator[ValkeyLease]:
    """Leases at a `redis://` address. Raises `StoreGone` if there is nothing."""
    connection = Connection(url)
    try:
        await connection.call("PING")
        yield ValkeyLease(connection, prefix)
    finally:
        with suppress(OSError):
            connection.close()
