"""The doctor: what it says of this machine, and of machines that lack one thing or another."""

from __future__ import annotations

import json
import shutil
import socket
from types import SimpleNamespace

import pytest

from autograder import brokers
from autograder.brokers import compose, compose_control, container_engine, kafka_jars
from autograder.brokers.container_engine import Engine
from autograder.brokers.server import Missing
from autograder.cli import findings
from autograder.cli.findings import FAULT, GOOD, NOTE
from autograder.subject import isolation


@pytest.fixture(autouse=True)
def own_grounds(tmp_path, monkeypatch):
    """No servers, services and records but this test's."""
    monkeypatch.setenv("ACKADEMY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COMPOSE_PROJECT_NAME", "ackademy-tests")
    for service in compose.SERVICES.values():
        monkeypatch.setenv(service.variable, "1")


def found(look):
    return {finding.name: finding for finding in look()}


def test_it_says_of_each_thing_how_it_is_and_what_that_means(run):
    ran = run("doctor")
    assert ran.code == 0
    assert "✓ python: 3." in ran.out
    for area in ("engines", "python", "system", "containers", "java", "ports", "disk"):
        assert f"\n{area}\n" in ran.out
    assert ran.out.rstrip().endswith("Checks can work here.\nNext: ackademy check")


def test_programs_get_the_same_as_json(run):
    ran = run("doctor", "--json")
    said = json.loads(ran.out)
    assert said["format"] == "ackademy-doctor-1"
    assert {"nats", "pika", "landlock", "docker", "cache"} <= {f["name"] for f in said["findings"]}
    for finding in said["findings"]:
        assert finding["state"] in {GOOD, NOTE, FAULT}
        assert finding["says"]
        assert finding["means"]
        assert not finding["command"].startswith("uv run ackademy")


def test_a_machine_without_any_broker_is_a_fault(run, monkeypatch):
    lacks = {"embedded": Missing("the wheel is not installed", "uv pip install a-wheel")}
    monkeypatch.setattr(brokers, "available", lambda engine: lacks)
    ran = run("doctor")
    assert ran.code == 3
    assert "- nats: not to be had here: the wheel is not installed" in ran.out
    assert "to mend it: uv pip install a-wheel" in ran.out
    assert "✗ all: there is no broker at all" in ran.out
    assert "Checks cannot work here: all." in ran.out


def test_a_machine_without_containers_can_work_all_the_same(run, monkeypatch):
    lack = Missing("neither Docker nor Podman is installed", "sudo apt-get install -y docker.io")
    monkeypatch.setattr(container_engine, "find", lambda: lack)
    monkeypatch.setattr(
        compose_control, "command", lambda: Missing("Compose is not installed", "mend")
    )
    ran = run("doctor")
    assert ran.code == 0
    assert "- docker: neither Docker nor Podman is installed" in ran.out
    assert "to mend it: sudo apt-get install -y docker.io" in ran.out
    assert "- compose: Compose is not installed" in ran.out


def test_images_that_would_have_to_be_fetched_are_named(monkeypatch):
    monkeypatch.setattr(container_engine, "find", lambda: Engine("unix:///x", "Podman", "5"))
    monkeypatch.setattr(container_engine, "has_image", lambda endpoint, image: "nats" in image)
    monkeypatch.setattr(
        compose_control, "command", lambda: Missing("Compose is not installed", "mend")
    )
    said = found(findings.containers)
    assert (said["nats:2"].state, said["nats:2"].command) == (GOOD, "")
    kafka = said["apache/kafka:4.1.0"]
    assert (kafka.state, kafka.command) == (NOTE, "podman pull docker.io/apache/kafka:4.1.0")


@pytest.mark.parametrize(
    ("version", "state", "words"),
    [
        (0, NOTE, "not there"),
        (3, NOTE, "files only"),
        (4, GOOD, "not signals"),
        (6, GOOD, "signals"),
    ],
)
def test_landlock_is_told_by_what_it_holds_back(monkeypatch, version, state, words):
    monkeypatch.setattr(isolation, "landlock_version", lambda: version)
    landlock = found(findings.system)["landlock"]
    assert landlock.state == state
    assert words in landlock.says


@pytest.mark.parametrize(("free", "state"), [(1e8, FAULT), (1e9, NOTE), (1e10, GOOD)])
def test_a_full_disk_is_a_fault_and_a_small_one_is_noted(monkeypatch, free, state):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    cache = found(findings.disk)["cache"]
    assert cache.state == state
    assert bool(cache.command) == (state != GOOD)


def test_a_taken_port_names_the_variable_that_moves_the_service(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("ACKADEMY_NATS_PORT", str(port))
        monkeypatch.setattr(compose, "_LOOK_TIMEOUT_S", 0.1)
        nats = found(findings.ports)["nats"]
    assert nats.state == NOTE
    assert f"{port}: taken by another program" in nats.says
    assert nats.command.startswith("export ACKADEMY_NATS_PORT=")
    assert found(findings.ports)["nats"].state == GOOD


def test_missing_jars_name_the_command_that_installs_them(monkeypatch, tmp_path):
    monkeypatch.setenv("ACKADEMY_CACHE_DIR", str(tmp_path))
    jars = found(findings.java)["kafka's jars"]
    assert (jars.state, jars.command) == (NOTE, kafka_jars.INSTALL_COMMAND)


def test_a_look_that_fails_is_a_finding_and_the_others_go_on(run, monkeypatch):
    def broken(engine):
        raise OSError("the moon is down")

    monkeypatch.setattr(brokers, "available", broken)
    ran = run("doctor")
    assert ran.code == 0
    assert "- engines: cannot be looked at: the moon is down" in ran.out
    assert "✓ python: 3." in ran.out
