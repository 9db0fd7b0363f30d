"""Fetching Kafka's jars: resumed, checked, all or nothing; and what is said when it fails."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from autograder.brokers import download, kafka_jars, process
from autograder.brokers.server import Remote
from autograder.model import GraderError

CONTENTS = {f"org/example/{name}/1/{name}-1.jar": name.encode() * 60_000 for name in "abcdef"}
FILES = tuple(
    Remote(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in CONTENTS.items()
)
FIRST = FILES[0]


class Repository:
    """A Maven repository on loopback that can misbehave; `asked` holds (path, Range) pairs."""

    def __init__(self) -> None:
        self.contents = dict(CONTENTS)
        self.asked: list[tuple[str, str]] = []
        self.breaks_off_after: dict[str, int] = {}  # path -> bytes, the first time only
        self.stalls_after: int | None = None
        self.status = 0
        self.ranges = True
        self.go_on = threading.Event()
        repository = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                repository.answer(self)

            def log_message(self, *args) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/maven2"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def answer(self, request) -> None:
        path = request.path.removeprefix("/maven2/")
        wanted = request.headers.get("Range", "")
        self.asked.append((path, wanted))
        data = self.contents.get(path)
        if self.status or data is None:
            request.send_error(self.status or 404)
            return
        start = int(re.sub(r"\D", "", wanted)) if wanted and self.ranges else 0
        if start >= len(data):
            request.send_error(416)
            return
        rest = data[start:]
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(rest)))
        request.end_headers()
        with contextlib.suppress(OSError):  # the client may have gone
            cut = self.breaks_off_after.pop(path, None)
            if self.stalls_after is not None:
                request.wfile.write(rest[: self.stalls_after])
                request.wfile.flush()
                self.go_on.wait(30)
                rest = rest[self.stalls_after :]
            request.wfile.write(rest[:cut])

    def close(self) -> None:
        self.go_on.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ACKADEMY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kafka_jars, "_lock", lambda: ("9.9", FILES))
    return tmp_path / "cache"


@pytest.fixture
def repository(monkeypatch):
    repository = Repository()
    monkeypatch.setenv("ACKADEMY_MAVEN_URL", repository.url)
    yield repository
    repository.close()


def part_of(cache, file=FIRST):
    """Where an unfinished download of `file` is kept."""
    folder = cache / "kafka-9.9.partial" / "jars"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{file.name}.part"


def test_everything_arrives_and_is_what_was_pinned(cache, repository):
    steps = []
    assert not kafka_jars.installed()
    home = kafka_jars.install(lambda done, total: steps.append((done, total)))
    assert kafka_jars.installed()
    assert {path.name: path.read_bytes() for path in (home / "jars").iterdir()} == {
        path.rpartition("/")[2]: data for path, data in CONTENTS.items()
    }
    assert steps[-1] == (kafka_jars.size_bytes(), kafka_jars.size_bytes())
    assert steps == sorted(steps)
    assert {path.name for path in cache.iterdir()} == {"kafka-9.9", "kafka-9.9.lock"}


def test_a_second_time_nothing_is_fetched(cache, repository):
    kafka_jars.install()
    repository.asked.clear()
    steps = []
    kafka_jars.install(lambda done, total: steps.append((done, total)))
    assert repository.asked == []
    assert steps == [(kafka_jars.size_bytes(),) * 2]


def test_a_download_that_breaks_off_is_taken_up_where_it_ended(cache, repository):
    repository.breaks_off_after = {FIRST.path: 20_000}
    kafka_jars.install()
    assert [wanted for path, wanted in repository.asked if path == FIRST.path] == [
        "",
        "bytes=20000-",
    ]
    assert kafka_jars.installed()


def test_so_is_one_that_an_earlier_command_left(cache, repository):
    part_of(cache).write_bytes(CONTENTS[FIRST.path][:777])
    kafka_jars.install()
    assert (FIRST.path, "bytes=777-") in repository.asked
    assert kafka_jars.installed()


def test_one_interrupted_just_before_its_check_is_not_fetched_again(cache, repository):
    part_of(cache).write_bytes(CONTENTS[FIRST.path])
    kafka_jars.install()
    assert FIRST.path not in [path for path, _ in repository.asked]
    assert kafka_jars.installed()


@pytest.mark.parametrize("length", [500, FIRST.size, FIRST.size + 9])
def test_a_part_that_does_not_fit_is_thrown_away(cache, repository, length):
    part_of(cache).write_bytes(b"z" * length)
    kafka_jars.install()
    assert repository.asked.count((FIRST.path, "")) == 1
    assert kafka_jars.installed()


def test_a_server_without_ranges_will_do(cache, repository):
    repository.ranges = False
    repository.breaks_off_after = {FIRST.path: 20_000}
    kafka_jars.install()
    assert kafka_jars.installed()


def test_a_file_that_is_not_what_was_pinned_is_not_installed(cache, repository):
    repository.contents[FIRST.path] = b"y" * FIRST.size
    with pytest.raises(download.ChecksumError, match="not the file that was published") as raised:
        kafka_jars.install()
    assert raised.value.exit_code == 3
    assert raised.value.next_command == "ackademy brokers install kafka"
    assert not kafka_jars.installed()
    assert not part_of(cache).exists()
    assert not (cache / "kafka-9.9").exists()


def test_a_file_that_is_too_long_is_not_read_to_its_end(cache, repository):
    repository.contents[FIRST.path] += b"more" * 1_000_000
    with pytest.raises(download.ChecksumError):
        kafka_jars.install()
    assert not part_of(cache).exists()


def test_what_was_fetched_before_a_failure_is_not_fetched_again(cache, repository):
    del repository.contents[FIRST.path]
    repository.contents[FIRST.path] = b"y" * FIRST.size
    with pytest.raises(download.ChecksumError):
        kafka_jars.install()
    kept = {path.name for path in part_of(cache).parent.glob("*.jar")}
    repository.contents = dict(CONTENTS)
    repository.asked.clear()
    kafka_jars.install()
    assert not kept & {path.rpartition("/")[2] for path, _ in repository.asked}
    assert kafka_jars.installed()


def test_offline_is_said_with_what_to_do_next(cache, monkeypatch):
    [port] = process.free_ports(1)
    monkeypatch.setenv("ACKADEMY_MAVEN_URL", f"http://127.0.0.1:{port}")
    with pytest.raises(download.OfflineError, match="cannot be reached") as raised:
        kafka_jars.install()
    assert raised.value.next_command == "ackademy brokers install kafka"
    assert not kafka_jars.installed()


@pytest.mark.parametrize("url", ["nonsense", "http://[", "ftp://example.org"])
def test_an_address_that_is_none_is_said(cache, monkeypatch, url):
    monkeypatch.setenv("ACKADEMY_MAVEN_URL", url)
    with pytest.raises(download.OfflineError):
        kafka_jars.install()


@pytest.mark.parametrize("status", [403, 404, 503])
def test_a_repository_that_refuses_is_said(cache, repository, status):
    repository.status = status
    with pytest.raises(download.OfflineError, match=str(status)):
        kafka_jars.install()


def test_a_full_disk_is_said_and_what_came_is_kept(cache, repository, monkeypatch):
    write = download.write

    def full(output, chunk):
        if output.tell() >= 0 and FIRST.name in output.name:
            write(output, chunk[:100])
            raise OSError(errno.ENOSPC, "No space left on device")
        write(output, chunk)

    monkeypatch.setattr(download, "write", full)
    with pytest.raises(download.NoRoomError, match=r"no room in .*ACKADEMY_CACHE_DIR"):
        kafka_jars.install()
    assert not kafka_jars.installed()
    monkeypatch.setattr(download, "write", write)
    kafka_jars.install()
    assert (FIRST.path, "bytes=100-") in repository.asked
    assert kafka_jars.installed()


def test_too_small_a_disk_is_said_before_anything_is_fetched(cache, repository, monkeypatch):
    class Usage:
        free = 1000

    monkeypatch.setattr(download.shutil, "disk_usage", lambda folder: Usage)
    with pytest.raises(download.NoRoomError, match="are free"):
        kafka_jars.install()
    assert repository.asked == []


@contextlib.contextmanager
def as_nobody():
    """Act as a user who may not write everywhere, which root may."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_cache_that_cannot_be_written_is_said(repository, monkeypatch, tmp_path_factory):
    monkeypatch.setattr(kafka_jars, "_lock", lambda: ("9.9", FILES))
    monkeypatch.setenv("ACKADEMY_CACHE_DIR", "/usr/ackademy-test")
    with as_nobody(), pytest.raises(download.ReadOnlyError, match="cannot be written") as raised:
        kafka_jars.install()
    assert raised.value.next_command.startswith("export ACKADEMY_CACHE_DIR=")


def test_a_cache_that_is_a_file_is_said(cache, repository):
    cache.write_text("")
    with pytest.raises(download.ReadOnlyError):
        kafka_jars.install()


def test_two_installations_at_once_fetch_each_file_once(cache, repository):
    waited = []
    repository.stalls_after = 100
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(kafka_jars.install, waiting=lambda: waited.append(True)) for _ in range(2)
        ]
        assert process.wait_until(lambda: bool(waited), timeout_s=20)
        repository.stalls_after = None
        repository.go_on.set()
        assert both[0].result() == both[1].result()
    assert sorted(path for path, _ in repository.asked) == sorted(CONTENTS)
    assert waited == [True]


def test_an_installation_that_was_damaged_is_repaired(cache, repository):
    home = kafka_jars.install()
    (home / "jars" / FIRST.name).write_bytes(b"short")
    (home / "jars" / FILES[1].name).unlink()
    assert not kafka_jars.installed()
    repository.asked.clear()
    kafka_jars.install()
    assert {path for path, _ in repository.asked} == {FIRST.path, FILES[1].path}
    assert kafka_jars.installed()


def test_ctrl_c_ends_it_soon_and_keeps_what_came(cache, repository):
    code = f"""
        from autograder.brokers import kafka_jars
        from autograder.brokers.server import Remote
        files = {FILES!r}
        kafka_jars._lock = lambda: ("9.9", files)
        kafka_jars.install(lambda done, total: print(done, flush=True))
    """
    repository.stalls_after = 5000
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        assert int(command.stdout.readline()) > 0
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=30)
    assert command.returncode != 0
    assert "KeyboardInterrupt" in said
    assert not kafka_jars.installed()
    parts = list(part_of(cache).parent.glob("*.part"))
    assert any(part.stat().st_size for part in parts)


def test_a_limit_on_file_sizes_counts_as_a_full_disk(cache, repository):
    """RLIMIT_FSIZE is as near to a full disk as a test gets without one."""
    resource = pytest.importorskip("resource", reason="only POSIX limits file sizes")
    code = f"""
        import resource, sys
        from autograder.brokers import download, kafka_jars
        from autograder.brokers.server import Remote
        files = {FILES!r}
        kafka_jars._lock = lambda: ("9.9", files)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            kafka_jars.install()
        except download.NoRoomError as error:
            sys.exit(7)
    """
    assert resource.RLIM_INFINITY is not None
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert ended.returncode == 7
    assert not kafka_jars.installed()


def test_the_lock_names_files_of_maven_central_by_their_sums():
    assert len(kafka_jars.files()) == 46
    assert kafka_jars.size_bytes() == 44_173_905
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) for file in kafka_jars.files())
    assert len({file.name for file in kafka_jars.files()}) == 46
    assert f"kafka_2.13-{kafka_jars.version()}.jar" in {file.name for file in kafka_jars.files()}


@pytest.mark.kafka
def test_what_is_installed_on_this_machine_is_what_is_pinned(kafka_installed):
    for file in kafka_jars.files():
        with (kafka_jars.home() / "jars" / file.name).open("rb") as jar:
            assert hashlib.file_digest(jar, "sha256").hexdigest() == file.sha256


def test_an_error_of_the_machine_is_one_a_person_can_mend(tmp_path):
    with pytest.raises(GraderError), download.explained(tmp_path, "x"):
        raise OSError(errno.EROFS, "Read-only file system")
