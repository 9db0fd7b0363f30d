"""Services of `docker-compose.yml` started, listed and stopped, by Compose and the engine's own list.

Apart from `compose`, because only `brokers up`, `down`, `status` and the doctor need it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass

from autograder.brokers import container_engine, containers, process
from autograder.brokers.compose import NAME, SERVICES, Service, file
from autograder.brokers.process import Patience
from autograder.brokers.server import Missing, NotReadyError, Server
from autograder.model import GraderError

_UP_TIMEOUT_S = 300.0
_OLDEST = (2, 23, 1)  # the first with the contents of configs in the file itself
_PORT_TAKEN = re.compile(
    r"port is already allocated|address already in use|ports are not available"
)


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
        return answered(service, patience)
    for image in _compose("config", "--images", engine).split():
        container_start.ensure_image(found, image, patience)
    patience.limit(_UP_TIMEOUT_S)
    # without --wait: that would look every few seconds, and we look ten times a second
    _compose("up", "--detach", "--no-deps", engine, explain=engine)
    return answered(service, patience, endpoint=found.endpoint)


def answered(service: Service, patience: Patience, *, endpoint: str = "") -> Server:
    """The service, once it answers; a Kafka that is asked for the first time takes a second.

    With `endpoint`, that of the engine, a container that ends is an end of waiting, too.
    """
    while True:
        try:
            return service.server()
        except NotReadyError as error:
            if endpoint and (ended := _exit_code(endpoint, service.engine)):
                raise _not_ready(service.engine, f"it stopped (exit code {ended})") from error
            try:
                patience.wait(0.1)
            except TimeoutError:
                raise _not_ready(service.engine, str(error)) from error


def _exit_code(endpoint: str, engine: str) -> str:
    """How the container of a service has ended; empty while it runs."""
    for _, (container, _created) in containers_of(endpoint, [engine]):
        state = container_engine.state(endpoint, container)
        if state and not state.get("Running"):
            return str(state.get("ExitCode"))
    return ""


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
        for engine, (name, created) in containers_of(found.endpoint, SERVICES, stopped=False)
    ]


def containers_of(
    endpoint: str, engines: Iterable[str], *, stopped: bool = True
) -> list[tuple[str, tuple[str, float]]]:
    """The containers of our compose project that serve these engines: engine, name and birth.

    With those that have ended, unless not `stopped`.
    """
    wanted, ended = set(engines), {"exited", "dead", "created"}
    return sorted(
        (service, (str(each["Names"][0]).lstrip("/"), float(each.get("Created", 0))))
        for each in container_engine.containers(endpoint, _project_label())
        if (service := (each.get("Labels") or {}).get("com.docker.compose.service")) in wanted
        and (stopped or each.get("State") not in ended)
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
    environment = dict(os.environ)
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
            f"The port of the compose service {engine}, {service.at}, is taken by another program.",
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
