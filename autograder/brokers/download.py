"""Fetches a set of files with known sizes and SHA-256 sums, all of them or none.

Interrupted downloads are taken up where they ended (RFC 9110, section 14: Range). A file gets its
own name only after its sum was checked.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import shutil
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
_CHUNK_BYTES = 256 * 1024
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
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


@dataclass
class _Tally:
    """Bytes so far over all files."""

    total: int
    progress: Progress | None
    done: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.done += count
            if self.progress is not None:
                self.progress(self.done, self.total)


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
    stop = threading.Event()
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
            done, _ = wait(work, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()  # on Ctrl-C too, else leaving the pool would wait for the downloads
    for future in done:
        future.result()


@dataclass
class _Transfer:
    """One file on its way."""

    client: httpx.Client
    file: Remote
    base_url: str
    folder: Path
    tally: _Tally
    stop: threading.Event
    next_command: str

    def __call__(self) -> None:
        try:
            self._run()
        except BaseException:
            self.stop.set()
            raise

    def _run(self) -> None:
        part = self.folder / f"{self.file.name}.part"
        why = ""
        for attempt in range(_TRIES):
            resumed = self._resume_from(part)
            try:
                self._transfer(part)
            except (_BrokenOffError, httpx.TransportError) as error:
                why = str(error) or type(error).__name__
                if not isinstance(error, _BrokenOffError) and attempt == 1 and resumed == 0:
                    break  # twice nothing at all: no network, and waiting does not mend it
                if self.stop.wait(0.2 * 2**attempt):
                    raise _StoppedError from None
                continue
            if self._accept(part):
                return
            if not resumed:
                raise self._wrong_sum()
            why = "its first part did not fit the rest"
        raise OfflineError(
            f"{self.base_url} cannot be reached, or breaks off: {self.file.name}: {why}. "
            "What has arrived is kept.",
            next_command=self.next_command,
        )

    def _resume_from(self, part: Path) -> int:
        """How much of the file is there already."""
        with contextlib.suppress(FileNotFoundError):
            size = part.stat().st_size
            if size < self.file.size:
                return size
            part.unlink()  # as long as the whole and still not it: of no use
        return 0

    def _transfer(self, part: Path) -> None:
        have = self._resume_from(part)
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        url = f"{self.base_url.rstrip('/')}/{self.file.path}"
        with self.client.stream("GET", url, headers=headers) as response:
            if response.status_code not in {200, 206}:
                if response.status_code >= 500 or response.status_code in {416, 429}:
                    raise _BrokenOffError(f"status {response.status_code}")
                raise OfflineError(
                    f"{url} answered with status {response.status_code}.",
                    next_command=self.next_command,
                )
            self._receive(response, part, resume=response.status_code == 206 and have > 0)

    def _receive(self, response: httpx.Response, part: Path, *, resume: bool) -> None:
        counted = part.stat().st_size if resume else 0
        self.tally.add(counted)
        try:
            with part.open("ab" if resume else "wb") as output:
                for chunk in response.iter_bytes(_CHUNK_BYTES):
                    if self.stop.is_set():
                        raise _StoppedError
                    write(output, chunk)
                    counted += len(chunk)
                    self.tally.add(len(chunk))
                    if counted > self.file.size:
                        raise self._wrong_sum()
            if counted < self.file.size:
                raise _BrokenOffError("the connection ended early")
        except BaseException:
            self.tally.add(-counted)
            raise

    def _accept(self, part: Path) -> bool:
        """Give the file its name when its sum is right; else away with it."""
        if _sha256(part) == self.file.sha256:
            part.replace(self.folder / self.file.name)
            return True
        self.tally.add(-self.file.size)
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
        tally.add(file.size)
        return True
    path.unlink()
    return False


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
