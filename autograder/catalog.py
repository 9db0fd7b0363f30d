"""Where the course lies and what its exercises say about themselves. Executes nothing.

The path `NN_unit/NN_slug` is the primary key: the same under `lessons/`, `exercises/` and
`solutions/`. An exercise describes itself in `exercise.toml`; `hints.md` beside it holds three
rungs for each of its guarantees.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from autograder.model import Call, Exercise, UsageError

KINDS = ("port", "client", "call", "tests")
ENGINES = ("sim", "nats", "rabbitmq", "kafka")
RUNGS = 3

_NAME = re.compile(r"\d\d_[a-z0-9]+(_[a-z0-9]+)*")
_ENTRY = re.compile(r"([a-z_][a-z0-9_]*):([a-z_][a-z0-9_]*)")
_TREES = ("exercises", "solutions", "lessons")

T = TypeVar("T")


def course_root(start: Path | None = None) -> Path:
    """The folder that holds `exercises/`, from `start` (the working directory) upwards.

    Outside a course the one beside the package is used, if this is a checkout. Raises
    `UsageError` when there is neither.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parent.parent):
        if (folder / "exercises").is_dir():
            return folder
    raise UsageError(
        f"There is no course here: neither {here} nor a folder above it holds an exercises/ folder.",
        next_command="cd into your copy of the course, then: ackademy list",
    )


def names(root: Path) -> list[str]:
    """Every `NN_unit/NN_slug` below `exercises/`, in course order, described or not."""
    found = (root / "exercises").glob("*/*/")
    paths = (folder.relative_to(root / "exercises") for folder in found if folder.is_dir())
    return sorted(p.as_posix() for p in paths if all(_NAME.fullmatch(part) for part in p.parts))


def load(root: Path, name: str) -> Exercise:
    """One exercise from its `exercise.toml`.

    Raises `UsageError` naming the file and the key that does not fit. Whether its guarantees
    exist is for `ackademy author verify`: the catalogue knows no checks.
    """
    folder = root / "exercises" / name
    file = folder / "exercise.toml"
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"{file} is missing, so {name} cannot be graded.", next_command="ackademy list"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(
            f"{file} cannot be read: {error}.", next_command="git diff -- exercises"
        ) from error
    return _exercise(name, folder, root / "solutions" / name, _Table(file, table))


def load_all(root: Path) -> tuple[list[Exercise], list[UsageError]]:
    """Every exercise that can be read, and for the others why not: one broken file hides one."""
    exercises: list[Exercise] = []
    errors: list[UsageError] = []
    for name in names(root):
        try:
            exercises.append(load(root, name))
        except UsageError as error:
            errors.append(error)
    return exercises, errors


def find(query: str, root: Path | None = None) -> Exercise:
    """The exercise that a unique part of a path names.

    `worker_pool`, `03/01`, `01_worker`, `exercises/03_concurrency/01_worker_pool` and the path of
    a file in one of the exercise's folders all do. Raises `UsageError`: listing the candidates
    when several match, the nearest names when none does.
    """
    file = Path(query)
    root = root or course_root(file if file.is_absolute() else None)
    if (within := containing(root, file)) is not None:
        return load(root, within)
    known = names(root)
    matches = _matches(_wanted(query), known)
    if len(matches) == 1:
        return load(root, matches[0])
    if matches:
        raise UsageError(
            f"{query!r} names {len(matches)} exercises: {', '.join(matches)}.",
            next_command=f"ackademy check {matches[0]}",
        )
    near = _nearest(query, known)
    raise UsageError(
        f"No exercise is called {query!r}."
        + (f" Did you mean {' or '.join(near)}?" if near else ""),
        next_command=f"ackademy check {near[0]}" if near else "ackademy list",
    )


def containing(root: Path, file: Path) -> str | None:
    """The `NN_unit/NN_slug` whose folder in any of the three trees holds this existing file."""
    try:
        parts = file.resolve(strict=True).relative_to(root.resolve()).parts
    except (OSError, ValueError):  # no such file, no such name, or outside this course
        return None
    if len(parts) < 3 or parts[0] not in _TREES:
        return None
    name = f"{parts[1]}/{parts[2]}"
    return name if name in names(root) else None


def read_hints(exercise: Exercise) -> dict[str, tuple[str, ...]]:
    """The rungs of `hints.md` by guarantee. Raises `UsageError` if the file cannot be read."""
    file = exercise.folder / "hints.md"
    try:
        return parse_hints(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
        raise UsageError(
            f"{file} {why}, so there are no hints.", next_command=f"git checkout {file}"
        ) from error


def parse_hints(text: str) -> dict[str, tuple[str, ...]]:
    """Rungs by guarantee from Markdown: a `## name` heading, then a numbered list.

    A rung is a list item with everything indented below it, paragraphs and code included. Text
    between a heading and its first item speaks to authors and is no rung.
    """
    found: dict[str, list[list[str]]] = {}
    rungs: list[list[str]] | None = None
    for line in text.splitlines():
        if heading := re.fullmatch(r"##\s+`?([a-z0-9_]+)`?\s*", line):
            rungs = found.setdefault(heading[1], [])
        elif line.startswith("#"):
            rungs = None
        elif rungs is not None and (item := re.match(r"\d+[.)]\s+", line)):
            rungs.append([line[item.end() :]])
        elif rungs and (not line.strip() or line[0].isspace()):
            rungs[-1].append(line)
    return {name: tuple(_dedent(rung) for rung in rungs) for name, rungs in found.items()}


def _dedent(lines: Sequence[str]) -> str:
    """A list item as text of its own: its continuation lines share one indent, which goes."""
    rest = [line for line in lines[1:] if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in rest), default=0)
    return "\n".join([lines[0], *(line[indent:] for line in lines[1:])]).strip()


def _wanted(query: str) -> str:
    """A query as a bare path below a tree, without a trailing file name."""
    path = PurePosixPath(query.strip().replace("\\", "/").removeprefix("./"))
    parts = [part for part in path.parts if part not in {"/", "."}]
    for tree in _TREES:
        if tree in parts:
            parts = parts[parts.index(tree) + 1 :]
    if len(parts) > 1 and "." in parts[-1]:
        parts.pop()
    if len(parts) == 1:
        return parts[0].removesuffix(".py")
    return "/".join(parts[:2])


def _matches(wanted: str, known: Sequence[str]) -> list[str]:
    """The exercises meant: the strictest reading that matches anything wins."""
    if not wanted:
        return list(known)
    readings: tuple[Callable[[str], bool], ...] = (
        lambda name: name == wanted,
        lambda name: wanted in {name.split("/")[1], name.split("/")[1][3:]},
        lambda name: _begins(name.split("/"), wanted.split("/")),
        lambda name: wanted in name,
    )
    for reading in readings:
        if matches := [name for name in known if reading(name)]:
            return matches
    return []


def _begins(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether `03/01` abbreviates `03_concurrency/01_worker_pool`; one part may be either."""
    if len(wanted) == len(parts):
        return all(part.startswith(start) for part, start in zip(parts, wanted, strict=True))
    return len(wanted) == 1 and parts[-1].startswith(wanted[0])


def _nearest(query: str, known: Iterable[str]) -> list[str]:
    """Up to three exercises whose name resembles the query."""
    by_slug = {name.split("/")[1][3:]: name for name in known}
    slug = _wanted(query).split("/")[-1]
    slug = slug[3:] if _NAME.fullmatch(slug) else slug
    return [by_slug[near] for near in difflib.get_close_matches(slug, by_slug, n=3, cutoff=0.5)]


class _Table:
    """One TOML table, read key by key; every complaint names file and key."""

    def __init__(self, file: Path, table: Mapping[str, Any]) -> None:
        self.file = file
        self.table = table
        self.asked: set[str] = set()

    def error(self, sentence: str) -> UsageError:
        name = "/".join(self.file.parent.parts[-2:])
        return UsageError(f"{self.file}: {sentence}", next_command=f"ackademy author verify {name}")

    def get(self, key: str, kind: type[T] | tuple[type[T], ...], meaning: str) -> T:
        self.asked.add(key)
        if key not in self.table:
            raise self.error(f"`{key}` is missing: {meaning}.")
        value = self.table[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.error(f"`{key}` is {value!r}, but must be {meaning}.")
        return value

    def refuse_unknown(self) -> None:
        for key in self.table:
            if key not in self.asked:
                near = difflib.get_close_matches(key, self.asked, n=1)
                hint = f" Did you mean `{near[0]}`?" if near else ""
                raise self.error(f"`{key}` is not a key of an exercise.{hint}")


def _exercise(name: str, folder: Path, solution_folder: Path, table: _Table) -> Exercise:
    title = table.get("title", str, "a few words for lists and reports")
    kind = table.get("kind", str, f"one of {', '.join(KINDS)}")
    if kind not in KINDS:
        raise table.error(f"`kind` is {kind!r}, but must be one of {', '.join(KINDS)}.")
    entry = _ENTRY.fullmatch(table.get("entry", str, "`module:function`"))
    if entry is None:
        raise table.error(f"`entry` is {table.table['entry']!r}, but must be `module:function`.")
    timeout_s = table.get("timeout_s", (float, int), "a number of seconds above 0")
    if not timeout_s > 0:
        raise table.error(f"`timeout_s` is {timeout_s}, but must be above 0.")
    engines, points, calls = _engines(table), _points(table), _calls(table)
    table.refuse_unknown()
    return Exercise(
        path=name,
        title=title,
        kind=kind,
        module=entry[1],
        function=entry[2],
        engines=engines,
        timeout_s=float(timeout_s),
        points=points,
        folder=folder,
        solution_folder=solution_folder,
        calls=calls,
        tables=_tables(folder),
    )


def _engines(table: _Table) -> tuple[str, ...]:
    engines = table.get("engines", list, f"a list of engines out of {', '.join(ENGINES)}")
    unknown = [engine for engine in engines if engine not in ENGINES]
    if unknown or not engines or len(set(engines)) < len(engines):
        raise table.error(
            f"`engines` is {engines!r}, but must name engines once each, out of {', '.join(ENGINES)}."
        )
    return tuple(engines)


def _calls(table: _Table) -> tuple[Call, ...]:
    """How functions are called that are not called as the pools are."""
    if "calls" not in table.table:  # the one key that may be left out
        table.asked.add("calls")
        return ()
    calls: dict[str, str] = table.get("calls", dict, "a table of functions and what they are given")
    try:
        return tuple(Call.read(function, text) for function, text in calls.items())
    except (ValueError, AttributeError):
        raise table.error(
            f"`calls` is {calls!r}, but must say for each function what it is given: "
            '`run = "source, handle, *, workers, stop"`.'
        ) from None


def _tables(folder: Path) -> str:
    """What the database of an exercise holds when a run begins; empty for one without a database."""
    try:
        return (folder / "tables.sql").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _points(table: _Table) -> dict[str, int]:
    points: dict[str, int] = table.get("points", dict, "a table of guarantees and their points")
    if not points:
        raise table.error("`points` is empty: an exercise grades at least one guarantee.")
    for name, number in points.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise table.error(f"`points.{name}` is {number!r}, but must be a whole number above 0.")
    return points
