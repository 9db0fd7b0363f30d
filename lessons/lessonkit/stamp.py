"""What a page was executed with, as facts for its footer."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from lessonkit.broker import server, store_in_use
from lessonkit.pictures import facts


def show() -> None:
    """Give the footer its facts. Starts the server if no cell has."""
    opened, store = server(), store_in_use()
    broker = f"NATS {opened.version} ({opened.provider})"
    if store is not None:
        broker += f", PostgreSQL {store.version} ({store.provider})"
    facts(
        python=platform.python_version(),
        broker=broker,
        client=f"nats-py {metadata.version('nats-py')}",
        cores=str(os.cpu_count() or 1),
        system=f"{platform.system()} {platform.machine()}",
    )
