"""A RabbitMQ somebody installed, started as a throwaway node.

A node wants to be a machine's service: it registers with a port mapper (epmd) that outlives it,
keeps a cookie in the home folder and its data in /var/lib. This one is a stranger to all that. Its
home, data and settings lie in one folder, it starts no port mapper, and it does not listen for
other nodes (`-dist_listen false`), so any number of nodes of one name stand side by side and
nothing is left when the process ends.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from dataclasses import dataclass, field
from pathlib import Path

from autograder.brokers import rabbitmq_wire
from autograder.brokers.process import Patience, free_ports
from autograder.brokers.server import Missing
from autograder.brokers.throwaway import Command
from autograder.model import GraderError

MANAGEMENT_OFFSET = 10_000
"""The management API listens this far above the AMQP port: 15672 and 5672 everywhere, so here too."""

# https://www.rabbitmq.com/docs/configure. The management plugin is there for its counters only.
# Nobody needs its history of rates, and warnings are all that a log of ours is read for.
_LISTENERS = """\
listeners.tcp.1 = 127.0.0.1:{port}
management.tcp.ip = 127.0.0.1
management.tcp.port = {management}
"""
SETTINGS = """\
management.rates_mode = none
log.console = true
log.console.level = warning
log.console.use_colors = off
log.file = false
raft.wal_max_size_bytes = 67108864
"""
"""What every RabbitMQ of ours is told, wherever it runs."""

# - Counters of a quorum queue are as old as its last tick: five seconds at most if nobody says
#   otherwise. Much less than one is not to be had: a tick in the first moments of a queue's life,
#   when it still runs as the oldest version of itself, ends it (seen on 3.10.8 with 50 ms, on a
#   busy machine).
# - A channel keeps settlements back while 32 are under way, and forgets them when it is closed
#   (see `autograder.messaging.rabbitmq_consumer`): here, what is acknowledged is acknowledged.
# - The data goes with the node, so nothing waits for the disk.
ADVANCED = """\
[{rabbit, [{quorum_tick_interval, 1000}, {quorum_commands_soft_limit, 4096}]},
 {ra, [{wal_sync_method, none}]}].
"""

# For every Erlang VM below this one, too: a node that cannot see its port mapper starts, once a
# minute, a VM that starts one. `-erl_epmd_port` is what a node takes for its own port for other
# nodes, without asking a mapper. https://www.erlang.org/doc/apps/erts/erl_cmd.html
_ALONE = "-start_epmd false -dist_listen false -erl_epmd_port 1"
_NODE = "ackademy@localhost"
VM_OPTIONS = "+P 262144 +t 1048576 +sbwt none +sbwtdcpu none +sbwtdio none"  # no spinning when idle

# where packages put it, if that is not on a plain user's PATH
_FOLDERS = ("/usr/lib/rabbitmq/bin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")


@dataclass(frozen=True)
class RabbitRecipe:
    """Runs one node on loopback by the start script that came with it."""

    script: Path
    engine: str = field(default="rabbitmq", init=False)
    provider: str = field(default="local", init=False)
    start_timeout_s: float = field(default=90.0, init=False)

    def prepare(self, folder: Path, patience: Patience) -> Command:
        """Write the configuration. Whatever the machine's own node is told, this one is not."""
        port, management = two_ports()
        names = {
            "CONFIG_FILE": "rabbitmq.conf",
            "ADVANCED_CONFIG_FILE": "advanced.config",
            "ENABLED_PLUGINS_FILE": "enabled_plugins",
            "CONF_ENV_FILE": "rabbitmq-env.conf",
            "MNESIA_BASE": "data",
            "LOG_BASE": "log",
        }
        texts = {
            "rabbitmq.conf": _LISTENERS.format(port=port, management=management) + SETTINGS,
            "advanced.config": ADVANCED,
            "enabled_plugins": "[rabbitmq_management].\n",
            "rabbitmq-env.conf": "",
            "port.json": json.dumps(port),
        }
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        settings = {f"RABBITMQ_{name}": str(folder / file) for name, file in names.items()}
        return Command(
            [str(self.script)],
            _clean_environment()
            | settings
            | {
                "HOME": str(folder),  # where the cookie is made
                "ERL_AFLAGS": _ALONE,
                "ERL_CRASH_DUMP": os.devnull,
                "RABBITMQ_ALLOW_INPUT": "1",  # the script becomes the node, and does not watch it
                "RABBITMQ_LOGS": "-",
                "RABBITMQ_NODENAME": _NODE,
                "RABBITMQ_SERVER_ERL_ARGS": VM_OPTIONS,
                "RABBITMQ_SERVER_START_ARGS": f"-noinput -sname {_NODE}",
            },
        )

    def url(self, folder: Path) -> str | None:
        """The port written into the configuration, and the user that a new node has."""
        port = json.loads((folder / "port.json").read_text(encoding="utf-8"))
        return f"amqp://guest:guest@127.0.0.1:{port}"

    def ready(self, folder: Path, url: str) -> str:
        """Log in and open a channel: a node opens its AMQP port last of all."""
        return rabbitmq_wire.probe(url)


def local() -> RabbitRecipe | Missing:
    """A RabbitMQ somebody installed."""
    script = start_script()
    if script is None:
        return Missing(
            "there is no rabbitmq-server on the PATH (RabbitMQ comes with Erlang, "
            "which no Python package carries)",
            _install_command(),
        )
    return RabbitRecipe(script)


def installed_version() -> str:
    """The version of the installed RabbitMQ, by the name of its folder; empty when that is not said."""
    script = start_script()
    if script is None:
        return ""
    home = script.resolve().parents[1]  # bin/ or sbin/ is below the release, or beside its `lib`
    for folder in (home, *home.glob("lib/rabbitmq_server-*"), *home.glob("rabbitmq_server-*")):
        _, found, version = folder.name.partition("rabbitmq_server-")
        if found:
            return version
    return ""


def start_script() -> Path | None:
    """RabbitMQ's own start script; None where there is none.

    What Linux packages put on the PATH is a wrapper that only root may run and that starts the
    machine's node. The script behind it, which runs a node as anybody, is a neighbour of the file
    that the wrapper's link leads to, or stands in the package's folder.
    """
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_FOLDERS))
    for folder in path.split(os.pathsep):
        found = shutil.which("rabbitmq-server", path=folder)
        for script in (
            (Path(found), Path(found).resolve().parent / "rabbitmq-server") if found else ()
        ):
            if _is_own_script(script):
                return script
    return None


def _is_own_script(script: Path) -> bool:
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "RABBITMQ_ALLOW_INPUT" in text


def two_ports() -> tuple[int, int]:
    """A free port and, at the usual distance, another one."""
    for port in free_ports(64):
        management = port + MANAGEMENT_OFFSET
        if management < 1 << 16 and _is_free(management):
            return port, management
    raise GraderError(
        "There are no two free ports for RabbitMQ.", next_command="ackademy brokers up rabbitmq"
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _clean_environment() -> dict[str, str]:
    """Ours, without settings meant for other nodes."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RABBITMQ_", "ERL_", "ELIXIR_"))
    }


def _install_command() -> str:
    for manager, command in (
        ("apt-get", "sudo apt-get install -y rabbitmq-server"),
        ("dnf", "sudo dnf install -y rabbitmq-server"),
        ("brew", "brew install rabbitmq"),
    ):
        if shutil.which(manager):
            return command
    return "ackademy brokers status"
