"""A real grade, for pages that explain reports."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from autograder import catalog
from autograder.authoring import mutants
from autograder.grading import grade
from autograder.model import Grade
from lessonkit.broker import ENGINE, server


async def graded(name: str, *, mutant: str) -> Grade:
    """Grade one of an exercise's mutants as if a student had handed it in, with seed 1."""
    exercise = catalog.find(name)
    patch = exercise.solution_folder / "mutants" / f"{mutant}.patch"
    with tempfile.TemporaryDirectory() as folder:
        file = mutants.apply(mutants.parse(patch), exercise.reference, Path(folder))
        return await asyncio.to_thread(  # a grading has an event loop of its own
            grade, exercise, file, engine=ENGINE, server=server(), seeds=(1,)
        )
