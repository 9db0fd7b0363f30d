"""A run on disk: JSON lines, so that it can be judged again by a check written later.

The first line is the header: the format's name and version, what was asked for, what the broker
said at the end, and the number of events. Every further line is one event, with the fields that
do not apply left out. The text is ASCII (JSON escapes), so that every string comes back exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from autograder.model import BrokerState, Event, History, Kind, UsageError, as_json
from autograder.report.files import write_text

SCHEMA = "ackademy-history/1"
_TEXT = ("message", "key", "detail")
_NUMBERS = ("delivery", "attempt", "process")


def to_lines(history: History) -> Iterator[str]:
    """The lines of a history, without line ends."""
    yield json.dumps(
        {
            "schema": SCHEMA,
            "exercise": history.exercise,
            "test": history.test,
            "engine": history.engine,
            "seed": history.seed,
            "workers": history.workers,
            "truncated": history.truncated,
            "broker": as_json(history.broker),
            "events": len(history.events),
        }
    )
    for event in history.events:
        line: dict[str, Any] = {"at": event.at, "kind": str(event.kind)}
        line.update(
            (name, value) for name in (*_TEXT, *_NUMBERS) if (value := getattr(event, name))
        )
        yield json.dumps(line, separators=(",", ":"))


def from_lines(lines: Iterable[str]) -> History:
    """The history these lines hold. Raises `UsageError`, naming the line, if they hold none."""
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    header: dict[str, Any] | None = None
    events: list[Event] = []
    for number, line in numbered:
        try:
            data = json.loads(line)
            if header is None:
                header = _checked_header(data)
            else:
                events.append(_event(data))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(f"Line {number} is not part of a history: {error}.") from error
    if header is None:
        raise UsageError("There is no history in an empty file.")
    if len(events) != header["events"]:
        raise UsageError(
            f"The history is incomplete: {header['events']} events were written, "
            f"{len(events)} are there."
        )
    return History(
        tuple(events),
        workers=header["workers"],
        exercise=header["exercise"],
        test=header["test"],
        engine=header["engine"],
        seed=header["seed"],
        broker=BrokerState(**header["broker"]),
        truncated=header["truncated"],
    )


def write(history: History, path: Path) -> None:
    """Write a history, whole or not at all. Raises `UsageError` or `GraderError` if that fails."""
    write_text(path, "".join(f"{line}\n" for line in to_lines(history)))


def read(path: Path) -> History:
    """Read a history. Raises `UsageError` if there is none at `path`."""
    try:
        with path.open(encoding="utf-8") as file:
            return from_lines(file)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as a history: {error}.") from error


_HEADER = {
    "exercise": str,
    "test": str,
    "engine": str,
    "seed": int,
    "workers": int,
    "truncated": bool,
    "broker": dict,
    "events": int,
}


def _checked_header(data: dict[str, Any]) -> dict[str, Any]:
    if data.get("schema") != SCHEMA:
        raise ValueError(f"the first line must say that the schema is {SCHEMA!r}")
    for name, kind in _HEADER.items():
        if not isinstance(data.get(name), kind):
            raise TypeError(f"the header's {name!r} must be a {kind.__name__}")
    BrokerState(**data["broker"])
    return data


def _event(data: dict[str, Any]) -> Event:
    at = data.pop("at")
    if not isinstance(at, int | float):
        raise TypeError("'at' must be a number")
    event = Event(at, Kind(data.pop("kind")), **data)
    if not all(isinstance(getattr(event, name), str) for name in _TEXT):
        raise TypeError(f"{', '.join(_TEXT)} must be strings")
    if not all(isinstance(getattr(event, name), int) for name in _NUMBERS):
        raise TypeError(f"{', '.join(_NUMBERS)} must be whole numbers")
    return event
