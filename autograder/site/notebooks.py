"""Text notebooks: a lesson's file as cells, and the rules that keep unexecuted code off a page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jupytext
import yaml

from autograder.model import UsageError

if TYPE_CHECKING:
    from nbformat import NotebookNode

BUILD = "uv run --group docs mkdocs build --strict"
BUDGET_S = 300
LESSON_KEYS = ("title", "description", "minutes", "brokers", "outcomes", "needs")
TAGS = frozenset({"fold", "hide-input", "raises-exception"})

_FRONT = re.compile(r"\A---\n(.*?\n)---\n", re.DOTALL)
_FENCE = re.compile(r"^ *(?:```|~~~) *\{?\.?(?:python|py|ipython3)\b", re.MULTILINE)


@dataclass(frozen=True)
class Notebook:
    """One text notebook. `lines` holds the line of the file at which each cell's source begins."""

    file: Path
    name: str  # relative to the course, for people
    front: Mapping[str, Any]
    cells: NotebookNode
    lines: tuple[int, ...]

    @property
    def budget_s(self) -> float:
        """How long all of its cells may take together."""
        return float(self.front.get("budget_s", BUDGET_S))


def wrong(where: str, sentence: str) -> UsageError:
    """A fault of a page's source: where, what, and the command to try again with."""
    return UsageError(f"{where}: {sentence}", next_command=BUILD)


def front_matter(text: str, name: str) -> tuple[dict[str, Any], str]:
    """The YAML at the head of a page and the rest. Raises `UsageError` if it is no mapping."""
    found = _FRONT.match(text)
    if found is None:
        return {}, text
    try:
        front = yaml.safe_load(found[1])
    except yaml.YAMLError as error:
        raise wrong(name, f"the front matter is no YAML: {error}") from None
    if not isinstance(front, dict):
        raise wrong(name, "the front matter is no mapping of names to values.")
    return front, text[found.end() :]


def read(file: Path, root: Path) -> Notebook:
    """A text notebook as cells. Raises `UsageError` naming the line that breaks a rule."""
    name = file.relative_to(root).as_posix()
    text = file.read_text(encoding="utf-8")
    front, body = front_matter(text, name)
    body = body.lstrip("\n")
    notebook = jupytext.reads(body, fmt="md")
    lines = _lines(notebook, text, body)
    _refuse_what_would_not_run(notebook, lines, name)
    return Notebook(file, name, front, notebook, lines)


def check_lesson(notebook: Notebook) -> None:
    """Raise `UsageError` if a lesson's front matter lacks something."""
    for key in LESSON_KEYS:
        if key not in notebook.front:
            raise wrong(f"{notebook.name}:1", f"the front matter lacks `{key}`.")


def _lines(notebook: NotebookNode, text: str, body: str) -> tuple[int, ...]:
    """Where each cell begins: cells keep their text and order, so they can be found again."""
    at, found = len(text) - len(body), []
    for cell in notebook.cells:
        magic, _, rest = cell.source.partition("\n")  # a shell fence's first line is jupytext's own
        place = text.find(rest if magic.startswith("%%") else cell.source, at)
        at = place if place >= 0 else at
        found.append(text.count("\n", 0, at) + 1)
        at += len(cell.source)
    return tuple(found)


def _refuse_what_would_not_run(notebook: NotebookNode, lines: tuple[int, ...], name: str) -> None:
    if not any(cell.cell_type == "code" for cell in notebook.cells):
        raise wrong(f"{name}:1", "there is no code cell: nothing on this page would be executed.")
    for cell, line in zip(notebook.cells, lines, strict=True):
        if cell.cell_type == "code":
            _check_cell(cell, f"{name}:{line}")
        elif fence := _FENCE.search(cell.source):
            at = line + cell.source.count("\n", 0, fence.start())
            raise wrong(
                f"{name}:{at}",
                "this Python is no cell (it is indented or inside a block), so it would be shown "
                "without having been executed.",
            )


def _check_cell(cell: NotebookNode, where: str) -> None:
    if cell.get("outputs"):
        raise wrong(where, "a text notebook holds no outputs: they come from the build.")
    if cell.source.lstrip().startswith("%%"):
        raise wrong(
            where, "a shell fence is executed as a cell: use `console` for commands to show."
        )
    if unknown := set(cell.metadata.get("tags", [])) - TAGS:
        raise wrong(where, f"no such tag: {', '.join(sorted(unknown))}; there are {sorted(TAGS)}.")
