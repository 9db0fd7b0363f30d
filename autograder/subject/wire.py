"""Lines of JSON between the examiner and a subject: events one way, orders the other.

An event is a list: `[kind, message, key, delivery, attempt, detail]`. A heartbeat is
`["beat", buffered, in hand, busy, held, settling, connections]`, no connections being a subject
that is about to connect; the answer to an order is `["done", number]`.
An order is an object: `{"do": name, "number": n, ...}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

BEAT = "beat"
DONE = "done"
LONGEST_LINE = 1 << 20  # bytes; a longer line is not ours


def encode(line: list[Any] | Mapping[str, Any]) -> bytes:
    """One line, newline included. Text that UTF-8 cannot carry is escaped, never refused."""
    return json.dumps(line, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"


def encode_event(
    kind: str, message: str, key: str, delivery: int, attempt: int, detail: str
) -> bytes:
    """An event's line. Written by hand: this is done five times for each message of a busy pool."""
    texts = f"{_quoted(message)},{_quoted(key)},{delivery:d},{attempt:d},{_quoted(detail)}"
    return f'["{kind}",{texts}]\n'.encode()


def split(buffer: bytearray) -> list[bytes]:
    """Take the complete lines out of `buffer` and leave the beginning of the next one in it."""
    *lines, rest = bytes(buffer).split(b"\n")
    buffer[:] = rest
    return lines


def decode(line: bytes) -> Any:
    """What `encode` was given. Raises `ValueError` for anything else."""
    return json.loads(line)


def decode_all(lines: list[bytes]) -> list[Any]:
    """All lines at once: a single call to the parser instead of one for each.

    Raises `ValueError` if any of them is not JSON, naming it.
    """
    try:
        whole: list[Any] = json.loads(b"[" + b",".join(lines) + b"]")
    except ValueError:
        return [_decode_or_name(line) for line in lines]
    return whole


def _decode_or_name(line: bytes) -> Any:
    try:
        return decode(line)
    except ValueError:
        raise ValueError(line[:80].decode(errors="replace")) from None
