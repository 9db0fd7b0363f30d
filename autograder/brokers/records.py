"""What was started and by whom, on disk: so that the next start can clean up after a crash.

One JSON file per server in the state folder. A record exists before its process does anything and
goes after the process and its folder are gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import socket
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import platformdirs
from filelock import FileLock

from autograder.brokers import container_engine, process
from autograder.brokers.server import Missing, Server, address
from autograder.model import GraderError

_FOLDER_PREFIX = "ackademy-"
_FORMAT = 1
_SIGKILL = 9  # Windows has no name for it


@dataclass(frozen=True)
class Record:
    """One started server. Start marks are those of `process.start_mark`."""

    engine: str
    provider: str
    folder: str
    url: str = ""
    version: str = ""
    pid: int = 0
    started: str = ""
    started_at: float = 0.0  # seconds since the epoch, for people
    owner_pid: int = 0  # 0: a warm server, which nobody owns; while it starts, `up` does
    owner_started: str = ""
    machine: str = field(default_factory=platform.node)
    format: int = _FORMAT
    name: str = ""
    container: str = ""  # for a server in a container: its name; `pid` is 0 and `started` a boot
    endpoint: str = ""  # and the engine that runs it, see `container_engine`

    @property
    def warm(self) -> bool:
        """Whether it is ready and was started to stay."""
        return self.owner_pid == 0

    @property
    def running(self) -> bool:
        """Whether its process still runs; of a container, whether its port still answers."""
        if self.container:
            return self.started == process.boot_id() and _port_is_open(self.url)
        return process.is_running(self.pid, self.started)

    @property
    def orphaned(self) -> bool:
        """Whether nobody will ever stop it: its owner is gone, or it is and was nobody's."""
        if self.warm:
            return not self.running
        return not process.is_running(self.owner_pid, self.owner_started)

    @property
    def log(self) -> Path:
        """Where the server writes its log."""
        return Path(self.folder) / "server.log"

    def server(self, *, provider: str = "", notices: tuple[str, ...] = ()) -> Server:
        """The server of this record."""
        return Server(
            engine=self.engine,
            url=self.url,
            provider=provider or self.provider,
            version=self.version,
            pid=self.pid,
            started=self.started,
            folder=Path(self.folder),
            log=self.log,
            container=self.container,
            notices=notices,
        )


def state_folder() -> Path:
    """Where records live: ACKADEMY_STATE_DIR, or the user's state folder. Made if need be."""
    chosen = os.environ.get("ACKADEMY_STATE_DIR")
    folder = Path(chosen) if chosen else platformdirs.user_state_path("ackademy")
    try:
        (folder / "servers").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GraderError(
            f"The state folder {folder} cannot be made: {error.strerror}.",
            next_command="export ACKADEMY_STATE_DIR=~/ackademy-state",
        ) from error
    return folder


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock shared by every grader of this user, e.g. while one warm server starts."""
    with FileLock(state_folder() / f"{name}.lock"):
        yield


def new(engine: str, provider: str) -> Record:
    """A record and then its throwaway folder, on disk, owned by this process."""
    name = uuid.uuid4().hex
    folder = Path(tempfile.gettempdir()) / f"{_FOLDER_PREFIX}{engine}-{name[:12]}"
    record = Record(
        engine=engine,
        provider=provider,
        folder=str(folder),
        owner_pid=os.getpid(),
        owner_started=process.start_mark(os.getpid()) or "",
        started_at=time.time(),
        name=name,
    )
    save(record)
    folder.mkdir(mode=0o700)
    return record


def keep_warm(record: Record) -> Record:
    """Make nobody the owner: the server stays until `down`."""
    return save(record, owner_pid=0, owner_started="")


def save(record: Record, **changes: str | int) -> Record:
    """Write a record, changed if so asked, in one step; returns what was written."""
    record = replace(record, **changes)  # type: ignore[arg-type]  # names are the fields' own
    path = _path(record)
    scratch = path.with_suffix(".new")
    scratch.touch(mode=0o600)  # an address may hold a password
    scratch.write_text(json.dumps(asdict(record), indent=1), encoding="utf-8")
    scratch.replace(path)
    return record


def all_records() -> list[Record]:
    """The records of this machine, oldest first. One that cannot be read is removed."""
    found = []
    for path in sorted((state_folder() / "servers").glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["format"] != _FORMAT:
                continue  # another version's to clean up
            record = Record(**data)
        except FileNotFoundError:
            continue  # its owner stopped it between our two looks
        except (OSError, ValueError, TypeError, KeyError):
            path.unlink(missing_ok=True)
            continue
        if record.machine == platform.node():  # a home folder may be shared between machines
            found.append(record)
    return sorted(found, key=lambda record: record.started_at)


def of(server: Server) -> Record:
    """The record of a server that was started; one made up when somebody deleted it."""
    for record in all_records():
        if record.folder == str(server.folder):
            return record
    return Record(
        engine=server.engine,
        provider=server.provider,
        folder=str(server.folder or ""),
        pid=server.pid,
        started=server.started,
        container=server.container,
    )


def discard(record: Record) -> bool:
    """End the record's process, delete its folder, then forget it, in this order.

    Returns whether it is gone: a process that cannot be ended, or a container whose engine does
    not answer, keeps its record, so that the next start tries again.
    """
    gone = (
        _remove_container(record)
        if record.container
        else process.kill(record.pid, record.started, end_by=end_by(record))
    )
    if not gone:
        return False
    folder = Path(record.folder)
    if folder.name.startswith(_FOLDER_PREFIX):  # a damaged record must not cost anybody's files
        shutil.rmtree(folder, ignore_errors=True)
    _path(record).unlink(missing_ok=True)
    return True


def end_by(record: Record) -> int:
    """The signal that ends this server without leaving anything.

    PostgreSQL holds a segment of System V shared memory, which the system keeps for ever if nobody
    gives it back: SIGQUIT is its "immediate shutdown"
    (https://www.postgresql.org/docs/current/server-shutdown.html), which takes milliseconds.
    """
    return signal.SIGQUIT if record.engine == "postgres" and os.name == "posix" else _SIGKILL


def _remove_container(record: Record) -> bool:
    endpoint = record.endpoint
    if not endpoint:  # the record was lost; the engine is probably still the one that is found
        engine = container_engine.find()
        if isinstance(engine, Missing):
            return False
        endpoint = engine.endpoint
    return container_engine.remove(endpoint, record.container)


def _port_is_open(url: str) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(address(url, 0), timeout=1.0).close()
        return True
    return False


def discard_orphans() -> list[Record]:
    """Clean up after owners that are gone; returns what was cleaned."""
    return [record for record in all_records() if record.orphaned and discard(record)]


def told(cleaned: Iterable[Record]) -> tuple[str, ...]:
    """What was cleaned up, a sentence each, for a report to say once."""
    return tuple(
        f"The warm {record.engine} server ({record.container or f'pid {record.pid}'}) was gone "
        "or did not answer; "
        "its record and data were removed."
        if record.warm
        else f"Cleaned up a {record.engine} server that an earlier run had left behind."
        for record in cleaned
    )


def _path(record: Record) -> Path:
    return state_folder() / "servers" / f"{record.name}.json"
