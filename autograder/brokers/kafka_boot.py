"""What makes embedded Kafka start in one and a half seconds instead of six, made once per user.

- *The bootstrap checkpoint*: Kafka's `format` needs a Java process of its own and writes the same
  feature levels each time; we keep them, see `kafka.write_meta_properties`.
- *The start cache* (JEP 483, JEP 514): Java 24 and newer can keep the classes of one run parsed and
  linked. The wheel's Java comes without any such archive, so two thirds of a start are loading
  classes. 65 MB in the cache folder, ten seconds to make.

Both are optional: without them a start is slow, not wrong.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil
from filelock import FileLock

from autograder.brokers import kafka, kafka_jars, process, throwaway
from autograder.brokers.process import Patience
from autograder.model import GraderError

_DUMP_TIMEOUT_S = 180.0
_ROOM_BYTES = 200_000_000


def prepared() -> bool:
    """Whether there is nothing left to do for `prepare`."""
    java = kafka.wheel_java()
    return java is None or (kafka.bootstrap_checkpoint().exists() and kafka.start_cache().exists())


def prepare(announce: Callable[[], None] | None = None) -> bool:
    """Make what is missing; returns whether the next start will be fast.

    `announce` is called before the part that takes about ten seconds. Never raises for a machine
    that does not let us: a slow start is no reason to stop anybody.
    """
    java = kafka.wheel_java()
    if java is None or not kafka_jars.installed():
        return False
    with (
        contextlib.suppress(OSError, GraderError, psutil.Error),
        FileLock(kafka_jars.home() / "prepare.lock"),
    ):
        if shutil.disk_usage(kafka_jars.home()).free > _ROOM_BYTES and not prepared():
            if announce is not None:
                announce()
            if not kafka.bootstrap_checkpoint().exists():
                _keep_checkpoint(java)
            if not kafka.start_cache().exists():
                _train(java)
    return prepared()


def _keep_checkpoint(java: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ackademy-kafka-") as name:
        kafka.EmbeddedRecipe(java).prepare(Path(name), Patience())
        _put(Path(name) / "data" / "bootstrap.checkpoint", kafka.bootstrap_checkpoint())


def _train(java: Path) -> None:
    """Run a broker once and let Java write down, as it ends, what it loaded."""
    scratch = kafka.start_cache().with_suffix(f".{os.getpid()}.new")
    recipe = kafka.EmbeddedRecipe(java, fast=False, jvm_options=(f"-XX:AOTCacheOutput={scratch}",))
    try:
        server = throwaway.start(recipe)
        try:
            psutil.Process(server.pid).terminate()
            process.wait_until(
                lambda: not process.is_running(server.pid, server.started),
                timeout_s=_DUMP_TIMEOUT_S,
                every_s=0.1,
            )
        finally:
            throwaway.stop(server)
        if scratch.exists():
            _put(scratch, kafka.start_cache())
    finally:
        for rest in scratch.parent.glob(f"{scratch.name}*"):
            rest.unlink(missing_ok=True)


def _put(source: Path, target: Path) -> None:
    """Copy beside the target, then rename: a reader sees all of it or none."""
    beside = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.copy(source, beside)
    beside.replace(target)
