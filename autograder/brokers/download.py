"""Fetches a set of files with known sizes and SHA-256 sums, all of them or none.

Interrupted downloads are taken up where they ended (RFC 9110, section 14: Range). A file gets its
own name only after its sum was checked.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import shutil
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import httpx

from autograder.brokers.server import Progress, Remote
from autograder.model import GraderError

_AT_ONCE = 6
_TRIES = 4
_TIMEOUT = httpx.Timeout(15.0, connect=10.0)
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class ChecksumError(GraderError):
    """What arrived is not what was published: a broken mirror, or somebody in between."""


class OfflineError(GraderError):
    """The source cannot be reached, or broke off again and again."""


class NoRoomError(GraderError):
    """The disk, or a quota on it, is full."""


class ReadOnlyError(GraderError):
    """The folder does not let us write."""


class _StoppedError(Exception):
    """Another file failed, or Ctrl-C: the rest is not wanted now."""


class _BrokenOffError(Exception):
    """A transfer ended early; what came is kept."""


class _Stop(threading.Event):
    """Tells every transfer to end, also one that waits for a silent server."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets: set[socket.socket] = set()

    def set(self) -> None:
        super().set()
        for each in self._sockets.copy():
            with contextlib.suppress(OSError):  # it has just ended by itself
                each.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def wakes(self, response: httpx.Response) -> Iterator[None]:
        """While the block runs, `set` ends what it reads from `response`."""
        connection = response.extensions["network_stream"].get_extra_info("socket")
        self._sockets.add(connection)
        try:
            if self.is_set():
                raise _StoppedError
            yield
        finally:
            self._sockets.discard(connection)


class _Tally:
    """How many bytes of each file are there."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self._have: dict[str, int] = {}
        self._lock = threading.Lock()

    def have(self, file: Remote, count: int) -> None:
        with self._lock:
            self._have[file.name] = count
            if self._progress is not None:
                self._progress(sum(self._have.values()), self._total)


def fetch(
    files: Sequence[Remote],
    base_url: str,
    folder: Path,
    *,
    progress: Progress | None = None,
    next_command: str = "",
) -> None:
    """Bring every file into `folder`, which may hold some of them, whole or in part.

    Raises
    ------
    ChecksumError, OfflineError, NoRoomError, ReadOnlyError
        With what to do next. What was fetched completely stays for the next attempt.
    """
    with explained(folder, next_command):
        folder.mkdir(parents=True, exist_ok=True)
        tally = _Tally(sum(file.size for file in files), progress)
        missing = [file for file in files if not _present(folder / file.name, file, tally)]
        if missing:
            _need_room(folder, missing, next_command)
            _fetch_all(missing, base_url, folder, tally, next_command)


def _fetch_all(
    files: Sequence[Remote], base_url: str, folder: Path, tally: _Tally, next_command: str
) -> None:
    stop = _Stop()
    limits = httpx.Limits(max_connections=_AT_ONCE)
    with (
        httpx.Client(timeout=_TIMEOUT, limits=limits, follow_redirects=True) as client,
        ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="download") as pool,
    ):
        try:
            work = [
                pool.submit(_Transfer(client, file, base_url, folder, tally, stop, next_command))
                for file in sorted(files, key=lambda file: -file.size)
            ]
            wait(work, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()  # on Ctrl-C too: leaving the pool waits for its threads
    failures = [error for future in work if (error := future.exception()) is not None]
    for error in sorted(failures, key=lambda error: isinstance(error, _StoppedError)):
        raise error  # the cause, not one of those that were stopped because of it


@dataclass
class _Transfer:
    """One file on its way."""

    client: httpx.Client
    file: Remote
    base_url: str
    folder: Path
    tally: _Tally
    stop: _Stop
    next_command: str

    def __call__(self) -> None:
        try:
            self._run()
        except Exception as error:
            if self.stop.is_set():  # whatever it was, it is because we were told to stop
                raise _StoppedError from error
            self.stop.set()
            raise

    def _run(self) -> None:
        part = self.folder / f"{self.file.name}.part"
        why = ""
        for attempt in range(_TRIES):
            if self.stop.wait(0.2 * 2**attempt if attempt else 0):
                raise _StoppedError
            resumed = _size(part)
            try:
                if resumed != self.file.size:  # else it was interrupted just before its check
                    self._transfer(part)
                if self._accept(part):
                    return
            except (_BrokenOffError, httpx.RequestError, httpx.InvalidURL) as error:
                why = str(error) or type(error).__name__
                if attempt and not resumed and not isinstance(error, _BrokenOffError):
                    break  # twice nothing at all: no network, and waiting does not mend it
                continue
            if not resumed:
                raise self._wrong_sum()
            why = "its first part did not fit the rest"
        raise OfflineError(
            f"{self.base_url} cannot be reached, or breaks off: {self.file.name}: {why}. "
            "What has arrived is kept.",
            next_command=self.next_command,
        )

    def _transfer(self, part: Path) -> None:
        have = _size(part)
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        url = f"{self.base_url.rstrip('/')}/{self.file.path}"
        with self.client.stream("GET", url, headers=headers) as response:
            if response.status_code not in {200, 206}:
                if response.status_code == 416:  # the part is longer than the file
                    part.unlink(missing_ok=True)
                if response.status_code >= 500 or response.status_code in {416, 429}:
                    raise _BrokenOffError(f"status {response.status_code}")
                raise OfflineError(
                    f"{url} answered with status {response.status_code}.",
                    next_command=self.next_command,
                )
            with self.stop.wakes(response):
                self._receive(response, part, resume=response.status_code == 206 and have > 0)

    def _receive(self, response: httpx.Response, part: Path, *, resume: bool) -> None:
        counted = _size(part) if resume else 0
        with part.open("ab" if resume else "wb") as output:
            for chunk in response.iter_raw():
                if self.stop.is_set():
                    raise _StoppedError
                counted += len(chunk)
                if counted > self.file.size:
                    raise self._wrong_sum()
                write(output, chunk)
                self.tally.have(self.file, counted)
        if counted < self.file.size:
            raise _BrokenOffError("the connection ended early")

    def _accept(self, part: Path) -> bool:
        """Give the file its name when its sum is right; else away with it."""
        if _size(part) == self.file.size and _sha256(part) == self.file.sha256:
            part.replace(self.folder / self.file.name)
            self.tally.have(self.file, self.file.size)
            return True
        part.unlink()
        return False

    def _wrong_sum(self) -> ChecksumError:
        (self.folder / f"{self.file.name}.part").unlink(missing_ok=True)
        return ChecksumError(
            f"{self.file.name} from {self.base_url} is not the file that was published "
            "(its SHA-256 differs). It was not kept; the mirror or a proxy may be at fault.",
            next_command=self.next_command,
        )


def write(output: object, chunk: bytes) -> None:
    """Write one chunk; a seam for tests that need a full disk."""
    output.write(chunk)  # type: ignore[attr-defined]  # any binary file


def _present(path: Path, file: Remote, tally: _Tally) -> bool:
    if not path.exists():
        return False
    if path.stat().st_size == file.size and _sha256(path) == file.sha256:
        tally.have(file, file.size)
        return True
    path.unlink()
    return False


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _need_room(folder: Path, files: Sequence[Remote], next_command: str) -> None:
    needed = sum(file.size for file in files)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise _no_room(
            folder, f"{needed / 1e6:.0f} MB are needed, {free / 1e6:.0f} MB are free", next_command
        )


def _no_room(folder: Path, why: str, next_command: str) -> NoRoomError:
    return NoRoomError(
        f"There is no room in {folder}: {why}. "
        "Free some, or choose another folder with ACKADEMY_CACHE_DIR.",
        next_command=next_command,
    )


@contextlib.contextmanager
def explained(folder: Path, next_command: str) -> Iterator[None]:
    """Turn what the operating system says about `folder` into what a person can mend."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise _no_room(folder, error.strerror or "the disk is full", next_command) from error
        raise ReadOnlyError(
            f"The cache folder {folder} cannot be written ({error.strerror or error}). "
            "Choose another one with ACKADEMY_CACHE_DIR.",
            next_command=f"export ACKADEMY_CACHE_DIR=~/ackademy-cache && {next_command}",
        ) from error
