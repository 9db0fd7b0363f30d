"""Starts a server in a folder of its own and takes both away again.

The engines' modules say what to run (a `Recipe`); this one knows how to start it so that nothing
survives, whatever happens to us.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autograder.brokers import process, records
from autograder.brokers.account import Account
from autograder.brokers.process import Gated, Patience
from autograder.brokers.server import NotReadyError, Server
from autograder.model import GraderError

_PORT_TAKEN = re.compile(
    r"address already in use|BindException|failed to bind|eaddrinuse", re.IGNORECASE
)
_TELLING = re.compile(
    r"\b(ERROR|FATAL|Exception|Error:|Caused by|BOOT FAILED)|\[(ERR|FTL|error|critical)\]"
)
_FRAME = re.compile(r"\s+at \S|\s*\.\.\. \d+ more")
_ATTEMPTS = 5
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class Command:
    """What to execute, the whole environment to do it in, and the account, if not ours."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    account: Account | None = None


class Recipe(Protocol):
    """How one provider runs one engine. The folder it is given is deleted after the server."""

    @property
    def engine(self) -> str:
        """The engine it runs."""

    @property
    def provider(self) -> str:
        """The provider it belongs to."""

    @property
    def start_timeout_s(self) -> float:
        """How long a start may take before it counts as failed."""

    def prepare(self, folder: Path, patience: Patience) -> Command:
        """Write the configuration into `folder`; called again with another one on a port clash."""

    def url(self, folder: Path) -> str | None:
        """Where the server listens; None while it has not said so yet."""

    def ready(self, folder: Path, url: str) -> str:
        """One protocol round trip with the very server of `folder`; returns its version.

        Raises
        ------
        NotReadyError
            It does not answer yet, or somebody else does.
        """


class _PortTakenError(Exception):
    """Somebody took the port between our look and the server's."""


def start(recipe: Recipe, *, warm: bool = False, patience: Patience | None = None) -> Server:
    """Start a server and wait until it answers.

    Raises
    ------
    GraderError
        It stopped or did not answer in time (the text ends with its last log lines), or the
        machine has no room for it.
    process.CalledOffError
        `patience` was called off.
    """
    patience = patience or Patience()
    patience.limit(recipe.start_timeout_s)
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(_PortTakenError):
            return _start_once(recipe, patience, warm=warm)
    raise GraderError(
        f"Every port offered to {recipe.engine} was taken by another program at the last moment.",
        next_command=f"ackademy brokers up {recipe.engine}",
    )


def stop(server: Server) -> None:
    """End a server that `start` returned; its folder and its record go with it."""
    records.discard(records.of(server))


def _start_once(recipe: Recipe, patience: Patience, *, warm: bool) -> Server:
    with _machine_errors_explained(recipe.engine):
        record = records.new(recipe.engine, recipe.provider)
        try:
            command = recipe.prepare(Path(record.folder), patience)
            gated = Gated(
                command.arguments,
                folder=Path(record.folder),
                log=record.log,
                environment=command.environment,
                outlives_owner=warm,
                account=command.account,
                end_by=records.end_by(record),
            )
            record = records.save(record, pid=gated.pid, started=gated.mark)
            gated.release()
            url, version = _wait_ready(recipe, record, gated, patience)
            record = records.save(record, url=url, version=version)
            return (records.keep_warm(record) if warm else record).server()
        except BaseException:  # Ctrl-C and a called-off start must leave nothing either
            records.discard(record)
            raise


def _wait_ready(
    recipe: Recipe, record: records.Record, gated: Gated, patience: Patience
) -> tuple[str, str]:
    folder = Path(record.folder)
    why = "it has not opened its port"
    pause_s = 0.005
    while True:
        running = gated.running
        if url := recipe.url(folder):
            try:
                return url, recipe.ready(folder, url)
            except NotReadyError as error:
                why = str(error)
        if not running:
            raise _died(recipe, record)
        try:
            patience.wait(pause_s)
        except TimeoutError:
            raise _failed(recipe, record, f"did not get ready in time: {why}") from None
        pause_s = min(pause_s * 1.2, 0.05)


def _died(recipe: Recipe, record: records.Record) -> Exception:
    log = process.last_lines(record.log, count=60)
    if _PORT_TAKEN.search(log):
        return _PortTakenError()
    if "No space left on device" in log:
        return GraderError(
            f"{recipe.engine} stopped while starting: the disk with {record.folder} is full.",
            next_command="df -h",
        )
    return _failed(recipe, record, "stopped while starting")


def _failed(recipe: Recipe, record: records.Record, what: str) -> GraderError:
    quoted = quote_log(record.log)
    return GraderError(
        f"The {recipe.provider} {recipe.engine} server {what}.{quoted}",
        next_command=f"ackademy brokers up {recipe.engine}",
    )


def quote_log(log: Path | None, *, count: int = 8) -> str:
    """The last lines of a log that tell most, indented under a heading; empty when there are none.

    Stack frames are left out. When no error is among the last lines, the last errors are shown.
    """
    lines = process.last_lines(log, count=400).splitlines()
    words = [line for line in lines if not _FRAME.match(line)]
    chosen = words[-count:]
    if not any(map(_TELLING.search, chosen)):
        chosen = [line for line in words if _TELLING.search(line)][-count:] or chosen
    return "\nIts last words:\n" + "\n".join(f"  {line}" for line in chosen) if chosen else ""


@contextlib.contextmanager
def _machine_errors_explained(engine: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in _NO_ROOM
        sentence = (
            f"There is no room on the disk for a {engine} server ({error.filename or 'temporary folder'})."
            if full
            else f"A {engine} server cannot be started: {error}."
        )
        command = "df -h" if full else f"ackademy brokers up {engine}"
        raise GraderError(sentence, next_command=command) from error
