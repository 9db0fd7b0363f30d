"""The words of this package: a server somebody can connect to, and why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from autograder.model import GraderError

DEFAULT_PORTS = {"nats": 4222, "kafka": 9092, "rabbitmq": 5672, "postgres": 5432, "valkey": 6379}
"""Where each server listens if its address does not say."""


@dataclass(frozen=True, slots=True)
class Server:
    """A broker or a store that answered a protocol round trip.

    `engine` is what it runs. `url` is what the clients for it take: `nats://host:port`,
    `amqp://user:password@host:port/vhost`, for Kafka the bootstrap servers `host:port[,host:port]`,
    `postgresql://user:password@host:port/database`, `redis://user:password@host:port`.
    `version` is the server's own word where the protocol carries it; Kafka's does not, so for a
    Kafka that we did not start it names the release of its feature level. `pid` is 0
    and `folder` and `log` are None for a server that we did not start. `notices` are sentences a report says once.
    """

    engine: str
    url: str
    provider: str
    version: str
    pid: int = 0
    started: str = ""  # start mark of the process, see `process.start_mark`
    folder: Path | None = None
    log: Path | None = None
    container: str = ""  # its name, for a server in a container of ours
    notices: tuple[str, ...] = ()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the first server named by `url`."""
        return address(self.url, DEFAULT_PORTS.get(self.engine, 0))


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a provider has no server to give here: one sentence, and the command that mends it."""

    sentence: str
    next_command: str = ""


@dataclass(frozen=True, slots=True)
class Remote:
    """One file: where it is below the base URL, and what it must be."""

    path: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.path.rpartition("/")[2]


Progress = Callable[[int, int], None]
"""Called with the bytes that are there and the bytes there will be; from several threads in turn."""


class NotReadyError(Exception):
    """A server did not complete a protocol round trip. The text says in what way."""


class MissingError(GraderError):
    """No provider has a server of this engine. `reasons` says why, provider by provider."""

    def __init__(
        self, sentence: str, *, next_command: str = "", reasons: dict[str, Missing] | None = None
    ) -> None:
        super().__init__(sentence, next_command=next_command)
        self.reasons = reasons or {}


def address(url: str, default_port: int) -> tuple[str, int]:
    """The host and port of the first server in a URL or a list of `host:port`."""
    first = url.split(",", maxsplit=1)[0].strip()
    parts = urlsplit(first if "://" in first else f"//{first}")
    return parts.hostname or "127.0.0.1", parts.port or default_port
