"""The services of `docker-compose.yml`: found when they run, started and stopped when asked.

`check` looks for them each time, also for those that somebody started with `docker compose up`. So
looking must cost nothing: no command is run and no engine is asked. Each service has a port, and a
mark of its own in the first words of its protocol (a server's name, a cluster's id, for a store the
login): whoever answers at the port without the mark is somebody else's server, and is left alone.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autograder.brokers import (
    kafka_wire,
    nats_wire,
    postgres_wire,
    rabbitmq_wire,
    valkey_wire,
)
from autograder.brokers.process import Patience
from autograder.brokers.server import Missing, NotReadyError, Server
from autograder.model import GraderError

NAME = "ackademy"
"""The compose file's own name for its project; COMPOSE_PROJECT_NAME goes before, as everywhere."""
MARK = "ackademy-compose"
"""The name of the NATS server, and the host of the RabbitMQ node."""
CLUSTER_ID = "QWNrYWRlbXktY29tcG9zZQ"
"""The same as Kafka writes an id: 16 bytes in base64."""

_LOOK_TIMEOUT_S = 1.0  # loopback answers in a millisecond; a stranger that hangs costs this much
_PROBE_TIMEOUT_S = 5.0
_OPEN_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Service:
    """One service: where it listens unless told otherwise, and how to tell it from others."""

    engine: str
    variable: str
    port: int
    url: str
    is_ours: Callable[[str, int], bool]
    probe: Callable[[str], str]

    @property
    def place(self) -> tuple[str, int]:
        """Host and port: the variable, in the environment or in `.env`, or the usual port."""
        told = os.environ.get(self.variable, "").strip() or _dotenv().get(self.variable, "")
        return "127.0.0.1", int(told) if told.isdigit() else self.port

    @property
    def at(self) -> str:
        """The same as `host:port`."""
        return "{}:{}".format(*self.place)

    @property
    def address(self) -> str:
        """Its URL, whether it runs or not."""
        return self.url.format(port=self.place[1])

    def is_running(self) -> bool:
        """Whether our service answers at its place."""
        try:
            return self.is_ours(*self.place)
        except (OSError, ValueError, NotReadyError):
            return False

    def server(self) -> Server:
        """The service as a server, after a round trip. Raises `NotReadyError`."""
        return Server(self.engine, self.address, "compose", self.probe(self.address))


def _nats_is_ours(host: str, port: int) -> bool:
    """By the server's name in INFO, the line every NATS server begins with."""
    with (
        socket.create_connection((host, port), timeout=_LOOK_TIMEOUT_S) as connection,
        connection.makefile("rb") as stream,
    ):
        line = stream.readline(65536)
    return line.startswith(b"INFO ") and json.loads(line[5:]).get("server_name") == MARK


def _kafka_is_ours(host: str, port: int) -> bool:
    """By the cluster's id."""
    answer = kafka_wire.probe(f"{host}:{port}", timeout_s=_LOOK_TIMEOUT_S)
    return answer.cluster_id == CLUSTER_ID


def _rabbitmq_is_ours(host: str, port: int) -> bool:
    """By the cluster's name, which is the first node's, in the first frame a server sends."""
    with socket.create_connection((host, port), timeout=_LOOK_TIMEOUT_S) as connection:
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        with connection.makefile("rb") as stream:
            head = stream.read(7)  # type, channel, length
            frame = stream.read(min(int.from_bytes(head[3:7], "big"), 65536))
    return f"@{MARK}".encode() in frame


def _postgres_is_ours(host: str, port: int) -> bool:
    """By its user, password and database: nothing is said before the login."""
    url = _POSTGRES.format(port=port).replace("127.0.0.1", host)
    return bool(postgres_wire.probe(url, timeout_s=_LOOK_TIMEOUT_S))


def _valkey_is_ours(host: str, port: int) -> bool:
    """By its user beside the usual one, and the password."""
    url = _VALKEY.format(port=port).replace("127.0.0.1", host)
    return bool(valkey_wire.probe(url, timeout_s=_LOOK_TIMEOUT_S))


_POSTGRES = "postgresql://ackademy:ackademy@127.0.0.1:{port}/ackademy"
_VALKEY = "redis://ackademy:ackademy@127.0.0.1:{port}"

SERVICES: Mapping[str, Service] = {
    service.engine: service
    for service in (
        Service(
            engine="nats",
            variable="ACKADEMY_NATS_PORT",
            port=4222,
            url="nats://127.0.0.1:{port}",
            is_ours=_nats_is_ours,
            probe=lambda url: nats_wire.probe(url, timeout_s=_PROBE_TIMEOUT_S),
        ),
        Service(
            engine="kafka",
            variable="ACKADEMY_KAFKA_PORT",
            port=9092,
            url="127.0.0.1:{port}",
            is_ours=_kafka_is_ours,
            probe=lambda url: kafka_wire.probe_coordinator(url, timeout_s=_PROBE_TIMEOUT_S).release,
        ),
        Service(
            engine="rabbitmq",
            variable="ACKADEMY_RABBITMQ_PORT",
            port=5672,
            url="amqp://ackademy:ackademy@127.0.0.1:{port}",
            is_ours=_rabbitmq_is_ours,
            probe=lambda url: rabbitmq_wire.probe(url, timeout_s=_PROBE_TIMEOUT_S),
        ),
        Service(
            engine="postgres",
            variable="ACKADEMY_POSTGRES_PORT",
            port=5432,
            url=_POSTGRES,
            is_ours=_postgres_is_ours,
            probe=lambda url: postgres_wire.probe(url, timeout_s=_PROBE_TIMEOUT_S),
        ),
        Service(
            engine="valkey",
            variable="ACKADEMY_REDIS_PORT",
            port=6379,
            url=_VALKEY,
            is_ours=_valkey_is_ours,
            probe=lambda url: valkey_wire.probe(url, timeout_s=_PROBE_TIMEOUT_S),
        ),
    )
}


@dataclass(frozen=True)
class Compose:
    """One service of the compose file, as a provider. It is used while it runs, and never stopped."""

    engine: str
    name: str = "compose"

    def missing(self) -> Missing | None:
        """Whether it runs."""
        service = SERVICES[self.engine]
        if service.is_running():
            return None
        return Missing(
            f"no service of docker-compose.yml answers at {service.at}",
            f"ackademy brokers up {self.engine} --provider compose",
        )

    def open(self, patience: Patience | None) -> Server:
        """The running service, after a round trip."""
        from autograder.brokers import compose_control  # noqa: PLC0415 - seldom needed

        patience = patience or Patience()
        patience.limit(_OPEN_TIMEOUT_S)
        return compose_control.answered(SERVICES[self.engine], patience)

    def start(self, patience: Patience | None, *, warm: bool) -> Server:
        """Start the service if it does not run. It stays, `warm` or not."""
        from autograder.brokers import compose_control  # noqa: PLC0415 - the same

        return compose_control.up(self.engine, patience or Patience())

    def close(self, server: Server) -> None:
        """Leave it running."""


def file() -> Path:
    """The compose file: above the working folder, or beside the package.

    Raises
    ------
    GraderError
        There is none: the package was installed without the course.
    """
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[2]):
        candidate = folder / "docker-compose.yml"
        try:
            if f"\nname: {NAME}\n" in candidate.read_text(encoding="utf-8"):
                return candidate
        except OSError:
            continue
    raise GraderError(
        "There is no docker-compose.yml of the course here: go to the course's folder.",
        next_command="ackademy brokers status",
    )


def _dotenv() -> dict[str, str]:
    """The plain assignments of the file `.env` that Compose reads beside its own file."""
    try:
        text = (file().parent / ".env").read_text(encoding="utf-8")
    except (OSError, GraderError):
        return {}
    pairs = re.findall(r"^\s*(?:export\s+)?(\w+)\s*=\s*[\"']?([^\"'\s#]*)", text, re.MULTILINE)
    return dict(pairs)
