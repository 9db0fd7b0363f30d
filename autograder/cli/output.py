"""Where words leave for the terminal: commands as this person can type them, closed pipes in peace."""

from __future__ import annotations

import os
import sys

from rich.console import Console

from autograder.report.commands import typed


class Out(Console):
    """stdout. When its reader has gone (`| head`), the rest is said to nobody."""

    def __init__(self) -> None:
        super().__init__(highlight=False)

    def tell(self, text: str, *, style: str = "") -> None:
        """Text as text, whole lines, its commands as they can be typed here."""
        self.print(typed(text), style=style or None, markup=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Go on with the command: its outcome does not depend on who reads it."""
        self.quiet = True
        hush()


def hush() -> None:
    """Point stdout at nothing, so that flushing it at the end of the process cannot fail."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)
