"""What a page was executed with, as facts for its footer."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from lessonkit.broker import server
from lessonkit.pictures import facts


def show() -> None:
    """Give the footer its facts. Starts the server if no cell has."""
    opened = server()
    facts(
        python=platform.python_version(),
        broker=f"NATS {opened.version} ({opened.provider})",
        client=f"nats-py {metadata.version('nats-py')}",
        cores=str(os.cpu_count() or 1),
        system=f"{platform.system()} {platform.machine()}",
    )
