"""CPU load beside a drill: what a student's laptop, or a busy CI machine, does to a grader."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Each child looks every few milliseconds whether its parent is still the one that started it: it
# ends by itself even if the parent was killed and could not end it.
_BUSY = """
import os
parent = int({parent})
while os.getppid() == parent:
    sum(range(100_000))
"""


@contextmanager
def load(processes: int | None = None) -> Iterator[list[int]]:
    """Keep every core busy (or `processes` of them) at normal priority; yields the children's pids.

    The children are in a session of their own, so that Ctrl-C does not reach them before their
    parent has counted what was judged. They are gone when the context ends.
    """
    code = _BUSY.format(parent=os.getpid())
    command = [sys.executable, "-I", "-S", "-c", code]
    children: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(processes or os.cpu_count() or 1):
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
            children.append(child)
        yield [child.pid for child in children]
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()
