"""Probes of stores against peers that are not what they should be, and real ones that say no."""

from __future__ import annotations

import hashlib
import struct

import pytest

from autograder import brokers
from autograder.brokers import postgres_wire, process, valkey_wire
from autograder.brokers.server import NotReadyError
from autograder.tests.brokers.test_wire import peer


def message(kind: bytes, body: bytes) -> bytes:
    """One message of PostgreSQL's."""
    return kind + struct.pack(">i", len(body) + 4) + body


def complaint(text: bytes) -> bytes:
    return message(b"E", b"SFATAL\0C28P01\0M" + text + b"\0\0")


WELCOME = message(b"R", struct.pack(">i", 0)) + message(b"S", b"server_version\x0099.1 (Old)\0")
READY = message(b"Z", b"I")
ONE = message(b"D", struct.pack(">hi", 1, 1) + b"1") + message(b"C", b"SELECT 1\0") + READY


class TestPostgres:
    def test_nobody_there(self):
        with pytest.raises(NotReadyError, match="refused"):
            postgres_wire.probe(f"postgresql://127.0.0.1:{process.free_ports(1)[0]}/x")

    @pytest.mark.parametrize(
        "url", ["redis://127.0.0.1:1/x", "postgresql://me:secret@127.0.0.1:port/x"]
    )
    def test_an_address_that_is_none(self, url):
        with pytest.raises(NotReadyError, match="is no address") as raised:
            postgres_wire.probe(url)
        assert "secret" not in str(raised.value)

    @pytest.mark.parametrize(
        "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 64], ids=["http", "zeros"]
    )
    def test_another_protocol(self, answer):
        with (
            peer(replies={b"user": answer}) as at,
            pytest.raises(NotReadyError, match="not as a PostgreSQL"),
        ):
            postgres_wire.probe(at)

    def test_a_connection_closed_without_an_answer(self):
        with peer() as at, pytest.raises(NotReadyError, match="without an answer"):
            postgres_wire.probe(at)

    def test_silence_ends_in_time(self):
        with peer(replies={}) as at, pytest.raises(NotReadyError, match="timed out"):
            postgres_wire.probe(at, timeout_s=0.2)

    def test_a_refusal_is_quoted(self):
        replies = {b"user\0me\0database\0shop\0": complaint(b"seen")}
        with peer(replies=replies) as at, pytest.raises(NotReadyError, match="says: seen"):
            postgres_wire.probe(f"postgresql://me:x@{at}/shop")

    def test_a_server_that_is_still_starting_is_not_ready(self):
        replies = {b"user": WELCOME + complaint(b"the database system is starting up")}
        with peer(replies=replies) as at, pytest.raises(NotReadyError, match="starting up"):
            postgres_wire.probe(at)

    def test_an_answer_that_is_not_one(self):
        two = message(b"D", struct.pack(">hi", 1, 1) + b"2")
        replies = {b"user": WELCOME + READY, b"SELECT 1": two}
        with peer(replies=replies) as at, pytest.raises(NotReadyError, match="SELECT 1 with 1"):
            postgres_wire.probe(at)

    def test_a_login_in_the_clear_and_the_version(self):
        replies = {
            b"user": message(b"R", struct.pack(">i", 3)),
            b"s@cret\0": WELCOME + READY,
            b"SELECT 1": ONE,
        }
        with peer(replies=replies) as at:
            assert postgres_wire.probe(f"postgresql://me:s%40cret@{at}/shop") == "99.1"

    def test_a_login_by_md5(self):
        inner = hashlib.md5(b"s@cretme", usedforsecurity=False).hexdigest().encode()
        answer = hashlib.md5(inner + b"salt", usedforsecurity=False).hexdigest().encode()
        replies = {
            b"user": message(b"R", struct.pack(">i", 5) + b"salt"),
            b"md5" + answer: WELCOME + READY,
            b"SELECT 1": ONE,
        }
        with peer(replies=replies) as at:
            assert postgres_wire.probe(f"postgresql://me:s%40cret@{at}/shop") == "99.1"

    def test_a_login_that_is_not_known_here(self):
        for body in (struct.pack(">i", 7), struct.pack(">i", 10) + b"PIGEON-POST\0\0"):
            with (
                peer(replies={b"user": message(b"R", body)}) as at,
                pytest.raises(NotReadyError, match="we cannot"),
            ):
                postgres_wire.probe(at)

    @pytest.mark.postgres
    def test_a_wrong_password_at_a_real_server(self):
        with brokers.acquire("postgres", "embedded") as server:
            assert postgres_wire.probe(server.url) == server.version
            at = postgres_wire.place(server.url)
            with pytest.raises(NotReadyError, match="password authentication failed"):
                postgres_wire.probe(server.url.replace(at.password, "wrong"))
            with pytest.raises(NotReadyError, match="does not exist"):
                postgres_wire.probe(f"{server.url}-of-nobody")
            with pytest.raises(NotReadyError, match="does not speak TLS"):
                postgres_wire.probe(f"{server.url}?sslmode=require")

    def test_what_an_address_leaves_out_is_as_libpq_has_it(self):
        at = postgres_wire.place("postgresql://db")
        assert (at.host, at.port, at.user, at.database, at.tls) == (
            "db", 5432, "postgres", "postgres", False,
        )  # fmt: skip
        assert postgres_wire.place("postgres://me@db/").database == "me"


class TestValkey:
    def test_nobody_there(self):
        with pytest.raises(NotReadyError, match="refused"):
            valkey_wire.probe(f"redis://127.0.0.1:{process.free_ports(1)[0]}")

    @pytest.mark.parametrize(
        "url", ["http://127.0.0.1:1", "redis://:secret@127.0.0.1:port", "redis://127.0.0.1:1/7"]
    )
    def test_an_address_that_is_none(self, url):
        with pytest.raises(NotReadyError, match="is no address") as raised:
            valkey_wire.probe(url)
        assert "secret" not in str(raised.value)

    @pytest.mark.parametrize(
        "answer",
        [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 63 + b"\n", b"+OK\r\n"],
        ids=["http", "zeros", "ok"],
    )
    def test_another_protocol(self, answer):
        with (
            peer(replies={b"PING": answer}) as at,
            pytest.raises(NotReadyError, match="not as a Redis"),
        ):
            valkey_wire.probe(at)

    def test_a_connection_closed_without_an_answer(self):
        with peer() as at, pytest.raises(NotReadyError, match="without an answer"):
            valkey_wire.probe(at)

    def test_silence_ends_in_time(self):
        with peer(replies={}) as at, pytest.raises(NotReadyError, match="timed out"):
            valkey_wire.probe(at, timeout_s=0.2)

    def test_user_and_password_are_sent(self):
        for login, key in ((":s%40cret", b"*2\r\n$4\r\nAUTH\r\n$6\r\ns@cret"), ("me:x", b"me\r\n")):
            replies = {key: b"-WRONGPASS seen\r\n"}
            with peer(replies=replies) as at, pytest.raises(NotReadyError, match="WRONGPASS seen"):
                valkey_wire.probe(f"redis://{login}@{at}")

    @pytest.mark.parametrize(
        ("told", "version"),
        [
            (b"redis_version:7.2.4\r\nvalkey_version:9.1.2\r\n", "9.1.2"),
            (b"redis_version:6.2.1\r\n", "6.2.1"),
            (b"# Server\r\n", "unknown"),
        ],
    )
    def test_the_version_is_the_servers_own(self, told, version):
        replies = {b"PING": b"+PONG\r\n", b"INFO": b"$%d\r\n%b\r\n" % (len(told), told)}
        with peer(replies=replies) as at:
            assert valkey_wire.probe(at) == version

    def test_a_server_without_users_is_too_old(self):
        told = b"redis_version:5.0.7\r\n"
        replies = {b"PING": b"+PONG\r\n", b"INFO": b"$%d\r\n%b\r\n" % (len(told), told)}
        with peer(replies=replies) as at, pytest.raises(NotReadyError, match=r"5\.0\.7, and 6\.0"):
            valkey_wire.probe(at)

    @pytest.mark.valkey
    def test_a_wrong_password_at_a_real_server(self):
        with brokers.acquire("valkey", "embedded") as server:
            assert valkey_wire.probe(server.url) == server.version
            with pytest.raises(NotReadyError, match="WRONGPASS"):
                valkey_wire.probe(server.url.replace("redis://:", "redis://:wrong"))
            with pytest.raises(NotReadyError, match="NOAUTH"):
                valkey_wire.probe(server.url.partition("@")[2])
