"""Execute a notebook in a clean kernel, once for everything it depends on."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from autograder import __version__
from autograder.model import UsageError
from autograder.report.files import write_text
from autograder.site import normalise
from autograder.site.notebooks import Notebook, wrong

FACTS = "application/vnd.ackademy.facts+json"
"""The type of an output that carries numbers for the prose, as `lessonkit.facts` writes it."""

_STAMP = "import lessonkit.stamp; lessonkit.stamp.show()"
_DECISIVE = frozenset({"execution.py", "normalise.py", "notebooks.py"})
_LINE = re.compile(r"Cell In\[\d+\], line (\d+)")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def executed(notebook: Notebook, root: Path, say: Callable[[str], None]) -> NotebookNode:
    """The notebook with its outputs: from the cache if nothing it depends on has changed.

    `metadata.ackademy` holds the facts for its prose and what it was executed with. Raises
    `UsageError` naming page, cell and line of what fails.
    """
    kept = root / ".ackademy" / "pages" / f"{key(notebook, root)}.ipynb"
    if kept.is_file():
        return nbformat.read(kept, as_version=4)
    say(f"Executing {notebook.name}")
    began = time.monotonic()
    done = _execute(notebook, root)
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_text(kept, nbformat.writes(done))
    say(f"Executed {notebook.name} in {time.monotonic() - began:.1f} s")
    return done


def key(notebook: Notebook, root: Path) -> str:
    """What the outputs depend on: the source, all code it can reach, every dependency, Python."""
    digest = hashlib.sha256(notebook.file.read_bytes())
    digest.update(f"{notebook.name} {platform.python_version()} {code_digest(root)}".encode())
    return digest.hexdigest()[:32]


@cache
def code_digest(root: Path) -> str:
    """The package's code, the lessons' kit, exercises and solutions, and the lock file."""
    digest = hashlib.sha256()
    for file in sorted(_code(root)):
        digest.update(f"{file.relative_to(root)} {file.stat().st_size}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _code(root: Path) -> Iterable[Path]:
    yield root / "uv.lock"
    for tree in ("autograder", "lessons/lessonkit", "exercises", "solutions"):
        for file in (root / tree).rglob("*"):
            inside = file.relative_to(root).parts
            if file.suffix in {".pyc", ".md"} or not file.is_file() or inside[1] == "tests":
                continue
            if inside[1] == "site" and file.name not in _DECISIVE:
                continue  # a kernel does not see it: it makes pages of what was executed
            yield file


def _execute(notebook: Notebook, root: Path) -> NotebookNode:
    cells = nbformat.from_dict(notebook.cells)
    cells.cells.append(nbformat.v4.new_code_cell(_STAMP))
    cells.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    deadline = time.monotonic() + notebook.budget_s
    with tempfile.TemporaryDirectory(prefix="ackademy-page-") as folder:
        client = NotebookClient(
            cells,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            extra_arguments=["--IPKernelApp.log_level=40"],
            resources={"metadata": {"path": folder}},
        )
        with client.setup_kernel(env=_environment(root)):
            cells.metadata["language_info"] = {"name": "python"}
            for index, cell in enumerate(cells.cells):
                client.timeout = max(math.ceil(deadline - time.monotonic()), 1)
                _execute_cell(client, notebook, cell, index)
    cells.metadata["ackademy"] = _taken_out(cells)
    for cell in cells.cells:
        if cell.cell_type == "code":
            normalise.outputs(cell, root)
            _refuse_noise(notebook, cells, cell)
    return cells


def _environment(root: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(root / "lessons"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "UV_RUN_RECURSION_DEPTH": "1",  # commands on pages are those of a fresh checkout
        "ACKADEMY_COURSE": str(root),
    }


def _execute_cell(
    client: NotebookClient, notebook: Notebook, cell: NotebookNode, index: int
) -> None:
    try:
        client.execute_cell(cell, index, execution_count=None)
    except CellTimeoutError:
        raise _failed(
            notebook, index, 0, f"is still running after the page's {notebook.budget_s:g} s"
        ) from None
    except DeadKernelError:
        raise _failed(notebook, index, 0, "ended the kernel") from None
    except CellExecutionError as error:
        lines = _LINE.findall(_ANSI.sub("", error.traceback))
        said = f"raised {error.ename}: {error.evalue}"
        raise _failed(notebook, index, int(lines[0]) - 1 if lines else 0, said) from None


def _failed(notebook: Notebook, index: int, line: int, what: str) -> UsageError:
    """The error for one cell, counted as a reader counts: code cells, from 1."""
    if index >= len(notebook.lines):
        return wrong(notebook.name, f"the stamp behind the last cell {what}.")
    number = sum(cell.cell_type == "code" for cell in notebook.cells.cells[: index + 1])
    return wrong(f"{notebook.name}:{notebook.lines[index] + line}", f"cell {number} {what}.")


def _taken_out(cells: NotebookNode) -> dict[str, Any]:
    """Remove the facts from the outputs and return them, with what it all was executed with."""
    facts: dict[str, str] = {}
    stamp: dict[str, str] = {}
    for cell in cells.cells:
        if cell.cell_type != "code":
            continue
        given = stamp if cell.source == _STAMP else facts
        for output in cell.outputs:
            given.update(output.get("data", {}).get(FACTS, {}))
        cell.outputs = [each for each in cell.outputs if FACTS not in each.get("data", {})]
    del cells.cells[-1]
    return {"facts": facts, "executed": {**stamp, **_circumstances()}}


def _circumstances() -> dict[str, str]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "ackademy": __version__,
        "commit": _commit(),
    }


def _commit() -> str:
    command = ["git", "rev-parse", "--short=10", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _refuse_noise(notebook: Notebook, cells: NotebookNode, cell: NotebookNode) -> None:
    """What a cell wrote to stderr was meant for nobody: a warning, a forgotten exception."""
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stderr":
            raise _failed(
                notebook,
                cells.cells.index(cell),
                0,
                f"wrote to stderr: {output.text.strip()[:400]}",
            )


def is_complete(cells: NotebookNode) -> bool:
    """Whether every code cell has been executed: what is not never becomes a page."""
    return all(cell.execution_count is not None for cell in cells.cells if cell.cell_type == "code")
