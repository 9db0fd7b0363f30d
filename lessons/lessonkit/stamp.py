"""What a page was executed with, as facts for its footer."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from lessonkit.broker import server, stores_in_use
from lessonkit.pictures import facts


def show() -> None:
    """Give the footer its facts. Starts the server if no cell has."""
    opened = {"NATS": server(), **stores_in_use()}
    broker = ", ".join(f"{name} {it.version} ({it.provider})" for name, it in opened.items())
    facts(
        python=platform.python_version(),
        broker=broker,
        client=f"nats-py {metadata.version('nats-py')}",
        cores=str(os.cpu_count() or 1),
        system=f"{platform.system()} {platform.machine()}",
    )
