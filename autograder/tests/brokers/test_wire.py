"""Probes against peers that are not what they should be."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import threading

import pytest

from autograder.brokers import kafka_wire, nats, nats_wire, process, rabbitmq_wire
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


def amqp(*method: int, arguments: bytes = b"", channel: int = 0) -> bytes:
    """One method frame."""
    payload = struct.pack(">HH", *method) + arguments
    return struct.pack(">BHI", 1, channel, len(payload)) + payload + b"\xce"


def amqp_start(properties: bytes) -> bytes:
    return amqp(10, 10, arguments=b"\0\x09" + struct.pack(">I", len(properties)) + properties)


HEADER = b"AMQP\x00\x00\x09\x01"
START = amqp_start(b"\x07productS\0\0\0\x08RabbitMQ\x07versionS\0\0\0\x064.99.1")
TUNE = amqp(10, 30, arguments=struct.pack(">HIH", 2047, 131072, 60))
OPEN_OK, CHANNEL_OPEN_OK = amqp(10, 41, arguments=b"\0"), amqp(20, 11, arguments=b"\0\0\0\0", channel=1)  # fmt: skip
HEARTBEAT = b"\x08\0\0\0\0\0\0\xce"


class TestRabbit:
    def test_nobody_there(self):
        with pytest.raises(NotReadyError, match="refused"):
            rabbitmq_wire.probe(f"amqp://127.0.0.1:{process.free_ports(1)[0]}")

    def test_an_address_that_is_none(self):
        with pytest.raises(NotReadyError, match="is no address"):
            rabbitmq_wire.probe("amqp://me:secret@127.0.0.1:port")

    @pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-Other\r\n"])
    def test_another_protocol(self, answer):
        with (
            peer(replies={HEADER: answer}) as at,
            pytest.raises(NotReadyError, match="not as a RabbitMQ"),
        ):
            rabbitmq_wire.probe(at)

    def test_another_version_of_the_protocol(self):
        with (
            peer(replies={HEADER: b"AMQP\x00\x01\x00\x00"}) as at,
            pytest.raises(NotReadyError, match="another version"),
        ):
            rabbitmq_wire.probe(at)

    def test_a_connection_closed_without_an_answer(self):
        with peer() as at, pytest.raises(NotReadyError, match="without an answer"):
            rabbitmq_wire.probe(at)

    def test_a_server_that_does_not_say_its_version(self):
        with (
            peer(replies={HEADER: amqp_start(b"")}) as at,
            pytest.raises(NotReadyError, match="does not tell its version"),
        ):
            rabbitmq_wire.probe(at)

    def test_silence_ends_in_time(self):
        with peer(replies={}) as at, pytest.raises(NotReadyError, match="timed out"):
            rabbitmq_wire.probe(at, timeout_s=0.2)

    def test_a_refusal_is_quoted_and_the_login_is_sent(self):
        text = b"ACCESS_REFUSED - seen"
        refused = amqp(10, 50, arguments=struct.pack(">HB", 403, len(text)) + text + b"\0\0\0\0")
        replies = {HEADER: START, b"\0me\0s@cret": refused}
        with peer(replies=replies) as at, pytest.raises(NotReadyError, match=r"seen \(403\)"):
            rabbitmq_wire.probe(f"amqp://me:s%40cret@{at}")

    def test_the_vhost_is_opened_and_heartbeats_are_passed_over(self):
        replies = {
            HEADER: START,
            b"PLAIN": HEARTBEAT + TUNE,
            b"\x0bteam/orders": OPEN_OK,
            amqp(20, 10, arguments=b"\0", channel=1): HEARTBEAT + CHANNEL_OPEN_OK,
            b"bye": amqp(10, 51),
        }
        with peer(replies=replies) as at:
            assert rabbitmq_wire.probe(f"amqp://{at}/team%2Forders") == "4.99.1"

    @pytest.mark.parametrize(
        ("url", "port", "vhost", "user"),
        [
            ("broker", 5672, "/", "guest"),
            ("amqp://broker", 5672, "/", "guest"),
            ("amqp://me:x@broker:1/", 1, "/", "me"),
            ("amqps://broker/%2F", 5671, "/", "guest"),
            ("amqp://broker/team", 5672, "team", "guest"),
        ],
    )
    def test_what_an_address_leaves_out_is_as_rabbitmq_has_it(self, url, port, vhost, user):
        place = rabbitmq_wire.place(url)
        assert (place.host, place.port, place.vhost, place.user) == ("broker", port, vhost, user)
