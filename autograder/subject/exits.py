"""How a subject's process ends: its statuses, and what a student's way out comes to."""

from __future__ import annotations

import signal
from pathlib import Path

from autograder.model import Kind
from autograder.subject.module import student_line, student_trace
from autograder.subject.reporter import Reporter

EXIT_OK, EXIT_BROKEN, EXIT_BUG, EXIT_NO_BROKER = 0, 1, 70, 69
EXIT_RAISED = 1  # of a module that is all of its process: an exception came out of it


def status_of(error: BaseException) -> int:
    """What a process ends with that lets this out; negative: by that signal. See `sys.exit`."""
    if isinstance(error, KeyboardInterrupt):
        return -signal.SIGINT
    return exit_status(error.code) if isinstance(error, SystemExit) else EXIT_RAISED


def exit_status(code: object) -> int:
    """What `sys.exit(code)` makes of it: nothing is 0, a number its lowest byte, all else 1."""
    if code is None:
        return EXIT_OK
    return code & 0xFF if isinstance(code, int) else EXIT_RAISED


def report_exit(reporter: Reporter, error: SystemExit, path: Path) -> None:
    """Report that the module calls sys.exit, and where."""
    text = f"exit: the module calls sys.exit({error.code!r}) in the middle of the run"
    where, trace = student_line(error, path), student_trace(error, path)
    reporter.event(Kind.BROKEN, detail=f"{text} ({where}).\n{trace}")
