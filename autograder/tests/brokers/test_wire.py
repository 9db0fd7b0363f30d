"""Probes against peers that are not what they should be."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import threading

import pytest

from autograder.brokers import kafka_wire, nats, nats_wire, process
from autograder.brokers.server import NotReadyError

INFO = b'INFO {"version":"2.99.0","jetstream":true}\r\n'


@contextlib.contextmanager
def peer(*lines: bytes, replies: dict[bytes, bytes] | None = None):
    """Listens, greets with `lines`, and answers what contains a key of `replies`, for ever."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.sendall(b"".join(lines))
                        while said := connection.recv(65536):
                            for heard, answer in (replies or {}).items():
                                if heard in said:
                                    connection.sendall(answer)
                            if replies is None:
                                break

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


class TestNats:
    def test_nobody_there(self):
        with pytest.raises(NotReadyError, match="refused"):
            nats_wire.probe(f"nats://127.0.0.1:{process.free_ports(1)[0]}")

    def test_another_protocol(self):
        with peer(b"SSH-2.0-Other\r\n") as at, pytest.raises(NotReadyError, match="not as a NATS"):
            nats_wire.probe(at)

    def test_silence_ends_in_time(self):
        with peer(replies={}) as at, pytest.raises(NotReadyError, match="timed out"):
            nats_wire.probe(at, timeout_s=0.2)

    def test_a_refused_login(self):
        replies = {b"CONNECT": b"-ERR 'Authorization Violation'\r\n"}
        with peer(INFO, replies=replies) as at, pytest.raises(NotReadyError, match="Authorization"):
            nats_wire.probe(f"nats://me:wrong@{at}")

    def test_user_password_and_token_are_sent(self):
        for login, key in (
            ("me:s%40cret", b'"pass": "s@cret"'),
            ("t0ken", b'"auth_token": "t0ken"'),
        ):
            replies = {key: b"-ERR 'seen'\r\n"}
            with peer(INFO, replies=replies) as at, pytest.raises(NotReadyError, match="seen"):
                nats_wire.probe(f"nats://{login}@{at}")

    def test_a_broken_off_connection(self):
        with peer(INFO) as at, pytest.raises(NotReadyError):
            nats_wire.probe(at)

    def test_pings_are_answered_and_the_first_server_that_works_counts(self):
        body = json.dumps({"type": "io.nats.jetstream.api.v1.account_info_response"}).encode()
        replies = {
            b"CONNECT": b"PING\r\n",
            b"PONG": b"+OK\r\nPONG\r\n",
            b"PUB $JS": b"MSG _INBOX.x 1 %d\r\n%b\r\n" % (len(body), body),
        }
        dead = f"127.0.0.1:{process.free_ports(1)[0]}"
        with peer(INFO, replies=replies) as at:
            assert nats_wire.probe(f"{dead},nats://{at}") == "2.99.0"

    @pytest.mark.nats
    def test_a_server_without_jetstream(self, tmp_path):
        command = [str(nats.wheel_binary()), "-a", "127.0.0.1", "-p", "-1"]
        with subprocess.Popen(
            [*command, "--ports_file_dir", str(tmp_path)], stderr=subprocess.DEVNULL
        ) as server:
            try:
                assert process.wait_until(
                    lambda: any(file.read_text() for file in tmp_path.glob("*.ports")), timeout_s=20
                )
                [ports] = tmp_path.glob("*.ports")
                with pytest.raises(NotReadyError, match="without JetStream"):
                    nats_wire.probe(json.loads(ports.read_text())["nats"][0])
            finally:
                server.kill()


class TestKafka:
    def test_nobody_there(self):
        with pytest.raises(NotReadyError, match="refused"):
            kafka_wire.probe(f"127.0.0.1:{process.free_ports(1)[0]}")

    def test_another_protocol(self):
        replies = {b"ackademy": b"HTTP/1.1 400 Bad Request\r\n\r\n"}
        with peer(replies=replies) as at, pytest.raises(NotReadyError, match="not as a Kafka"):
            kafka_wire.probe(at)

    def test_a_connection_closed_without_an_answer(self):
        with peer() as at, pytest.raises(NotReadyError):
            kafka_wire.probe(at)

    def test_silence_ends_in_time(self):
        with peer(replies={}) as at, pytest.raises(NotReadyError, match="timed out"):
            kafka_wire.probe(at, timeout_s=0.2)

    def test_an_error_and_a_short_answer(self):
        for body, said in (
            (struct.pack(">ih", 1, 35), "error 35"),
            (struct.pack(">i", 1), "buffer"),
        ):
            replies = {b"ackademy": struct.pack(">i", len(body)) + body}
            with peer(replies=replies) as at, pytest.raises(NotReadyError, match=said):
                kafka_wire.probe(at)

    def test_an_advertised_address_that_leads_nowhere_is_named(self):
        answer = kafka_wire.Answer("4.1", "x", (("127.0.0.1", process.free_ports(1)[0]),))
        assert "advertises itself as 127.0.0.1" in kafka_wire.unreachable(answer)
        assert kafka_wire.unreachable(kafka_wire.Answer("4.1", "x", ())) == ""

    @pytest.mark.parametrize(("level", "release"), [(6, ""), (21, "3.9"), (25, "4.0"), (27, "4.1")])
    def test_a_feature_level_names_the_release_that_brought_it(self, level, release):
        name = b"metadata.version"
        features = bytes([2, len(name) + 1]) + name + struct.pack(">hh", level, 7) + b"\0"
        assert kafka_wire._release(kafka_wire._Reader(features)) == release
