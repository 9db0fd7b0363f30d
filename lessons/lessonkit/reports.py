"""A real grade, for pages that explain reports."""

from __future__ import annotations

import asyncio
import io
import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from autograder import catalog
from autograder.authoring import mutants
from autograder.grading import grade
from autograder.model import Grade, Status
from autograder.report import html, terminal
from autograder.report.excerpt import draw
from lessonkit.broker import ENGINE, server
from lessonkit.pictures import facts, show_layout


async def graded(name: str, *, mutant: str) -> Grade:
    """Grade one of an exercise's mutants as if a student had handed it in, with seed 1."""
    exercise = catalog.find(name)
    patch = exercise.solution_folder / "mutants" / f"{mutant}.patch"
    with tempfile.TemporaryDirectory() as folder:
        file = mutants.apply(mutants.parse(patch), exercise.reference, Path(folder))
        done = await asyncio.to_thread(  # a grading has an event loop of its own
            grade, exercise, file, engine=ENGINE, server=server(), seeds=(1,)
        )
    return replace(done, submission=exercise.skeleton)  # what a student's own report would say


def printed(done: Grade) -> str:
    """What the terminal shows of a grade, 80 columns wide."""
    out = io.StringIO()
    console = Console(file=out, width=80, color_system=None, highlight=False, force_jupyter=False)
    terminal.render(done, console)
    text = out.getvalue()
    return text.rstrip()


def pieces(text: str) -> list[str]:
    """A printed grade in its parts: the head, each failure, the list, what it comes to."""
    return re.split(r"\n\n(?=\S)", text)


def first_failure(done: Grade, guarantee: str, caption: str) -> None:
    """Draw the picture of a guarantee that failed, as the HTML report shows it."""
    result = next(each for each in done.results if each.guarantee == guarantee)
    layout = draw(result.verdict, result.history, rows=14)
    if result.verdict.status is not Status.FAIL or layout is None:
        raise ValueError(f"{guarantee} did not fail with a picture")
    show_layout(layout, caption)


def attach(name: str, done: Grade) -> None:
    """Give the page the report's own HTML as a file beside it."""
    given = json.dumps({name: html.page(done)})
    facts(attachments=given)
