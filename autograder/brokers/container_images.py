"""Which image serves which engine, and what it is told: one row an engine.

Settings are those of the throwaway servers (`kafka_config`, `rabbitmq`, `nats`), in the form that
each official image takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autograder.brokers import (
    kafka_config,
    kafka_wire,
    nats,
    nats_wire,
    postgres_wire,
    rabbitmq,
    rabbitmq_wire,
    valkey_wire,
)
from autograder.brokers.process import free_ports
from autograder.brokers.server import NotReadyError

Told = Mapping[str, str]


def nothing(_port: int) -> Told:
    """For an image that needs no variables."""
    return {}


def one_port() -> dict[int, int]:
    """For an image whose port the row's `port` is; see `Image.places`."""
    return {0: free_ports(1)[0]}


@dataclass(frozen=True, slots=True)
class Image:
    """An official image as a throwaway server.

    `port` is the one that clients use, inside; `url` gets the one outside. `places` chooses the
    ports outside, by those inside (0 stands for `port`). `variables` get the client's port outside,
    because a broker may have to tell it to its clients. `files` are put into the container before
    it starts. `ready` is one round trip with the server at a URL, bounded in seconds, and returns
    its version; it raises `NotReadyError`.
    """

    engine: str
    name: str
    port: int
    url: str
    ready: Callable[[str, float], str]
    variables: Callable[[int], Told] = nothing
    command: tuple[str, ...] = ()
    files: Told = field(default_factory=dict)
    places: Callable[[], dict[int, int]] = one_port
    start_timeout_s: float = 120.0


def kafka_variables(port: int) -> dict[str, str]:
    """A single node that tells clients to come to this port of the loopback.

    The image turns KAFKA_A_B into a.b, and takes its own defaults only if there is no such
    variable at all: https://github.com/apache/kafka/blob/trunk/docker/examples/README.md
    """
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": "/var/lib/kafka/data",
    }
    settings |= dict(line.split("=", 1) for line in kafka_config.SETTINGS.splitlines())
    variables = {f"KAFKA_{name.upper().replace('.', '_')}": told for name, told in settings.items()}
    return variables | {
        "KAFKA_HEAP_OPTS": kafka_config.JVM_OPTIONS[0],
        "KAFKA_JVM_PERFORMANCE_OPTS": " ".join(kafka_config.JVM_OPTIONS[1:]),
        "CLUSTER_ID": kafka_config.new_id(),
    }


def _kafka_ready(url: str, timeout_s: float) -> str:
    """Broker in service, group coordinator in service, and clients are sent to where we came."""
    answer = kafka_wire.probe_coordinator(url, timeout_s=timeout_s)
    told = [f"{host}:{port}" for host, port in answer.advertised]
    if told != [url]:
        raise NotReadyError(f"it sends clients to {', '.join(told)}")
    return answer.release or "unknown"


def _rabbit_ports() -> dict[int, int]:
    port, management = rabbitmq.two_ports()
    return {0: port, 15672: management}


IMAGES: Mapping[str, Image] = {
    row.engine: row
    for row in (
        Image(
            engine="nats",
            name="nats:2",
            port=4222,
            url="nats://127.0.0.1:{port}",
            ready=lambda url, timeout_s: nats_wire.probe(url, timeout_s=timeout_s),
            command=("--config", "/ackademy.conf"),
            files={"/ackademy.conf": nats.configuration("0.0.0.0:4222", "/data")},
        ),
        Image(
            engine="kafka",
            name="apache/kafka:4.1.0",
            port=9092,
            url="127.0.0.1:{port}",
            ready=_kafka_ready,
            variables=kafka_variables,
        ),
        Image(
            engine="rabbitmq",
            name="rabbitmq:4-management",
            port=5672,
            url="amqp://guest:guest@127.0.0.1:{port}",
            ready=lambda url, timeout_s: rabbitmq_wire.probe(url, timeout_s=timeout_s),
            variables=lambda _port: {"RABBITMQ_SERVER_ERL_ARGS": rabbitmq.VM_OPTIONS},
            files={
                "/etc/rabbitmq/conf.d/90-ackademy.conf": rabbitmq.SETTINGS,
                "/etc/rabbitmq/advanced.config": rabbitmq.ADVANCED,
            },
            places=_rabbit_ports,
        ),
        Image(
            engine="postgres",
            name="postgres:17",
            port=5432,
            url="postgresql://ackademy:ackademy@127.0.0.1:{port}/ackademy",
            ready=lambda url, timeout_s: postgres_wire.probe(url, timeout_s=timeout_s),
            variables=lambda _port: {"POSTGRES_USER": "ackademy", "POSTGRES_PASSWORD": "ackademy"},
        ),
        Image(
            engine="valkey",
            name="valkey/valkey:8",
            port=6379,
            url="redis://127.0.0.1:{port}",
            ready=lambda url, timeout_s: valkey_wire.probe(url, timeout_s=timeout_s),
        ),
    )
}
