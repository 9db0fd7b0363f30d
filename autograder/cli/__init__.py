"""The `ackademy` command. Importing this costs nothing, so that Ctrl-C is heard from the start.

What a person can type is in `commands`, which is loaded under the care of `main`.
"""

from __future__ import annotations

import sys

INTERRUPTED = 130  # what a shell says of a program that Ctrl-C ended


def main() -> None:
    """Run the command; every way it can end has its exit code and says what to type next.

    Only the first Ctrl-C counts, from the first import to the last line of cleaning up.
    """
    # ruff: noqa: PLC0415 - the imports are what takes time, and Ctrl-C may come during them
    try:
        from autograder.cli.interrupts import first_only

        with first_only():
            from autograder.cli.failures import guarded

            guarded(_run)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr, flush=True)
        sys.exit(INTERRUPTED)


def _run() -> None:
    from autograder.cli.commands import app

    app()
