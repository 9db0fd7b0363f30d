"""Who waits for what: the sentence a deadlock is reported with."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_STANDARD = str(Path(asyncio.__file__).parent)
MOST = 12


def who_waits(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """`run waits in Queue.get (worker_pool.py line 33); worker-1 waits in ...`."""
    told = [f"{task.get_name()} {_waits_in(task)}" for task in tasks if not task.done()]
    if not told:
        return "no task is left"
    more = f"; and {len(told) - MOST} more" if len(told) > MOST else ""
    return "; ".join(told[:MOST]) + more


def _waits_in(task: asyncio.Task[Any]) -> str:
    """What the innermost line of the program itself awaits."""
    frames = _chain(task.get_coro())
    awaited = getattr(task, "_fut_waiter", None)
    own = [place for place, code in enumerate(frames) if not _is_library(code[1])]
    if not own:
        return f"waits in {frames[-1][0]}" if frames else "has not begun"
    name, file, line = frames[own[-1]]
    where = f"{Path(file).name} line {line}"
    inner = frames[own[-1] + 1 :]
    if inner:
        return f"waits in {inner[0][0]} ({where})"
    if isinstance(awaited, asyncio.Task):
        return f"waits for {awaited.get_name()} ({where})"
    return f"waits in {name} ({where})"


def _chain(coro: Any) -> list[tuple[str, str, int]]:
    """Name, file and line of each coroutine, down to the one that is suspended."""
    frames: list[tuple[str, str, int]] = []
    while coro is not None:
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)
        if frame is None:
            break
        code = frame.f_code
        frames.append((code.co_qualname, code.co_filename, frame.f_lineno))
        coro = getattr(coro, "cr_await", None) or getattr(coro, "gi_yieldfrom", None)
    return frames


def _is_library(file: str) -> bool:
    return file.startswith((_STANDARD, sys.prefix, sys.base_prefix, "<"))
