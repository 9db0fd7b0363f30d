"""Servers in containers of their own, started by testcontainers: for as long as they are needed.

The official image of each engine, on loopback ports that are free, ready after a protocol round
trip. Whoever owns a container is written down twice: in our records, which the next start of
anything looks through, and in the container's labels, for the day when the records are lost.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograder.brokers import container_engine, process, records, throwaway
from autograder.brokers.container_engine import Engine
from autograder.brokers.container_images import IMAGES, Image
from autograder.brokers.process import Patience
from autograder.brokers.server import Missing, NotReadyError, Server
from autograder.model import GraderError

OWNER_LABEL = "org.ackademy.owner"
"""Who holds a container, as `pid start-mark machine`; a warm one has no such label."""

_PORT_TAKEN = re.compile(r"port is already allocated|address already in use", re.IGNORECASE)
_ATTEMPTS = 5
_PROBE_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Container:
    """One engine's image on the container engine of this machine."""

    engine: str
    name: str = "container"

    def missing(self) -> Missing | None:
        """Why no container can be started here: there is no engine, it sleeps, or it is not ours."""
        found = container_engine.find()
        return found if isinstance(found, Missing) else None

    def open(self, patience: Patience | None) -> Server:
        """Start one."""
        return self.start(patience, warm=False)

    def start(self, patience: Patience | None, *, warm: bool) -> Server:
        """Start one, to stay if `warm`.

        Raises
        ------
        GraderError
            There is no engine, the image is not here and cannot be fetched, or the server stopped
            or did not answer in time (the text ends with its last log lines).
        process.CalledOffError
            `patience` was called off.
        """
        from autograder.brokers import container_start  # noqa: PLC0415 - loads Docker's SDK

        patience = patience or Patience()
        image = IMAGES[self.engine]
        engine = require_engine(f"No {self.engine} server in a container")
        sweep(engine)
        container_start.ensure_image(engine, image.name, patience)
        patience.limit(image.start_timeout_s)
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(_PortTakenError):
                return _start_once(engine, image, patience, warm=warm)
        raise GraderError(
            f"Every port offered to {self.engine} was taken by another program at the last moment.",
            next_command=f"ackademy check --engine {self.engine} --provider container",
        )

    def close(self, server: Server) -> None:
        """Remove the container and what it stored."""
        throwaway.stop(server)


def require_engine(what: str) -> Engine:
    """The container engine. Raises `GraderError`, beginning with `what`, where there is none."""
    found = container_engine.find()
    if isinstance(found, Missing):
        raise GraderError(f"{what}: {found.sentence}.", next_command=found.next_command)
    return found


def sweep(engine: Engine) -> None:
    """Remove containers whose owner is gone, known by their labels alone."""
    for container in container_engine.containers(engine.endpoint, OWNER_LABEL):
        owner = str((container.get("Labels") or {}).get(OWNER_LABEL, ""))
        if _is_gone(owner):
            container_engine.remove(engine.endpoint, str(container["Id"]))


def _is_gone(owner: str) -> bool:
    """Whether this owner is one of this machine's (or container's), and no longer runs."""
    pid, _, rest = owner.partition(" ")
    mark, _, machine = rest.partition(" ")
    return machine == platform.node() and pid.isdigit() and not process.is_running(int(pid), mark)


def _owner() -> str:
    return f"{os.getpid()} {process.start_mark(os.getpid()) or ''} {platform.node()}"


class _PortTakenError(Exception):
    """Somebody took the port between our look and the engine's."""


def _start_once(engine: Engine, image: Image, patience: Patience, *, warm: bool) -> Server:
    from autograder.brokers import container_start  # noqa: PLC0415 - loads Docker's SDK

    record = records.new(image.engine, "container")
    try:
        ports = {inside or image.port: outside for inside, outside in image.places().items()}
        record = records.save(
            record,
            container=f"ackademy-{image.engine}-{record.name[:12]}",
            endpoint=engine.endpoint,
            started=process.boot_id(),
            url=image.url.format(port=ports[image.port]),
        )
        try:
            container_start.run(
                engine,
                image,
                record.container,
                ports,
                labels={} if warm else {OWNER_LABEL: _owner()},
                reaped=not warm and _ryuk_is_wanted(),
            )
        except container_start.EngineError as error:
            if _PORT_TAKEN.search(str(error)):
                raise _PortTakenError from error
            raise _failed(record, f"could not be started: {error}") from error
        record = records.save(record, version=_wait_ready(engine, image, record, patience))
        return (records.keep_warm(record) if warm else record).server()
    except BaseException:  # Ctrl-C and a called-off start must leave nothing either
        records.discard(record)
        raise


def _ryuk_is_wanted() -> bool:
    """Whether testcontainers' own cleaner is to run beside ours.

    It would have to be fetched, and started before each server, and it ends what `brokers up`
    wants to stay: so it is used only by those who ask for it.
    """
    wish = os.environ.get("TESTCONTAINERS_RYUK_DISABLED", "").strip().lower()
    return wish in {"0", "false", "no", "off"}


def _wait_ready(engine: Engine, image: Image, record: records.Record, patience: Patience) -> str:
    why = "it has not opened its port"
    pause_s = 0.02
    while True:
        state = container_engine.state(engine.endpoint, record.container)
        if not state.get("Running"):
            raise _died(record, state)
        try:
            return image.ready(record.url, _PROBE_TIMEOUT_S)
        except NotReadyError as error:
            why = str(error)
        try:
            patience.wait(pause_s)
        except TimeoutError:
            raise _failed(record, f"did not get ready in time: {why}") from None
        pause_s = min(pause_s * 1.2, 0.1)


def _died(record: records.Record, state: Any) -> GraderError:
    if not state:
        return _failed(record, "was removed by somebody while it started")
    if state.get("OOMKilled"):
        return _failed(record, "stopped while starting: there was not enough memory for it")
    return _failed(record, f"stopped while starting (exit code {state.get('ExitCode')})")


def _failed(record: records.Record, what: str) -> GraderError:
    keep_log(record.endpoint, record.container, record.log)
    quoted = throwaway.quote_log(record.log)
    return GraderError(
        f"The {record.engine} server in the container {record.container} {what}.{quoted}",
        next_command="ackademy doctor",
    )


def keep_log(endpoint: str, container: str, file: Path) -> None:
    """Write what the container said to where other servers' logs are."""
    if text := container_engine.log(endpoint, container):
        file.write_text(text, encoding="utf-8")


def has_died(server: Server) -> bool:
    """Whether the container of a server is gone or stopped; its last words are then in its log."""
    if not server.container:
        return False
    endpoint = records.of(server).endpoint
    if not endpoint:
        return False  # its record was deleted; that it does not answer is all we know
    if server.log is not None and server.log.parent.is_dir():
        keep_log(endpoint, server.container, server.log)
    return not container_engine.state(endpoint, server.container).get("Running")
