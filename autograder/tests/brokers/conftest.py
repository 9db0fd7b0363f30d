"""Every test here has a state folder and a temporary folder of its own, and no server by name."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from autograder.brokers import (
    compose,
    container_engine,
    kafka,
    kafka_jars,
    nats,
    postgres,
    providers,
    rabbitmq,
    records,
    valkey,
)
from autograder.brokers.container_images import IMAGES
from autograder.brokers.server import Missing
from autograder.pytest_plugin import required_engines

PROJECT = f"ackademy-tests-{os.getpid()}"
"""The compose project of this session: others may run beside it."""


class Grounds:
    """Where a test's servers leave traces, and whether they left any."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.scratch = folder / "scratch"
        self.scratch.mkdir()

    @property
    def environment(self):
        """For another Python that is to work on the same grounds."""
        return os.environ | {"TMPDIR": str(self.scratch), "ACKADEMY_STATE_DIR": str(self.state)}

    def traces(self):
        """Records and folders of servers, which nobody should find after a stop."""
        kept = [str(record) for record in records.all_records()]
        return kept + [str(path) for path in self.scratch.glob("ackademy-*")]


@pytest.fixture(autouse=True)
def grounds(tmp_path, monkeypatch):
    for engine in providers.TABLE:
        monkeypatch.delenv(providers.External(engine).variable, raising=False)
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    # compose services of whoever runs these tests are neither used nor stopped
    monkeypatch.setenv("COMPOSE_PROJECT_NAME", PROJECT)
    for service in compose.SERVICES.values():
        monkeypatch.setenv(service.variable, "1")
    grounds = Grounds(tmp_path)
    monkeypatch.setenv("ACKADEMY_STATE_DIR", str(grounds.state))
    monkeypatch.setattr(tempfile, "tempdir", str(grounds.scratch))
    yield grounds
    monkeypatch.setenv("ACKADEMY_STATE_DIR", str(grounds.state))
    for record in records.all_records():  # a test that failed half-way must not leave servers
        records.discard(record)


@pytest.fixture
def kafka_installed():
    """Skips with the reason where embedded Kafka cannot run, fails where it is required."""
    need("kafka", kafka.embedded())


@pytest.fixture
def rabbitmq_installed():
    """Skips with the reason where there is no RabbitMQ, fails where it is required."""
    need("rabbitmq", rabbitmq.local())


@pytest.fixture
def postgres_installed():
    """Skips with the reason where there is no PostgreSQL on the PATH, fails where it is required."""
    need("postgres", postgres.local())


@pytest.fixture
def valkey_on_path(tmp_path, monkeypatch):
    """A `redis-server` on the PATH: the names of both are looked for."""
    binary = valkey.wheel_binary()
    assert binary is not None
    script(tmp_path / "bin" / "redis-server", f'exec "{binary}" "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")


def need(engine: str, found: object) -> None:
    """Skip the test, or fail it if the engine is required, when a recipe is missing something."""
    if isinstance(found, Missing):
        reason = f"{engine}: {found.sentence}. Next: {found.next_command}"
        if engine in required_engines():
            pytest.fail(f"required but not available: {reason}", pytrace=False)
        pytest.skip(reason)


@pytest.fixture
def engine_here():
    """The container engine with the images in place. Skips without; fails where it is required.

    `containers` in ACKADEMY_REQUIRE_ENGINES makes it so.
    """
    found = container_engine.find()
    if isinstance(found, Missing):
        reason = f"containers: {found.sentence}. Next: {found.next_command}"
    else:
        images = [image.name for image in IMAGES.values()]
        absent = [name for name in images if not container_engine.has_image(found.endpoint, name)]
        if not absent:
            return found
        reason = f"containers: the images {', '.join(absent)} are not here. Next: docker pull {absent[0]}"
    if "containers" in required_engines():
        pytest.fail(f"required but not available: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def no_engine(monkeypatch, tmp_path):
    """A machine without Docker and Podman, whatever this one has."""
    monkeypatch.setattr(container_engine, "_usual_endpoints", list)
    monkeypatch.setattr(container_engine, "_chosen", str)
    monkeypatch.setenv("PATH", str(tmp_path))


def script(path: Path, text: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def nats_on_path(tmp_path, monkeypatch):
    """A `nats-server` on the PATH, as a package manager would have put it there."""
    binary = nats.wheel_binary()
    assert binary is not None
    script(tmp_path / "bin" / "nats-server", f'exec "{binary}" "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def kafka_home(tmp_path, monkeypatch, kafka_installed):
    """A KAFKA_HOME in the layout of Apache's archive: bin/ with start scripts, libs/ with jars."""
    home = tmp_path / "kafka"
    (home / "libs").mkdir(parents=True)
    for jar in kafka_jars.jars():
        (home / "libs" / jar.name).symlink_to(jar)
    # the start cache only saves time, and holds for exactly this class path
    options = f"$KAFKA_HEAP_OPTS $KAFKA_JVM_PERFORMANCE_OPTS $KAFKA_OPTS -XX:AOTCache={kafka.start_cache()}"
    classes = os.pathsep.join(str(jar) for jar in kafka_jars.jars())
    run = f'exec "$JAVA_HOME/bin/java" {options} -cp {classes}'
    script(home / "bin" / "kafka-server-start.sh", f'{run} kafka.Kafka "$@"')
    script(home / "bin" / "kafka-storage.sh", f'{run} kafka.tools.StorageTool "$@"')
    monkeypatch.setenv("JAVA_HOME", str(kafka.wheel_java().parent.parent))
    monkeypatch.setenv("KAFKA_HOME", str(home))
    return home
