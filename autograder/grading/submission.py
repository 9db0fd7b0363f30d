"""What a person hands in: found, read and fingerprinted before anything runs."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from autograder.model import Exercise, Problem, UsageError

LARGEST_SUBMISSION = 1 << 20  # bytes


@dataclass(frozen=True)
class HandedIn:
    """A submission as it lay there when its grading began."""

    exercise: Exercise
    file: Path
    data: bytes
    problem: Problem | None  # what can be said of it without running it
    began: float  # monotonic seconds
    at: str  # ISO 8601, UTC

    @classmethod
    def now(cls, exercise: Exercise, file: Path) -> HandedIn:
        """Read it. Raises `UsageError` for a path that is no readable file."""
        began, at = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
        data = read(exercise, file)
        return cls(exercise, file, data, problem_of(data, file), began, at)


def read(exercise: Exercise, path: Path) -> bytes:
    """The bytes of a submission. Raises `UsageError` for a path that is no readable file."""
    again = f"ackademy check {exercise.path} --submission FILE.py"
    if path.is_dir():
        inside = path / exercise.skeleton.name
        named = f"ackademy check {exercise.path} --submission {inside}"
        raise UsageError(
            f"{path} is a directory; name the file itself.",
            next_command=named if inside.is_file() else again,
        )
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"There is no file {path}.", next_command=again) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", next_command=again) from None
    if len(data) > LARGEST_SUBMISSION:
        raise UsageError(
            f"{path} has {len(data):,} bytes; a module has at most {LARGEST_SUBMISSION:,}."
        )
    return data


def fingerprint(data: bytes) -> str:
    """SHA-256 of a submission, as hexadecimal text."""
    return hashlib.sha256(data).hexdigest()


def problem_of(data: bytes, path: Path) -> Problem | None:
    """What can be said of a submission without running it."""
    if not data.strip():
        return Problem("empty", f"{path.name} is empty.")
    return None
