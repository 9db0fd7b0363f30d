"""How a world and its examiner speak of messages, ends and tracebacks."""

from __future__ import annotations

from collections.abc import Mapping
from signal import Signals
from typing import Any

from autograder.sim.source import Stored


def ending(status: int) -> str:
    """`status 3`, `signal SIGTERM`: as the examiner says it of a real process."""
    return f"status {status}" if status >= 0 else f"signal {Signals(-status).name}"


def stored(order: Mapping[str, Any]) -> list[Stored]:
    """The messages of an order, as a broker keeps them."""
    return [
        Stored(name, key, body.encode("latin-1"), dict(headers))
        for name, key, body, headers in order["messages"]
    ]


def same_everywhere(text: str) -> str:
    """A traceback with one line of source for each frame, as every version of Python has it.

    Newer ones quote the whole statement, and point at a part of it.
    """
    if "\n" not in text:  # as nearly every detail is
        return text
    kept: list[str] = []
    quoting, quoted = 0, True  # how far the frame's line is indented, and whether it was quoted
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip(" |"))
        if line.lstrip(" |").startswith('File "'):
            quoting, quoted = indent, False
        elif quoting and indent > quoting:
            if quoted:
                continue
            quoted = True
        else:
            quoting = 0
        kept.append(line)
    return "\n".join(kept)
