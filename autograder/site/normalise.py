"""What differs from one execution to the next and says nothing: ports, nonces, addresses, paths.

Measured times stay: they are what a page is about, rounded by the cell that prints them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b(127\.0\.0\.1|localhost):\d{2,5}\b"), r"\1:PORT"),
    (re.compile(r"\b(order-\d{4})-[0-9a-f]{6}\b"), r"\1"),
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "0x..."),
    (re.compile(r"/(?:tmp|var/folders)/[\w./-]+/"), ""),
)


def text(said: str, root: Path) -> str:
    """One output's text without what differs by chance."""
    said = said.replace(f"{root}/", "")
    for pattern, replacement in _RULES:
        said = pattern.sub(replacement, said)
    return said


def outputs(cell: NotebookNode, root: Path) -> None:
    """All texts of a code cell's outputs, in place."""
    for output in cell.outputs:
        if "text" in output:
            output.text = text(output.text, root)
        for kind, data in output.get("data", {}).items():
            if isinstance(data, str):
                output.data[kind] = text(data, root)
        if output.output_type == "error":
            output.traceback = [text(line, root) for line in output.traceback]
