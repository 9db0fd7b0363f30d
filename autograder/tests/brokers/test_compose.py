"""Services of docker-compose.yml: found while they run, told apart from strangers, started, stopped."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from autograder import brokers
from autograder.brokers import (
    compose,
    compose_control,
    container_engine,
    container_images,
    kafka_config,
    nats,
    process,
    rabbitmq,
    valkey,
)
from autograder.brokers.process import free_ports
from autograder.brokers.server import Missing, MissingError, NotReadyError
from autograder.model import GraderError
from autograder.pytest_plugin import required_engines
from autograder.tests.brokers.conftest import PROJECT, script
from autograder.tests.brokers.contract import PATIENCE_S, BorrowedContract
from autograder.tests.brokers.test_containers import Release

FILE = Path(__file__).parents[3] / "docker-compose.yml"


@pytest.fixture(scope="module")
def project():
    """All three services, under a project and on ports of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMPOSE_PROJECT_NAME", PROJECT)
        rabbit, management = rabbitmq.two_ports()
        nats_port, kafka_port = free_ports(2)
        ports = {
            "ACKADEMY_NATS_PORT": nats_port,
            "ACKADEMY_KAFKA_PORT": kafka_port,
            "ACKADEMY_RABBITMQ_PORT": rabbit,
            "ACKADEMY_RABBITMQ_MANAGEMENT_PORT": management,
        }
        for name, port in ports.items():
            patch.setenv(name, str(port))
        yield {name: str(port) for name, port in ports.items()}
        if not isinstance(compose_control.command(), Missing):
            compose_control._compose("down", "--volumes")


@pytest.fixture
def ports(project, monkeypatch):
    """The same for a single test, whose own grounds have just hidden them."""
    for name, port in project.items():
        monkeypatch.setenv(name, port)


@pytest.fixture
def compose_here(engine_here, ports):
    """Docker Compose on an engine; see `engine_here`."""
    found = compose_control.command()
    if isinstance(found, Missing):
        if "containers" in required_engines():
            pytest.fail(f"required but not available: compose: {found.sentence}", pytrace=False)
        pytest.skip(f"compose: {found.sentence}. Next: {found.next_command}")
    return engine_here


@pytest.fixture
def all_up(compose_here):
    """The services as somebody would start them by hand."""
    command = ["docker", "compose", "--file", str(FILE), "up", "--wait"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return compose_here


class ComposeContract(BorrowedContract):
    """What is owed by servers that were there before, of services started by hand."""

    provider = "compose"

    @pytest.fixture
    def place(self, all_up):
        return all_up

    def acquire(self):
        return brokers.acquire(self.engine)  # found without being named

    def test_a_server_that_does_not_answer_is_an_error_with_a_next_step(self, place, monkeypatch):
        def refuse(url):
            raise NotReadyError("nobody answers")

        service = replace(compose.SERVICES[self.engine], probe=refuse)
        monkeypatch.setattr(compose, "SERVICES", {**compose.SERVICES, self.engine: service})
        monkeypatch.setattr(compose, "_OPEN_TIMEOUT_S", 0.1)
        with pytest.raises(GraderError, match="did not get ready: nobody answers") as raised:
            self.acquire().__enter__()
        assert "Its last words" in raised.value.sentence
        assert raised.value.next_command


@pytest.mark.container
@pytest.mark.nats
@pytest.mark.slow
class TestComposeNats(ComposeContract):
    engine, version = "nats", Release("2")


@pytest.mark.container
@pytest.mark.kafka
@pytest.mark.slow
class TestComposeKafka(ComposeContract):
    engine, version = "kafka", "4.1"


@pytest.mark.container
@pytest.mark.rabbitmq
@pytest.mark.slow
class TestComposeRabbit(ComposeContract):
    engine, version = "rabbitmq", Release("4")


@pytest.mark.container
@pytest.mark.slow
class TestServices:
    def test_it_is_listed_and_goes_before_a_warm_server_but_not_before_a_named_one(
        self, all_up, monkeypatch
    ):
        brokers.up(["nats"], "embedded")
        standings = {
            each.provider: each for each in brokers.status().servers if each.engine == "nats"
        }
        assert standings["compose"].healthy
        assert standings["compose"].memory_bytes > 1_000_000
        with brokers.acquire("nats") as server:
            assert server.provider == "compose"
        monkeypatch.setenv("ACKADEMY_NATS_URL", server.url)
        with brokers.acquire("nats") as server:
            assert server.provider == "external"

    def test_only_the_loopback_is_published(self, all_up):
        for engine, (name, _) in compose_control.containers_of(all_up.endpoint, compose.SERVICES):
            said = container_engine.request(
                all_up.endpoint, "GET", f"/containers/{name}/json"
            ).json()
            bindings = [
                each for port in said["HostConfig"]["PortBindings"].values() for each in port
            ]
            assert bindings, engine
            assert {each["HostIp"] for each in bindings} == {"127.0.0.1"}

    def test_down_stops_what_it_was_asked_to_and_keeps_what_was_stored(self, all_up):
        with brokers.acquire("nats") as server:
            _store(server.url)
        assert brokers.down(["nats"]) == ["nats"]
        assert {each.engine for each in compose_control.running()} == {"kafka", "rabbitmq"}
        assert brokers.available("nats")["compose"] is not None
        [server] = brokers.up(["nats"], "compose")
        assert _is_stored(server.url)
        assert brokers.up(["nats"], "compose") == [server]
        assert sorted(brokers.down()) == ["kafka", "nats", "rabbitmq"]
        assert compose_control.running() == []
        assert brokers.down() == []

    def test_a_taken_port_names_the_variable_that_moves_it(self, compose_here, monkeypatch):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            monkeypatch.setenv("ACKADEMY_NATS_PORT", str(taken.getsockname()[1]))
            with pytest.raises(GraderError, match="is taken by another program") as raised:
                brokers.up(["nats"], "compose")
        assert raised.value.next_command.startswith("export ACKADEMY_NATS_PORT=")
        brokers.down(["nats"])

    def test_a_service_that_dies_is_quoted(self, compose_here, monkeypatch, tmp_path):
        text = FILE.read_text().replace('"/etc/nats/ackademy.conf"]', '"/none.conf"]')
        (tmp_path / "docker-compose.yml").write_text(text)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(
            GraderError, match=r"did not get ready: it stopped \(exit code 1\)"
        ) as raised:
            brokers.up(["nats"], "compose")
        assert "/none.conf" in raised.value.sentence
        brokers.down(["nats"])


def _talk(url, *lines):
    """A few lines to a NATS server, and its first answer to a request."""
    host, port = url.removeprefix("nats://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        stream = connection.makefile("rwb")
        stream.readline()
        stream.write(b'CONNECT {"verbose":false}\r\nSUB answers 1\r\n' + b"".join(lines))
        stream.flush()
        while not stream.readline().startswith(b"MSG"):
            pass
        return stream.readline()


def _store(url):
    body = b'{"name":"kept","subjects":["kept"]}'
    subject = b"$JS.API.STREAM.CREATE.kept"
    assert b"error" not in _talk(url, b"PUB %b answers %d\r\n%b\r\n" % (subject, len(body), body))


def _is_stored(url):
    return b'"name":"kept"' in _talk(url, b"PUB $JS.API.STREAM.INFO.kept answers 0\r\n\r\n")


@contextlib.contextmanager
def stranger(*says):
    """Another program on a port; it says this to whoever connects, and then waits."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def serve():
            server.settimeout(0.05)
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    connection, _ = server.accept()
                    with connection:
                        for text in says:
                            connection.sendall(text)
                        stop.wait(0.3)

        thread = threading.Thread(target=serve)
        thread.start()
        yield str(server.getsockname()[1])
        stop.set()
        thread.join()


@pytest.mark.parametrize("engine", list(compose.SERVICES))
@pytest.mark.parametrize(
    "says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"INFO {}\r\n", b"\0" * 64]
)
def test_a_stranger_on_the_port_is_left_alone(monkeypatch, engine, says):
    monkeypatch.setattr(compose, "_LOOK_TIMEOUT_S", 0.2)
    with stranger(says) as port:
        monkeypatch.setenv(compose.SERVICES[engine].variable, port)
        assert isinstance(compose.Compose(engine).missing(), Missing)


@pytest.mark.nats
def test_another_nats_server_on_the_port_is_not_ours(monkeypatch):
    with brokers.acquire("nats", "embedded") as server:
        monkeypatch.setenv("ACKADEMY_NATS_PORT", str(server.address[1]))
        found = compose.Compose("nats").missing()
        assert isinstance(found, Missing)
        assert found.next_command == "ackademy brokers up nats --provider compose"
        with pytest.raises(MissingError):
            brokers.acquire("nats", "compose").__enter__()


def test_ports_come_from_the_environment_then_from_the_file_beside_compose_then_as_usual(
    monkeypatch, tmp_path
):
    service = compose.SERVICES["nats"]
    monkeypatch.setenv(service.variable, "4333")
    assert service.place == ("127.0.0.1", 4333)
    monkeypatch.delenv(service.variable)
    (tmp_path / "docker-compose.yml").write_text("# ours\nname: ackademy\n")
    (tmp_path / "lessons").mkdir()
    monkeypatch.chdir(tmp_path / "lessons")
    assert service.place == ("127.0.0.1", 4222)
    (tmp_path / ".env").write_text("# ports\nACKADEMY_NATS_PORT = '4444' # moved\n")
    assert service.place == ("127.0.0.1", 4444)


def test_the_compose_file_of_another_project_is_not_taken(monkeypatch, tmp_path):
    (tmp_path / "docker-compose.yml").write_text("name: other\n")
    monkeypatch.chdir(tmp_path)
    assert compose.file() == FILE


def test_without_an_engine_up_says_so_and_down_has_nothing_to_do(no_engine):
    with pytest.raises(GraderError, match="compose service nats cannot be started: neither"):
        brokers.up(["nats"], "compose")
    assert brokers.down() == []
    assert compose_control.running() == []


def test_an_old_compose_is_told_from_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = compose_control.command()
    assert isinstance(found, Missing)
    assert "is not installed" in found.sentence
    script(tmp_path / "docker-compose", "echo 1.29.2")
    found = compose_control.command()
    assert isinstance(found, Missing)
    assert "is 1.29.2, and 2.23.1 is needed" in found.sentence
    script(tmp_path / "docker-compose", "echo v2.40.0-desktop.1")
    assert compose_control.command() == ["docker-compose"]


@pytest.mark.valkey
def test_valkey_is_known_by_the_user_that_the_file_gives_it(monkeypatch):
    line = next(each for each in FILE.read_text().splitlines() if '"valkey-server"' in each)
    _, *told = json.loads(line.partition("command: ")[2])
    port = str(free_ports(1)[0])
    command = [str(valkey.wheel_binary()), "--port", port, "--bind", "127.0.0.1", *told]
    monkeypatch.setenv("ACKADEMY_REDIS_PORT", port)
    with subprocess.Popen([*command, "--save", ""], stdout=subprocess.DEVNULL) as server:
        try:
            service = compose.SERVICES["valkey"]
            assert process.wait_until(service.is_running, timeout_s=PATIENCE_S)
            assert service.server().version
        finally:
            server.kill()


@pytest.mark.parametrize("store", ["postgres", "valkey"])
def test_another_store_on_the_port_is_not_ours(monkeypatch, store):
    with brokers.acquire(store, "embedded") as server:
        monkeypatch.setenv(compose.SERVICES[store].variable, str(server.address[1]))
        assert isinstance(compose.Compose(store).missing(), Missing)


def test_the_file_tells_each_broker_what_the_throwaway_ones_are_told():
    text = FILE.read_text()
    kafka = dict(re.findall(r"^      KAFKA_(\w+): \"?([^\"\n]+?)\"?$", text, re.MULTILINE))
    for line in kafka_config.SETTINGS.splitlines():
        name, _, value = line.partition("=")
        assert kafka[name.upper().replace(".", "_")] == value
    for settings in (
        nats.configuration("0.0.0.0:4222", "/data"),
        rabbitmq.SETTINGS,
        rabbitmq.ADVANCED,
    ):
        for line in settings.splitlines():
            assert line in text
    assert rabbitmq.VM_OPTIONS in text


def test_marks_and_images_in_the_file_are_those_that_are_looked_for():
    text = FILE.read_text()
    assert f"\nname: {compose.NAME}\n" in text
    assert f"CLUSTER_ID: {compose.CLUSTER_ID} " in text
    assert f"server_name: {compose.MARK}\n" in text
    assert f"hostname: {compose.MARK} " in text
    for service in compose.SERVICES.values():
        assert f"${{{service.variable}:-{service.port}}}" in text
    images = re.findall(r"^    image: (\S+)", text, re.MULTILINE)
    for image in container_images.IMAGES.values():
        assert any(name.startswith(image.name) for name in images)
    assert all(re.search(r":\d", name) for name in images)  # pinned
