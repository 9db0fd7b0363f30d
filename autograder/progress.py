"""What a student has done: a plain-text file that is theirs to read, edit, commit or delete.

`.ackademy/progress.toml` below the course root holds, for each exercise, its last check and the
hints taken. It is a convenience: a file that cannot be read or written never stops a check, and
nothing that was in it is thrown away.
"""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from autograder.model import Grade, Status

FORMAT = 1
LOCK_TIMEOUT_S = 5.0  # another command writes for milliseconds

_HEADER = """\
# What you have done in this course. The file is yours: edit it, commit it, or delete it to start anew.
# `ackademy check` writes the last check of each exercise, `ackademy hint` the rungs you have taken.
"""


@dataclass(frozen=True)
class Record:
    """One exercise: how its last check went, where it passes, and which hints were taken.

    Times are ISO 8601 in UTC. `passed` keeps, per engine, when the check first passed; a check
    that fails later takes it away again.
    """

    checked: str = ""
    engine: str = ""
    status: Status | None = None
    points: int = 0
    points_possible: int = 0
    verdicts: Mapping[str, Status] = field(default_factory=dict)
    hints: Mapping[str, int] = field(default_factory=dict)
    visible: bool = False  # the last check ran the visible tests only
    passed: Mapping[str, str] = field(default_factory=dict)

    @property
    def failing(self) -> tuple[str, ...]:
        """The guarantees that failed in the last check, in the order of the report."""
        return tuple(name for name, status in self.verdicts.items() if status is Status.FAIL)


@dataclass
class Progress:
    """All records by `NN_unit/NN_slug`, and what to tell about the file itself."""

    records: dict[str, Record] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)

    def of(self, exercise: str) -> Record:
        """The record of one exercise; an empty one if it was never checked."""
        return self.records.get(exercise, Record())

    @property
    def latest(self) -> str | None:
        """The exercise checked last."""
        checked = {name: record.checked for name, record in self.records.items() if record.checked}
        return max(checked, key=checked.__getitem__) if checked else None


def path(root: Path) -> Path:
    """Where the file lies."""
    return root / ".ackademy" / "progress.toml"


def read(root: Path) -> Progress:
    """What the file says. One that cannot be understood is kept under another name and said."""
    file = path(root)
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Progress()
    except OSError as error:
        return Progress(
            notices=[f"{file} cannot be read ({error.strerror}): progress is not shown."]
        )
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return Progress(notices=[_set_aside(file, str(error))])
    progress = Progress()
    wrong = []
    for name, entry in table.items():
        if name == "format":
            continue
        try:
            progress.records[name] = _record(entry)
        except (AttributeError, TypeError, ValueError):
            wrong.append(name)
    if wrong or table.get("format") != FORMAT:
        progress.notices.append(_set_aside(file, f"no record: {', '.join(wrong) or 'format'}"))
        _write(file, progress)
    return progress


def record_grade(root: Path, grade: Grade, *, counts: bool = True) -> list[str]:
    """Keep this grade as the last check of its exercise; notices say what went wrong with that.

    `counts=False` keeps the verdicts, so that `hint` knows them, but does not call it passed.
    A grade that was interrupted has decided nothing and changes nothing.
    """
    if not grade.complete:
        return []
    checked = grade.started_at or datetime.now(UTC).isoformat(timespec="seconds")

    def change(old: Record) -> Record:
        passed = dict(old.passed)
        if grade.status is Status.PASS and counts:
            passed.setdefault(grade.engine, checked)
        elif grade.status is Status.FAIL:
            passed.pop(grade.engine, None)
        return Record(
            checked=checked,
            engine=grade.engine,
            status=grade.status,
            points=grade.points,
            points_possible=grade.points_possible,
            verdicts={result.guarantee: result.verdict.status for result in grade.results},
            hints=old.hints,
            visible=not counts,
            passed=passed,
        )

    return _update(root, grade.exercise.path, change)


def record_hint(root: Path, exercise: str, guarantee: str, rung: int) -> list[str]:
    """Keep that this rung was taken; notices say what went wrong with that."""

    def change(old: Record) -> Record:
        taken = max(rung, old.hints.get(guarantee, 0))
        return replace(old, hints={**old.hints, guarantee: taken})

    return _update(root, exercise, change)


def _update(root: Path, exercise: str, change: Callable[[Record], Record]) -> list[str]:
    """Read, change and write under a lock, so that two commands at once lose nothing."""
    from filelock import FileLock, Timeout  # noqa: PLC0415 - slow, and most commands only read

    file = path(root)
    try:
        file.parent.mkdir(exist_ok=True)
        with FileLock(file.with_suffix(".lock"), timeout=LOCK_TIMEOUT_S):
            progress = read(root)
            progress.records[exercise] = change(progress.of(exercise))
            if file.exists() and not os.access(file, os.R_OK):
                return progress.notices
            _write(file, progress)
            return progress.notices
    except Timeout:
        return [f"Progress was not kept: another command holds {file.with_suffix('.lock')}."]
    except (OSError, NotImplementedError) as error:  # the second: a file system without locks
        return [f"Progress was not kept in {file}: {error}."]


def _write(file: Path, progress: Progress) -> None:
    """Replace the file in one step: a crash leaves the old one or the new one, never half."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix="progress-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(_dump(progress))
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _set_aside(file: Path, why: str) -> str:
    """Keep a copy of a file that was not understood; the sentence that says so."""
    number = 1
    while (copy := file.with_name(f"progress-unreadable-{number}.toml")).exists():
        number += 1
    try:
        file.replace(copy)
    except OSError as error:
        return f"{file} was not understood ({why}) and cannot be moved away ({error.strerror})."
    return f"{file} was not understood ({why}). It is kept as {copy.name}."


def _record(entry: Mapping[str, object]) -> Record:
    """A record from its table. Raises `AttributeError`, `TypeError` or `ValueError` otherwise."""
    status = _text(entry.get("status", ""))
    return Record(
        checked=_text(entry.get("checked", "")),
        engine=_text(entry.get("engine", "")),
        status=Status(status) if status else None,
        points=_count(entry.get("points", 0)),
        points_possible=_count(entry.get("points_possible", 0)),
        verdicts={name: Status(_text(v)) for name, v in _table(entry, "verdicts").items()},
        hints={name: _count(value) for name, value in _table(entry, "hints").items()},
        visible=entry.get("visible", False) is True,
        passed={name: _text(value) for name, value in _table(entry, "passed").items()},
    )


def _table(entry: Mapping[str, object], key: str) -> Mapping[str, object]:
    table = entry.get(key, {})
    if not isinstance(table, dict):
        raise TypeError(key)
    return table


def _text(value: object) -> str:
    if isinstance(value, datetime):  # an unquoted time, as a person would write it
        return value.isoformat()
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _count(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(value)
    return value


def _dump(progress: Progress) -> str:
    """TOML. JSON's strings and whole numbers are TOML's too."""
    lines = [_HEADER, f"format = {FORMAT}"]
    for name, record in sorted(progress.records.items()):
        lines.append(f"\n[{json.dumps(name)}]")
        if record.status is not None:
            lines += [
                f"checked = {json.dumps(record.checked)}",
                f"engine = {json.dumps(record.engine)}",
                f"status = {json.dumps(record.status)}",
                f"points = {record.points}",
                f"points_possible = {record.points_possible}",
            ]
            if record.visible:
                lines.append("visible = true")
        for key in ("passed", "verdicts", "hints"):
            if table := getattr(record, key):
                lines.append(f"[{json.dumps(name)}.{key}]")
                lines += [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in table.items()]
    return "\n".join(lines) + "\n"
