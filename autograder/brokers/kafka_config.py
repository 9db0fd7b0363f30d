"""What every Kafka of ours is told, and how its data folder is formatted."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from autograder.brokers import kafka_wire
from autograder.brokers.process import Patience, free_ports
from autograder.brokers.server import NotReadyError
from autograder.brokers.throwaway import quote_log
from autograder.model import GraderError

# https://kafka.apache.org/documentation/#brokerconfigs. What is not said is Kafka's default.
# - group.coordinator.append.linger.ms: 4.x batches commits for 5 ms, which caps a consumer that
#   awaits each commit at about 150 messages a second. Older releases ignore the name.
# - group.min.session.timeout.ms: a killed member must not hold its partitions for long.
# - log.cleaner.enable: the cleaner's buffer costs 128 MB and a tenth of a second; nothing here
#   lives long enough to be compacted.
# - log.index.size.max.bytes: indexes are allocated in full, 10 MB each, per partition.
_PLACES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
"""
SETTINGS = """\
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
group.coordinator.append.linger.ms=0
group.coordinator.threads=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.segment.bytes=10485760
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
num.network.threads=2
num.io.threads=4
num.recovery.threads.per.data.dir=1
background.threads=2
log.cleaner.enable=false
log.index.size.max.bytes=1048576
log.segment.delete.delay.ms=1000
log.flush.offset.checkpoint.interval.ms=600000
log.flush.start.offset.checkpoint.interval.ms=600000
replica.high.watermark.checkpoint.interval.ms=60000
"""
"""What every Kafka of ours is told, wherever it runs: lines of `name=value`."""
_PROPERTIES = _PLACES + SETTINGS

# C1 alone compiles fast enough for a broker that lives for seconds, and the serial collector is
# the smallest. Performance data would be a file outside the throwaway folder.
JVM_OPTIONS = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xlog:disable",  # a start cache that does not fit is slow, not wrong: no warnings
    "-Xlog:all=error:stderr",
    "-Djava.awt.headless=true",
)
# What a person has set for other Java programs must not reach this one.
_FOREIGN_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH")


def write_properties(folder: Path) -> Path:
    """Write `server.properties` with ports that are free now; returns its path."""
    port, controller_port = free_ports(2)
    data = (folder / "data").as_posix()
    file = folder / "server.properties"
    file.write_text(
        _PROPERTIES.format(port=port, controller_port=controller_port, data=data), encoding="utf-8"
    )
    return file


def listener(folder: Path) -> str | None:
    """Where the server configured in `folder` listens, as `host:port`."""
    text = (folder / "server.properties").read_text(encoding="utf-8")
    found = re.search(r"^advertised\.listeners=PLAINTEXT://(\S+)$", text, re.MULTILINE)
    return found[1] if found else None


def probe_own(folder: Path, url: str) -> str:
    """Ask the server of `folder`, and nobody else; returns the release of its feature level.

    Between our choice of a port and the server's bind, another broker may have taken it.
    """
    answer = kafka_wire.probe_coordinator(url)
    meta = (folder / "data" / "meta.properties").read_text(encoding="utf-8")
    if f"cluster.id={answer.cluster_id}" not in meta.splitlines():
        raise NotReadyError("another cluster answers on this port")
    return answer.release


def write_meta_properties(data: Path) -> None:
    """What Kafka's `format` writes into a data folder, without the second and a half it takes.

    The rest of its work, the feature levels, is in the bootstrap checkpoint
    (org.apache.kafka.metadata.storage.Formatter).
    """
    data.mkdir()
    (data / "meta.properties").write_text(
        f"version=1\ncluster.id={new_id()}\nnode.id=1\ndirectory.id={new_id()}\n", encoding="ascii"
    )


def new_id() -> str:
    """A random id as Kafka writes it (org.apache.kafka.common.Uuid): base64url, no leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def clean_environment() -> dict[str, str]:
    """Our own environment without what steers other Java programs."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _FOREIGN_VARIABLES and not name.startswith("KAFKA_")
    }


def run_format(
    tool: Sequence[str],
    properties: Path,
    environment: dict[str, str],
    folder: Path,
    patience: Patience,
) -> None:
    """Have Kafka's storage tool format the data folder.

    Raises
    ------
    GraderError
        It refused; its words are quoted.
    """
    log = folder / "format.log"
    with log.open("wb") as output:
        command = [*tool, "format", "--cluster-id", new_id(), "--config", str(properties)]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
        ) as formatting:
            try:
                while formatting.poll() is None:
                    patience.wait(0.02)
            except TimeoutError:
                formatting.kill()
            except BaseException:
                formatting.kill()
                raise
    if formatting.returncode != 0:
        raise GraderError(
            f"Kafka could not format its data folder.{quote_log(log)}",
            next_command="ackademy brokers up kafka",
        )
