"""Finding a container engine, and what is said where there is none, or it has not what we want."""

from __future__ import annotations

import hashlib
import json
import socketserver
import struct
import threading
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

import pytest

from autograder.brokers import container_engine, container_start
from autograder.brokers.container_engine import Engine
from autograder.brokers.process import CalledOffError, Patience
from autograder.brokers.server import Missing
from autograder.model import GraderError
from autograder.tests.brokers.conftest import script

DOCKER = {"Version": "27.1", "ApiVersion": "1.46", "Components": [{"Name": "Engine"}]}
PODMAN = {"Version": "5.4", "ApiVersion": "1.41", "Components": [{"Name": "Podman Engine"}]}


class Handler(BaseHTTPRequestHandler):
    """Answers with what the test put on the server: by path a status and lines, in chunks."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = urlsplit(self.path).path
        path = path if not path.startswith("/v1.") else "/" + path.split("/", 2)[2]
        status, lines = self.server.answers.get(path, (404, ['{"message": "no such thing"}']))
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in lines:
            data = line if isinstance(line, bytes) else line.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    do_POST = do_GET  # noqa: N815 - the other name that it looks for

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Starts engines that say what a test wants, on sockets of their own."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker-config"))
    running = []

    def start(version, place="engine.sock", **answers):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
        server.daemon_threads = True
        server.answers = {"/version": (200, [json.dumps(version)]), **answers}
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        running.append((server, thread))
        return f"unix://{path}"

    yield start
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def bare(monkeypatch, tmp_path, fake):
    """A machine with no sockets and no commands but those a test makes."""
    monkeypatch.setattr(container_engine, "_usual_endpoints", lambda: [f"unix://{tmp_path}/none"])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def test_the_engine_says_who_it_is(fake, monkeypatch):
    for version, name in ((DOCKER, "Docker"), (PODMAN, "Podman")):
        endpoint = fake(version, f"{name}.sock")
        monkeypatch.setenv("DOCKER_HOST", endpoint)
        assert container_engine.find() == Engine(endpoint, name, version["Version"])


def test_the_current_context_is_followed_as_the_docker_command_does(fake, bare):
    endpoint = fake(DOCKER)
    folder = bare / "docker-config"
    meta = folder / "contexts" / "meta" / hashlib.sha256(b"work").hexdigest() / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"Endpoints": {"docker": {"Host": endpoint}}}))
    (folder / "config.json").write_text(json.dumps({"currentContext": "work"}))
    assert container_engine.find() == Engine(endpoint, "Docker", "27.1")


@pytest.mark.parametrize("place", ["docker.sock", "podman/podman.sock"])
def test_the_sockets_of_rootless_engines_are_tried(fake, monkeypatch, tmp_path, place):
    endpoint = fake(DOCKER, f"run/{place}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    usual = container_engine._usual_endpoints()
    assert usual[0] == "unix:///var/run/docker.sock"
    ours = [each for each in usual if str(tmp_path) in each]
    monkeypatch.setattr(container_engine, "_usual_endpoints", lambda: ours)
    assert container_engine.find() == Engine(endpoint, "Docker", "27.1")


def test_a_machine_without_an_engine(bare):
    found = container_engine.find()
    assert isinstance(found, Missing)
    assert found.sentence == "neither Docker nor Podman is installed"
    assert found.next_command


def test_an_engine_that_does_not_run(bare):
    script(bare / "bin" / "podman", "exit 0")
    found = container_engine.find()
    assert isinstance(found, Missing)
    assert "Podman is installed, but its socket is not active" in found.sentence
    script(bare / "bin" / "docker", "exit 0")
    found = container_engine.find()
    assert isinstance(found, Missing)
    assert "its engine is not running" in found.sentence
    assert found.next_command


def test_a_chosen_engine_that_does_not_answer_is_not_quietly_replaced(bare, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{bare}/gone.sock")
    found = container_engine.find()
    assert isinstance(found, Missing)
    assert f"no container engine answers at unix://{bare}/gone.sock" in found.sentence
    assert found.next_command == "unset DOCKER_HOST"


def test_an_engine_that_is_for_others(bare, monkeypatch):
    def refuse(endpoint, timeout_s):
        raise PermissionError(13, "Permission denied")

    script(bare / "bin" / "docker", "exit 0")
    monkeypatch.setattr(container_engine, "_connect", refuse)
    found = container_engine.find()
    assert isinstance(found, Missing)
    assert "you may not use the container engine" in found.sentence
    assert "usermod" in found.next_command


def test_something_else_at_the_socket_is_no_engine(fake, bare, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", fake({"hello": "world"}))
    assert isinstance(container_engine.find(), Missing)


@pytest.mark.parametrize("endpoint", ["ssh://me@far", "tcp://10.0.0.7:2376"])
def test_an_engine_of_another_machine_is_of_no_use(fake, monkeypatch, endpoint):
    monkeypatch.setenv("DOCKER_HOST", endpoint)
    found = container_engine.find()
    assert isinstance(found, Missing)
    assert endpoint in found.sentence
    assert found.next_command == "unset DOCKER_HOST"


def test_an_engine_that_has_gone_is_no_trouble_to_those_who_clean_up(tmp_path):
    gone = f"unix://{tmp_path}/none"
    assert container_engine.containers(gone, "a") == []
    assert container_engine.state(gone, "a") == {}
    assert container_engine.log(gone, "a") == ""
    assert container_engine.memory_bytes(gone, "a") == 0
    assert not container_engine.has_image(gone, "a")
    assert not container_engine.remove(gone, "a")


def test_a_log_comes_in_frames_or_plain(fake):
    framed = b"".join(
        struct.pack(">BxxxI", stream, len(text)) + text
        for stream, text in ((1, b"one\n"), (2, b"two\n"))
    )
    answers = {"/containers/a/logs": (200, [framed]), "/containers/b/logs": (200, ["plain\n"])}
    endpoint = fake(DOCKER, **answers)
    assert container_engine.log(endpoint, "a") == "one\ntwo\n"
    assert container_engine.log(endpoint, "b") == "plain\n"


def pull(fake, *events):
    endpoint = fake(DOCKER, **{"/images/create": (200, [json.dumps(e) + "\n" for e in events])})
    return Engine(endpoint, "Docker", "27.1")


def layer(name, current, total):
    detail = {"current": current, "total": total}
    return {"status": "Downloading", "id": name, "progressDetail": detail}


def test_a_slow_pull_says_how_far_it_is(fake, monkeypatch, capsys):
    monkeypatch.setattr(container_start, "_TELL_EVERY_S", 0.0)
    engine = pull(fake, layer("a", 0, 30_000_000), layer("b", 10_000_000, 20_000_000), {"id": "c"})
    container_start.ensure_image(engine, "some/image:1", Patience())
    told = capsys.readouterr().err
    assert "Fetching the image some/image:1, once" in told
    assert "10 of 50 MB" in told


def test_a_pull_that_fails_on_its_way_says_why(fake):
    engine = pull(fake, layer("a", 0, 1), {"error": "toomanyrequests: slow down."})
    with pytest.raises(GraderError, match=r"cannot be fetched: toomanyrequests: slow down\.") as r:
        container_start.ensure_image(engine, "some/image:1", Patience())
    assert r.value.next_command == "docker pull some/image:1"


def test_an_image_the_registry_does_not_have(fake):
    answer = (404, ['{"message": "manifest unknown"}'])
    engine = Engine(fake(PODMAN, **{"/images/create": answer}), "Podman", "5.4")
    with pytest.raises(GraderError, match=r"does not have it \(manifest unknown\)") as raised:
        container_start.ensure_image(engine, "some/image:1", Patience())
    assert raised.value.next_command == "podman pull docker.io/some/image:1"


# the SDK gives no way to close the stream of a pull that is given up; Python does it, and warns
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_pull_can_be_called_off(fake):
    engine, patience = pull(fake, layer("a", 0, 1)), Patience()
    patience.call_off()
    with pytest.raises(CalledOffError):
        container_start.ensure_image(engine, "some/image:1", patience)


def test_an_image_that_is_here_is_not_fetched(fake, capsys):
    engine = Engine(fake(DOCKER, **{"/images/some/image:1/json": (200, ["{}"])}), "Docker", "27.1")
    container_start.ensure_image(engine, "some/image:1", Patience())
    assert capsys.readouterr().err == ""
