"""Apache Kafka's own jars: which ones, where they are kept, and how they get there.

`kafka-jars.json` pins 46 files of Maven Central by size and SHA-256. They are installed once per
user, completely or not at all, into `kafka-<version>` below the cache folder:

    kafka-4.1.0/jars/*.jar          the files
    kafka-4.1.0/bootstrap.checkpoint  what Kafka's own `format` wrote, see `kafka_boot`
    kafka-4.1.0/start.aot           classes parsed and linked in advance, see `kafka_boot`
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import platformdirs
from filelock import FileLock

from autograder.brokers.server import Progress, Remote

INSTALL_COMMAND = "ackademy brokers install kafka"
_LOCK_FILE = Path(__file__).with_name("kafka-jars.json")
_CENTRAL = "https://repo1.maven.org/maven2"


@functools.cache
def _lock() -> tuple[str, tuple[Remote, ...]]:
    data = json.loads(_LOCK_FILE.read_text(encoding="utf-8"))
    return str(data["version"]), tuple(Remote(**file) for file in data["files"])


def version() -> str:
    """The release of Apache Kafka that is pinned."""
    return _lock()[0]


def files() -> tuple[Remote, ...]:
    """The pinned files."""
    return _lock()[1]


def size_bytes() -> int:
    """How much a first installation fetches."""
    return sum(file.size for file in files())


def cache_folder() -> Path:
    """Where downloads are kept: ACKADEMY_CACHE_DIR, or the user's cache folder."""
    chosen = os.environ.get("ACKADEMY_CACHE_DIR")
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("ackademy")


def home() -> Path:
    """The folder of the pinned release, whether it is installed or not."""
    return cache_folder() / f"kafka-{version()}"


def jars() -> list[Path]:
    """Every jar, in an order that never changes: the class path is part of the start cache."""
    return sorted(home() / "jars" / file.name for file in files())


def installed() -> bool:
    """Whether every jar is there in full length. Their sums were checked on the way in."""
    try:
        return all((home() / "jars" / file.name).stat().st_size == file.size for file in files())
    except OSError:
        return False


def install(progress: Progress | None = None, *, waiting: Callable[[], None] | None = None) -> Path:
    """Fetch what is missing, check all of it, and put it in place in one step; returns `home()`.

    `progress` is called with done and total bytes. `waiting` is called once if another
    installation is under way; this one then waits for it. ACKADEMY_MAVEN_URL names another
    repository with the layout of Maven Central.

    Raises
    ------
    download.OfflineError, download.ChecksumError, download.NoRoomError, download.ReadOnlyError
        See `download.fetch`.
    """
    from autograder.brokers import download  # noqa: PLC0415 - its HTTP client is slow to import

    cache = cache_folder()
    with download.explained(cache, INSTALL_COMMAND):
        cache.mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache / f"kafka-{version()}.lock")
        try:
            lock.acquire(timeout=0)
        except TimeoutError:
            if waiting is not None:
                waiting()
            lock.acquire()
        try:
            if not installed():
                _install_locked(progress)
            elif progress is not None:
                progress(size_bytes(), size_bytes())
        finally:
            lock.release()
    return home()


def _install_locked(progress: Progress | None) -> None:
    from autograder.brokers import download  # noqa: PLC0415 - the same

    scratch = home().with_name(f"{home().name}.partial")
    if home().exists() and not scratch.exists():
        home().replace(scratch)  # damaged: repair it out of sight
    base_url = os.environ.get("ACKADEMY_MAVEN_URL") or _CENTRAL
    download.fetch(
        files(), base_url, scratch / "jars", progress=progress, next_command=INSTALL_COMMAND
    )
    if home().exists():
        shutil.rmtree(home())  # damaged too, and the repaired one was already under way
    scratch.replace(home())
