"""Faults that are ours or the machine's: nobody's submission is charged for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autograder.model import GraderError


@contextmanager
def machine_faults_are_ours() -> Iterator[None]:
    """What the system refuses us is a fault of ours."""
    try:
        yield
    except OSError as error:
        raise _machine_fault(error) from error


def root_of(group: ExceptionGroup[Exception]) -> Exception:
    """The one of several faults of ours that explains the others: a bug before a broker's end."""
    ours, bugs = group.split((GraderError, OSError))
    error: Exception = bugs or ours or group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return _machine_fault(error) if isinstance(error, OSError) else error


def _machine_fault(error: BaseException) -> GraderError:
    """What the system refused us, as a fault of ours: a full disk costs nobody points."""
    reason = getattr(error, "strerror", None) or str(error)
    return GraderError(
        f"This machine did not play along: {reason}.", next_command="df -h; ulimit -a"
    )
