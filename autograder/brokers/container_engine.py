"""The container engine of this machine: enough of its API to look, to read and to remove.

The API is Docker's (https://docs.docker.com/reference/api/engine/), which Podman speaks as well.
Spoken by hand because the SDK takes a third of a second to import, and most who ask, ask one thing:
`check` whether there is an engine at all, the clean-up after a crash to remove a container.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from autograder.brokers.server import Missing

_TIMEOUT_S = 5.0
_REMOVE_TIMEOUT_S = 60.0  # a container with a large volume takes its time
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answered: where, what it calls itself, and its version."""

    endpoint: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API answered: HTTP's status, and the body."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON data; None when it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


def find() -> Engine | Missing:
    """The engine that answers, as the `docker` command would find it; else Podman's.

    DOCKER_HOST, or the context chosen with `docker context use`, decides alone. Without either the
    usual sockets are tried: the system's, rootless Docker's, those of Docker Desktop and Colima,
    rootless Podman's, Podman's.
    """
    chosen = _chosen()
    if chosen and (unfit := _unfit(chosen)):
        return unfit
    refusals: list[OSError] = []
    for endpoint in [chosen] if chosen else _usual_endpoints():
        try:
            engine = _ask_version(endpoint)
        except OSError as error:
            refusals.append(error)
            continue
        if engine is not None:
            return engine
    return _why_none(refusals, chosen)


def request(endpoint: str, method: str, path: str, *, timeout_s: float = _TIMEOUT_S) -> Answer:
    """One request to the API. Raises `OSError` when the engine cannot be reached."""
    import http.client  # noqa: PLC0415 - a check on any other provider does without

    connection = http.client.HTTPConnection("localhost", timeout=timeout_s)
    connection.sock = _connect(endpoint, timeout_s)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read())
    except http.client.HTTPException as error:
        raise ConnectionError(f"{endpoint} answers, but not as a container engine") from error
    finally:
        connection.close()


def containers(endpoint: str, label: str) -> list[dict[str, Any]]:
    """Every container with this label (`name` or `name=value`), running or not; none on trouble."""
    filters = quote(json.dumps({"label": [label]}))
    with contextlib.suppress(OSError):
        answer = request(endpoint, "GET", f"/containers/json?all=1&filters={filters}")
        if answer.status == 200:
            return list(answer.json() or [])
    return []


def state(endpoint: str, container: str) -> Mapping[str, Any]:
    """The state of a container (`Running`, `ExitCode`, `OOMKilled`); empty when it is gone."""
    with contextlib.suppress(OSError):
        answer = request(endpoint, "GET", f"/containers/{container}/json")
        if answer.status == 200:
            return dict((answer.json() or {}).get("State") or {})
    return {}


def has_image(endpoint: str, image: str) -> bool:
    """Whether the image is there, so that nothing has to be fetched."""
    with contextlib.suppress(OSError):
        return request(endpoint, "GET", f"/images/{quote(image, safe='/:')}/json").status == 200
    return False


def pull_command(engine: Engine, image: str) -> str:
    """What fetches an image by hand. Podman asks for the registry, unless the name begins with one."""
    if engine.name == "Docker":
        return f"docker pull {image}"
    first, _, rest = image.partition("/")
    named = bool(rest) and (first == "localhost" or "." in first or ":" in first)
    return f"podman pull {image}" if named else f"podman pull docker.io/{image}"


def memory_bytes(endpoint: str, container: str) -> int:
    """What a running container uses; 0 when the engine does not say."""
    with contextlib.suppress(OSError):
        path = f"/containers/{container}/stats?stream=false&one-shot=true"
        said = request(endpoint, "GET", path).json() or {}
        return int((said.get("memory_stats") or {}).get("usage") or 0)
    return 0


def log(endpoint: str, container: str, *, lines: int = 400) -> str:
    """The end of what a container wrote; empty when it is gone."""
    with contextlib.suppress(OSError):
        path = f"/containers/{container}/logs?stdout=1&stderr=1&tail={lines}"
        answer = request(endpoint, "GET", path)
        if answer.status == 200:
            return _plain_text(answer.body)
    return ""


def remove(endpoint: str, container: str) -> bool:
    """End a container and delete it with its unnamed volumes; whether it is gone now."""
    try:
        path = f"/containers/{container}?force=1&v=1"
        answer = request(endpoint, "DELETE", path, timeout_s=_REMOVE_TIMEOUT_S)
    except OSError:
        return False
    return answer.status in {200, 204, 404, 409}  # 409: somebody else is removing it just now


def _plain_text(stream: bytes) -> str:
    """Log frames (8 bytes of head, the last four a length) put together, as the API documents."""
    text, at = b"", 0
    while (
        at + 8 <= len(stream) and stream[at] in {0, 1, 2} and stream[at + 1 : at + 4] == b"\0\0\0"
    ):
        (length,) = struct.unpack_from(">I", stream, at + 4)
        text += stream[at + 8 : at + 8 + length]
        at += 8 + length
    return (text + stream[at:]).decode("utf-8", "replace")


def _connect(endpoint: str, timeout_s: float) -> socket.socket:
    parts = urlsplit(endpoint)
    if parts.scheme in {"tcp", "http"}:
        return socket.create_connection((parts.hostname or "", parts.port or 2375), timeout_s)
    if parts.scheme != "unix" or not hasattr(socket, "AF_UNIX"):
        raise OSError(f"{endpoint} cannot be spoken to")
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        connection.connect(parts.path)
    except BaseException:
        connection.close()
        raise
    return connection


def _ask_version(endpoint: str) -> Engine | None:
    answer = request(endpoint, "GET", "/version")
    said = answer.json()
    if answer.status != 200 or not isinstance(said, dict) or "ApiVersion" not in said:
        return None
    parts = [str(part.get("Name", "")) for part in said.get("Components") or []]
    name = "Podman" if any("podman" in part.lower() for part in parts) else "Docker"
    return Engine(endpoint, name, str(said.get("Version", "")))


def _chosen() -> str:
    """What the environment or the current context of the `docker` command names; else empty."""
    if host := os.environ.get("DOCKER_HOST", "").strip():
        return host
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        name = os.environ.get("DOCKER_CONTEXT") or json.loads(
            (folder / "config.json").read_text(encoding="utf-8")
        ).get("currentContext")
        if name and name != "default":
            place = hashlib.sha256(name.encode()).hexdigest()
            meta = folder / "contexts" / "meta" / place / "meta.json"
            said = json.loads(meta.read_text(encoding="utf-8"))
            return str(said["Endpoints"]["docker"]["Host"])
    return ""


def _usual_endpoints() -> list[str]:
    home = Path.home()
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{_user()}")
    sockets = (
        Path("/var/run/docker.sock"),
        runtime / "docker.sock",
        home / ".docker" / "run" / "docker.sock",
        home / ".docker" / "desktop" / "docker.sock",
        home / ".colima" / "default" / "docker.sock",
        runtime / "podman" / "podman.sock",
        Path("/run/podman/podman.sock"),
    )
    return [f"unix://{path}" for path in sockets]


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _unfit(endpoint: str) -> Missing | None:
    parts = urlsplit(endpoint)
    if parts.scheme == "unix" or (
        parts.scheme in {"tcp", "http"}
        and parts.hostname in _LOOPBACK
        and not os.environ.get("DOCKER_TLS_VERIFY")
    ):
        return None
    return Missing(
        f"the chosen container engine is {endpoint}, and only an engine of this machine, "
        "without TLS, can serve a check: its servers listen on this machine's loopback",
        _choose_no_more(),
    )


def _choose_no_more() -> str:
    return "unset DOCKER_HOST" if os.environ.get("DOCKER_HOST") else "docker context use default"


def _why_none(refusals: list[OSError], chosen: str) -> Missing:
    """The one thing to mend: a socket we may not open, an engine that sleeps, or none at all."""
    for refusal in refusals:
        if isinstance(refusal, PermissionError):
            return Missing(
                "you may not use the container engine: its socket belongs to others",
                "sudo usermod -aG docker $USER && newgrp docker",
            )
    if chosen:
        return Missing(
            f"no container engine answers at {chosen}, which was chosen", _choose_no_more()
        )
    if shutil.which("docker"):
        return Missing("Docker is installed, but its engine is not running", _start_docker())
    if shutil.which("podman"):
        return Missing(
            "Podman is installed, but its socket is not active",
            "systemctl --user enable --now podman.socket",
        )
    return Missing("neither Docker nor Podman is installed", _install_docker())


def _start_docker() -> str:
    if sys.platform == "darwin":
        return "open -a Docker"
    if sys.platform == "win32":
        return 'start "" "C:\\Program Files\\Docker\\Docker\\Docker Desktop.exe"'
    return (
        "sudo systemctl start docker" if shutil.which("systemctl") else "sudo service docker start"
    )


def _install_docker() -> str:
    if sys.platform == "darwin":
        return "brew install --cask docker"
    if sys.platform == "win32":
        return "winget install Docker.DockerDesktop"
    for manager, command in (
        ("apt-get", "sudo apt-get install -y docker.io"),
        ("dnf", "sudo dnf install -y podman && systemctl --user enable --now podman.socket"),
        ("pacman", "sudo pacman -S docker"),
    ):
        if shutil.which(manager):
            return command
    return "xdg-open https://docs.docker.com/engine/install/"
