"""The services of `docker-compose.yml`: found when they run, started and stopped when asked.

`check` looks for them each time, also for those that somebody started with `docker compose up`. So
looking must cost nothing: no command is run and no engine is asked. Each service has a port, and a
mark of its own in the first words of its protocol (a server's name, a cluster's id): whoever
answers at the port without the mark is somebody else's server, and is left alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autograder.brokers import (
    container_engine,
    containers,
    kafka_wire,
    nats_wire,
    process,
    rabbitmq_wire,
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
_UP_TIMEOUT_S = 300.0
_OLDEST = (2, 23, 1)  # the first with the contents of configs in the file itself
_PORT_TAKEN = re.compile(
    r"port is already allocated|address already in use|ports are not available"
)


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
            f"no service of docker-compose.yml answers at {_at(service)}",
            f"ackademy brokers up {self.engine} --provider compose",
        )

    def open(self, patience: Patience | None) -> Server:
        """The running service, after a round trip."""
        patience = patience or Patience()
        patience.limit(_OPEN_TIMEOUT_S)
        return _answered(SERVICES[self.engine], patience)

    def start(self, patience: Patience | None, *, warm: bool) -> Server:
        """Start the service if it does not run. It stays, `warm` or not."""
        return up(self.engine, patience or Patience())

    def close(self, server: Server) -> None:
        """Leave it running."""


def up(engine: str, patience: Patience) -> Server:
    """Start a service, unless it runs, and wait until it answers.

    Raises
    ------
    GraderError
        There is no engine or no Compose, the image cannot be fetched, the port is taken, or the
        service does not get healthy (the text ends with its last log lines).
    """
    from autograder.brokers import container_start  # noqa: PLC0415 - loads Docker's SDK

    service = SERVICES[engine]
    found = containers.require_engine(f"The compose service {engine} cannot be started")
    if service.is_running() and containers_of(found.endpoint, [engine]):
        return _answered(service, patience)
    for image in _compose("config", "--images", engine).split():
        container_start.ensure_image(found, image, patience)
    patience.limit(_UP_TIMEOUT_S)
    _compose("up", "--detach", "--wait", "--no-deps", engine, explain=engine)
    return _answered(service, patience)


def _answered(service: Service, patience: Patience) -> Server:
    """The service, once it answers; a Kafka that is asked for the first time takes a second."""
    while True:
        try:
            return service.server()
        except NotReadyError as error:
            try:
                patience.wait(0.1)
            except TimeoutError:
                raise _not_ready(service.engine, str(error)) from error


def down(engines: Iterable[str] | None = None) -> list[str]:
    """Stop these services, all by default, however they were started; returns those stopped.

    What they stored stays in their volumes. Where there is no engine there is nothing to stop.
    """
    found = container_engine.find()
    if isinstance(found, Missing):
        return []
    wanted = list(SERVICES if engines is None else engines)
    running = sorted({engine for engine, _ in containers_of(found.endpoint, wanted)})
    if running:
        _compose("rm", "--stop", "--force", "--volumes", *running)  # the unnamed ones, it means
        if not container_engine.containers(found.endpoint, _project_label()):
            _compose("down")  # the network, too
    return running


@dataclass(frozen=True, slots=True)
class Running:
    """A container of a service, as the engine sees it."""

    engine: str
    container: str
    memory_bytes: int
    uptime_s: float


def running() -> list[Running]:
    """The services that are up, by the engine's own list; none where there is no engine."""
    found = container_engine.find()
    if isinstance(found, Missing):
        return []
    return [
        Running(
            engine=engine,
            container=name,
            memory_bytes=container_engine.memory_bytes(found.endpoint, name),
            uptime_s=max(0.0, time.time() - created),
        )
        for engine, (name, created) in containers_of(found.endpoint, SERVICES)
    ]


def containers_of(endpoint: str, engines: Iterable[str]) -> list[tuple[str, tuple[str, float]]]:
    """The containers of our compose project that serve these engines: engine, name and birth."""
    wanted = set(engines)
    return sorted(
        (service, (str(each["Names"][0]).lstrip("/"), float(each.get("Created", 0))))
        for each in container_engine.containers(endpoint, _project_label())
        if (service := (each.get("Labels") or {}).get("com.docker.compose.service")) in wanted
    )


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


def command() -> list[str] | Missing:
    """How Compose is called here, if it is new enough."""
    versions = []
    for words in (["docker", "compose"], ["docker-compose"], ["podman", "compose"]):
        if shutil.which(words[0]) is None:
            continue
        try:
            said = subprocess.run(
                [*words, "version", "--short"],
                capture_output=True,
                text=True,
                timeout=30,
                check=True,
            ).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            continue
        if version_of(said) >= _OLDEST:
            return words
        versions.append(said)
    oldest = ".".join(map(str, _OLDEST))
    if versions:
        return Missing(f"Docker Compose is {versions[0]}, and {oldest} is needed", _install())
    return Missing(f"Docker Compose ({oldest} or newer) is not installed", _install())


def version_of(text: str) -> tuple[int, ...]:
    """The numbers a version begins with."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _install() -> str:
    if shutil.which("apt-cache"):
        return "sudo apt-get install -y docker-compose-v2 || sudo apt-get install -y docker-compose"
    if shutil.which("brew"):
        return "brew install docker-compose"
    return "xdg-open https://docs.docker.com/compose/install/"


def _compose(*arguments: str, explain: str = "") -> str:
    """Run Compose on our file; returns what it printed. `explain` names the engine it is about."""
    words = command()
    if isinstance(words, Missing):
        raise GraderError(f"{words.sentence}.", next_command=words.next_command)
    place = file()
    environment = os.environ | {"COMPOSE_PROFILES": os.environ.get("COMPOSE_PROFILES", "")}
    found = container_engine.find()
    if not isinstance(found, Missing):
        environment["DOCKER_HOST"] = found.endpoint
    try:
        done = subprocess.run(
            [
                *words,
                "--file",
                str(place),
                "--project-name",
                _project(),
                "--ansi",
                "never",
                *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=_UP_TIMEOUT_S,
            check=False,
            env=environment,
            cwd=place.parent,
        )
    except subprocess.TimeoutExpired as error:
        raise _not_ready(explain, f"Compose took more than {_UP_TIMEOUT_S:.0f} s") from error
    if done.returncode == 0:
        return done.stdout
    raise _refused(explain, done.stderr)


def _refused(engine: str, said: str) -> GraderError:
    service = SERVICES.get(engine)
    if service is not None and _PORT_TAKEN.search(said):
        return GraderError(
            f"The port of the compose service {engine}, {_at(service)}, is taken by another program.",
            next_command=f"export {service.variable}={process.free_ports(1)[0]}",
        )
    last = " ".join(line.strip() for line in said.strip().splitlines()[-2:])
    return _not_ready(engine, f"Compose says: {last}")


def _not_ready(engine: str, why: str) -> GraderError:
    quoted = ""
    found = container_engine.find()
    if engine and not isinstance(found, Missing):
        for _, (container, _created) in containers_of(found.endpoint, [engine]):
            lines = container_engine.log(found.endpoint, container, lines=8).rstrip()
            quoted = f"\nIts last words:\n{lines}" if lines else ""
    what = f"The compose service {engine} did not get ready" if engine else "Compose failed"
    return GraderError(f"{what}: {why}{quoted}", next_command="ackademy doctor")


def _project() -> str:
    return os.environ.get("COMPOSE_PROJECT_NAME", "").strip() or NAME


def _project_label() -> str:
    return f"com.docker.compose.project={_project()}"


def _at(service: Service) -> str:
    host, port = service.place
    return f"{host}:{port}"


def _dotenv() -> dict[str, str]:
    """The plain assignments of the file `.env` that Compose reads beside its own file."""
    try:
        text = (file().parent / ".env").read_text(encoding="utf-8")
    except (OSError, GraderError):
        return {}
    pairs = re.findall(r"^\s*(?:export\s+)?(\w+)\s*=\s*[\"']?([^\"'\s#]*)", text, re.MULTILINE)
    return dict(pairs)
