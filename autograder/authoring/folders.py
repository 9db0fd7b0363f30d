"""What an exercise's folders must hold before anything is run: read, never executed.

Each rule is one function from an `Exercise` to findings; each finding says where, what and how to
mend it, because the reader is an author who adds an exercise for the first time.
"""

from __future__ import annotations

import ast
import difflib
import io
import pkgutil
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from autograder import catalog, checks
from autograder.authoring import mutants
from autograder.checks import registry
from autograder.model import Exercise, UsageError


@dataclass(frozen=True)
class Finding:
    """Something an author has to mend: where it is, what is wrong, and what to do about it."""

    where: str
    sentence: str
    remedy: str = ""


def inspect(exercise: Exercise) -> list[Finding]:
    """Every finding about one exercise's files."""
    rules = (
        check_files,
        check_guarantees,
        check_hints,
        check_todos,
        check_signature,
        check_mutants,
    )
    return [finding for rule in rules for finding in rule(exercise)]


def check_files(exercise: Exercise) -> Iterator[Finding]:
    """The mirrored folders are complete and hold nothing else."""
    module = f"{exercise.module}.py"
    given = {"README.md", "exercise.toml", "hints.md", "test_visible.py", module}
    if exercise.tables:
        given.add("tables.sql")
    withheld = {"NOTES.md", "test_hidden.py", module, "mutants/*.patch", "variants/*.py"}
    yield from _compare("exercises", exercise.folder, given)
    yield from _compare("solutions", exercise.solution_folder, withheld)


def _compare(tree: str, folder: Path, expected: set[str]) -> Iterator[Finding]:
    place = f"{tree}/{'/'.join(folder.parts[-2:])}"
    belonging = {pattern: set(folder.glob(pattern)) for pattern in expected}
    for pattern, files in sorted(belonging.items()):
        if not files:
            yield Finding(place, f"{pattern} is missing", _PURPOSE.get(pattern, _MODULE))
    present = {file for file in folder.rglob("*") if file.is_file()}
    for file in sorted(present.difference(*belonging.values())):
        name = file.relative_to(folder)
        if not any(part == "__pycache__" or part.startswith(".") for part in name.parts):
            yield Finding(f"{place}/{name.as_posix()}", "does not belong here", "Remove it.")


_MODULE = "It is the module that `entry` in exercise.toml names."
_PURPOSE = {
    "README.md": "Write the statement: the scene, the contract, how it is graded.",
    "exercise.toml": "Describe the exercise: title, kind, entry, engines, timeout_s, points.",
    "hints.md": "Write three rungs per guarantee: a question, the mechanism, the name of the API.",
    "test_visible.py": "Write scenarios a student may read: some guarantees, other seeds.",
    "test_hidden.py": "Write the scenarios that grade; each declares its guarantees.",
    "NOTES.md": "Write down the objectives, what is out of scope, and slips seen in class.",
    "mutants/*.patch": "Cut at least one wrong solution per guarantee.",
    "variants/*.py": "Write a different right solution, so that tests do not grade a style.",
}


def check_guarantees(exercise: Exercise) -> Iterator[Finding]:
    """Every guarantee with points is one that a check judges."""
    known = known_guarantees()
    for name in exercise.points:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            remedy = (
                f"Did you mean {near[0]}?" if near else f"There are: {', '.join(sorted(known))}."
            )
            yield Finding(_toml(exercise), f"{name} is not a guarantee", remedy)


def known_guarantees() -> frozenset[str]:
    """The names in the catalogue once every module of checks is imported."""
    for module in pkgutil.walk_packages(checks.__path__, f"{checks.__name__}."):
        import_module(module.name)
    return frozenset(registry.catalogue())


def check_hints(exercise: Exercise) -> Iterator[Finding]:
    """Every guarantee with points has three rungs, and no hint speaks of another one."""
    where = f"exercises/{exercise.path}/hints.md"
    try:
        hints = catalog.read_hints(exercise)
    except UsageError:
        return  # a missing file is a finding already
    for name in exercise.points:
        rungs = hints.get(name, ())
        if len(rungs) != catalog.RUNGS or not all(rungs):
            yield Finding(
                where,
                f"{name} has {len(rungs)} rungs",
                f"Below `## {name}` write a list of {catalog.RUNGS}: a question that points at the "
                "mistake, the mechanism, the name of the API.",
            )
    for name in hints:
        if name not in exercise.points:
            yield Finding(where, f"{name} has hints but no points", f"Add it to {_toml(exercise)}.")


def check_todos(exercise: Exercise) -> Iterator[Finding]:
    """The skeleton says with TODO sentences where to write what."""
    where = f"exercises/{exercise.path}/{exercise.module}.py"
    try:
        todos = list(_todos(exercise.skeleton.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tokenize.TokenError, SyntaxError):
        return  # a missing file is a finding already, and the signature's rule reads it too
    if not todos:
        yield Finding(
            where, "has no TODO", "At least one `# TODO:` comment guides the student to the place."
        )
    for todo in todos:
        if len(todo.split()) < 3 or not todo.endswith((".", "?", "!")):
            yield Finding(where, f"TODO is no sentence: {todo!r}", "Say what to do, in a sentence.")


def _todos(source: str) -> Iterator[str]:
    """The text after each `TODO:`, over as many comment lines as it runs."""
    lines: dict[int, str] = {}
    alone: set[int] = set()  # a comment beside code does not continue the one above it
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0]] = token.string.lstrip("#").strip()
            if token.line.strip() == token.string:
                alone.add(token.start[0])
    for number, line in lines.items():
        _, found, text = line.partition("TODO")
        while found and number + 1 in alone and "TODO" not in lines[number + 1]:
            number += 1  # noqa: PLW2901 - the comment goes on below
            text += f" {lines[number]}"
        if found:
            yield text.lstrip(":").strip()


def check_signature(exercise: Exercise) -> Iterator[Finding]:
    """Skeleton, reference and variants offer the same functions with the same signatures."""
    for function in dict.fromkeys((exercise.function, *(each.function for each in exercise.calls))):
        yield from _check_function(exercise, function)


def _check_function(exercise: Exercise, function: str) -> Iterator[Finding]:
    try:
        expected = signature(exercise.reference, function)
    except UsageError as error:
        yield Finding(f"solutions/{exercise.path}", error.sentence, _MODULE)
        return
    for file in (exercise.skeleton, *variants(exercise)):
        try:
            actual = signature(file, function)
        except UsageError as error:
            yield Finding(file.name, error.sentence, f"Write: {expected}")
            continue
        if actual != expected:
            yield Finding(
                f"{file.parent.name}/{file.name}",
                f"has another signature than the reference: {actual}",
                f"Write: {expected}",
            )


def signature(file: Path, function: str) -> str:
    """A function's head as text, from the source alone. Raises `UsageError` if there is none."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), file.name)
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError) as error:
        raise UsageError(f"{file.name} cannot be read: {error}") from error
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name == function:
            keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            return f"{keyword} {node.name}({ast.unparse(node.args)}){returns}"
    raise UsageError(f"{file.name} has no function {function}")


def variants(exercise: Exercise) -> list[Path]:
    """The other right solutions, by name."""
    return sorted((exercise.solution_folder / "variants").glob("*.py"))


def patches(exercise: Exercise) -> list[Path]:
    """The wrong solutions, by name."""
    return sorted((exercise.solution_folder / "mutants").glob("*.patch"))


def check_mutants(exercise: Exercise) -> Iterator[Finding]:
    """Every patch reads well, names known guarantees, and each guarantee is named by a patch."""
    named: set[str] = set()
    for patch in patches(exercise):
        where = f"mutants/{patch.name}"
        if not re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", patch.stem):
            yield Finding(where, "is not a legal name", "Use lower case words and underscores.")
        try:
            mutant = mutants.parse(patch)
        except UsageError as error:
            yield Finding(where, error.sentence, f"Try: {error.next_command}")
            continue
        named.update(mutant.caught_by)
        yield from _strangers(where, mutant.caught_by, exercise)
    for name in exercise.points:
        if name not in named:
            yield Finding(
                f"solutions/{exercise.path}/mutants",
                f"no mutant is caught by {name}",
                "A check that never caught anything may be unable to: cut a mutant that breaks it.",
            )


def _strangers(where: str, names: Iterable[str], exercise: Exercise) -> Iterator[Finding]:
    for name in names:
        if name not in exercise.points:
            near = difflib.get_close_matches(name, exercise.points, n=1)
            remedy = f"Did you mean {near[0]}?" if near else f"Give it points in {_toml(exercise)}."
            yield Finding(where, f"Caught-by names {name}, which has no points", remedy)


def _toml(exercise: Exercise) -> str:
    return f"exercises/{exercise.path}/exercise.toml"
