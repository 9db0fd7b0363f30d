"""How a command ends when it cannot do its work: a sentence, the next command, an exit code."""

from __future__ import annotations

import io
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from autograder import __version__
from autograder.cli import INTERRUPTED
from autograder.cli.output import hush
from autograder.model import AckademyError
from autograder.report.commands import typed

OUR_FAULT = 3


def guarded(command: Callable[[], object]) -> None:
    """Run a command and leave the process with its exit code.

    Usage errors that Typer finds exit with 2 by themselves.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal without a character for an arrow or a name shows a question mark instead
            stream.reconfigure(errors="replace")
    try:
        command()
    except BrokenPipeError:  # whoever read our words has gone: nothing is wrong with the work
        hush()
        sys.exit(0)
    except AckademyError as error:
        sys.exit(explain(error))
    except SystemExit as end:
        _flush()
        if end.code == INTERRUPTED:  # Typer's, of a Ctrl-C that came before there was an outcome
            say("Interrupted.")
        raise
    except Exception as error:  # noqa: BLE001 - whatever is left is a bug of ours, and said so
        sys.exit(confess(error))


def _flush() -> None:
    """Find out here, not when the interpreter ends, that nobody reads stdout any more."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        hush()


def explain(error: AckademyError) -> int:
    """Say what can be mended and how; the exit code."""
    say(error.sentence)
    if error.next_command:
        say(f"Next: {error.next_command}")
    return error.exit_code


def confess(error: Exception) -> int:
    """Say that we failed, keep the traceback in a file, and name it; the exit code."""
    summary = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    say(f"Ackademy itself failed; this is not about your module. {summary}")
    text = "".join(traceback.format_exception(error))
    try:
        say(f"The details are in {_keep(text)}: please report them.")
    except OSError:  # a full disk is a likely reason for being here at all
        say(text)
    say("Next: ackademy brokers status")
    return OUR_FAULT


def _keep(text: str) -> Path:
    """A new file in the system's temporary folder with what a report of the fault needs."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    head = f"ackademy {__version__}, Python {sys.version}, {platform.platform()}\n{sys.argv}\n\n"
    with tempfile.NamedTemporaryFile(
        "w",
        encoding="utf-8",
        errors="backslashreplace",
        prefix=f"ackademy-fault-{stamp}-",
        suffix=".txt",
        delete=False,
    ) as file:
        file.write(head + text)
    return Path(file.name)


def say(text: str) -> None:
    """One line to the person, on stderr: stdout is for what was asked for."""
    with suppress(BrokenPipeError):
        print(typed(text), file=sys.stderr, flush=True)
