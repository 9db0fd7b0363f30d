"""Loading a student's module, and saying clearly why it cannot be loaded or called."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from autograder.model import Call

StudentFunction = Callable[..., Awaitable[Any]]


class Broken(Exception):  # noqa: N818 - a state of the submission, not of ours
    """The submission cannot be graded: a code, a sentence for the student, their traceback."""

    def __init__(self, code: str, sentence: str, trace: str = "") -> None:
        super().__init__(sentence)
        self.detail = f"{code}: {sentence}\n{trace}"


def load(path: Path, call: Call, *, given: Mapping[str, object] | None = None) -> StudentFunction:
    """Import the module at `path` and return the coroutine function to call. Raises `Broken`.

    `given` names are there before the module's own code runs, in front of the built-in ones.
    """
    try:
        path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise Broken("encoding", f"{path.name} is not UTF-8 text (byte {error.start}).") from None
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Broken("not python", f"{path.name} is not a Python module: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    vars(module).update(given or {})
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise Broken("syntax", _syntax_sentence(error, path), _syntax_trace(error)) from None
    except SystemExit as error:
        raise Broken(
            "exit at import", f"{path.name} calls sys.exit({error.code!r}) while it is imported.",
            student_trace(error, path),
        ) from None  # fmt: skip
    except ImportError as error:
        raise Broken(
            "import", f"{path.name} imports what is not there: {error}.", student_trace(error, path)
        ) from None
    except BaseException as error:  # noqa: BLE001 - a module may raise anything at all
        raise Broken(
            "raises at import", f"{path.name} raises {summary(error)} while it is imported.",
            student_trace(error, path),
        ) from None  # fmt: skip
    return _callable(module, path, call)


def _callable(module: Any, path: Path, call: Call) -> StudentFunction:
    function = call.function
    found = getattr(module, function, None)
    if found is None:
        raise Broken("no function", f"{path.name} has no function called {function}.")
    if not callable(found):
        raise Broken("no function", f"{function} in {path.name} is {type(found).__name__}, not a function.")  # fmt: skip
    if not inspect.iscoroutinefunction(found):
        raise Broken("not async", f"{function} must be an async function: write `async def {function}`.")  # fmt: skip
    try:
        signature = inspect.signature(found)
    except (ValueError, TypeError):
        raise Broken("signature", f"The signature of {function} cannot be read.") from None
    try:
        signature.bind(*call.positional, **dict.fromkeys(call.named))
    except TypeError as error:
        raise Broken(
            "signature",
            f"{function}{signature} cannot be called as {call}: {error}.",
        ) from None
    return found  # type: ignore[no-any-return] # getattr: checked above


def summary(error: BaseException) -> str:
    """`ValueError: no such order`, on one line, at most 200 characters."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - a student's __str__ may raise anything
        text = ""
    name = type(error).__name__
    line = f"{name}: {text}" if text else name
    return " ".join(line.split())[:200]


def student_trace(error: BaseException, path: Path) -> str:
    """The traceback with no frame of ours: from the student's first line on, short."""
    try:
        report = traceback.TracebackException.from_exception(error, limit=-30)
        _keep_student_frames(report, path, set())
        return "".join(report.format()).strip()[:8000]
    except BaseException:  # noqa: BLE001 - formatting touches the student's objects
        return summary(error)


def _keep_student_frames(report: traceback.TracebackException, path: Path, seen: set[int]) -> None:
    """Drop everything outside the student's folder, in causes and groups as well."""
    if id(report) in seen:
        return
    seen.add(id(report))
    folder = str(path.parent)
    kept = [frame for frame in report.stack if frame.filename.startswith(folder)]
    for frame in kept:
        frame.filename = Path(frame.filename).name
    report.stack = traceback.StackSummary.from_list(kept)
    for other in (report.__cause__, report.__context__, *(report.exceptions or ())):
        if other is not None:
            _keep_student_frames(other, path, seen)


def student_line(error: BaseException, path: Path) -> str:
    """`worker_pool.py line 12`, the innermost line of the student's in this traceback, or nothing."""
    folder = str(path.parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(folder):
            return f"{Path(frame.filename).name} line {frame.lineno}"
    return ""


def _syntax_sentence(error: SyntaxError, path: Path) -> str:
    where = Path(error.filename or path.name).name
    return f"{where} line {error.lineno or '?'} is not valid Python: {error.msg}."


def _syntax_trace(error: SyntaxError) -> str:
    lines = traceback.format_exception_only(error)
    return "".join(line for line in lines if not line.lstrip().startswith("File ")).rstrip()
