"""Exceptions that would stay within the student's code: told, since nobody else would hear of them.

Whoever answers every exception with a nack answers those of their own slips so, too: a misspelt
column then looks like a message that comes for ever. So an exception is told where it passes a port on its
way into the code, and where a message is settled while the code handles one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from inspect import currentframe
from pathlib import Path
from types import FrameType
from typing import TypeVar

from autograder.model import Kind
from autograder.subject.module import summary
from autograder.subject.reporter import Reporter

E = TypeVar("E", bound=BaseException)

_MARK = "_ackademy_told"


class Raised:
    """What was raised in one process; the same text is told once between two takes.

    A loop that tries in place, and fails for ever, thus seems to move no more than it does.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._folder = str(path.parent) if path is not None else ""  # of the student's module
        self._told: set[str] = set()

    def next_take(self) -> None:
        """Another message is in hand."""
        self._told.clear()

    def known(self, error: E) -> E:
        """Mark an exception: it has an event of its own, or is a handler's: nothing more is told of it."""
        with suppress(AttributeError):  # one with slots
            setattr(error, _MARK, True)
        return error

    def tell(self, error: BaseException | None, report: Callable[[str], None]) -> None:
        """Report this exception, once, if it is one of those that `except Exception` catches."""
        if not isinstance(error, Exception) or getattr(error, _MARK, False):
            return
        self.known(error)
        line = self._line(error)
        said = summary(error).replace("Recorded", "")  # our own classes, in the way of the port's
        text = f"{said} ({line})" if line else said
        if text not in self._told:
            self._told.add(text)
            report(text)

    @contextmanager
    def telling(self, reporter: Reporter) -> Iterator[None]:
        """An exception that passes is told: of a database or a lease, or of the code within a block."""
        try:
            yield
        except Exception as error:
            self.tell(error, lambda text: reporter.event(Kind.RAISED, detail=text))
            raise

    def _line(self, error: BaseException) -> str:
        """The student's line: of the traceback so far, else the one that waits for the call that raised."""
        if not self._folder:
            return ""
        found = ""
        trace = error.__traceback__
        while trace is not None:  # innermost last
            found = self._named(trace.tb_frame, trace.tb_lineno) or found
            trace = trace.tb_next
        frame = currentframe()
        while not found and frame is not None:
            found = self._named(frame, frame.f_lineno)
            frame = frame.f_back
        return found

    def _named(self, frame: FrameType, line: int | None) -> str:
        file = frame.f_code.co_filename
        return f"{Path(file).name} line {line}" if file.startswith(self._folder) else ""
