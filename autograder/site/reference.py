"""Reference pages, generated from the code they describe: they cannot be out of date."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer.main

from autograder import catalog, checks, cli
from autograder.cli import commands, failures
from autograder.model import Exercise, Status, UsageError
from autograder.report import json_report, words

PREFIX = "uv run "


@dataclass
class Reference:
    """A page made of code. `source` names the module it describes."""

    uri: str
    title: str
    source: str
    body: str
    front: dict[str, Any] = field(default_factory=dict)


def references(exercises: Sequence[Exercise], root: Path) -> list[Reference]:
    """All of them."""
    return [
        Reference("reference/commands.md", "Commands", "autograder/cli/commands.py", command_page()),
        Reference(
            "reference/guarantees.md", "Guarantees", "autograder/checks/registry.py",
            guarantee_page(exercises),
        ),
        Reference(
            "reference/verdicts.md", "Verdicts and exit codes", "autograder/model.py", verdict_page()
        ),
        Reference(
            "reference/exercise_toml.md", "exercise.toml", "autograder/catalog.py",
            exercise_page(exercises),
        ),
        Reference(
            "reference/report.md", "The report as JSON", "autograder/report/grade.schema.json",
            report_page(),
        ),
        Reference(
            "reference/package.md", "The package, layer by layer", "pyproject.toml",
            package_page(root),
        ),
    ]  # fmt: skip


def package_page(root: Path) -> str:
    """The package, layer by layer: from the contract that import-linter enforces and docstrings."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    parts = [
        "# The package, layer by layer",
        (
            "A run becomes a history, a check makes a verdict of it, a grade collects verdicts, a report "
            "draws it. Each layer may use those below it, never those above, nor its neighbours; "
            "import-linter keeps it so. [The decisions](/docs/adr/README.md) say why."
        ),
        "| part | what it is for |\n|---|---|",
    ]
    for layer in layers:
        for name in layer.split(" | "):
            file = _file_of(root / "autograder" / name.strip())
            told = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "Its tests."
            link = f"[`{name.strip()}`](/{file.relative_to(root).as_posix()})"
            parts[-1] += f"\n| {link} | {_cell(told.partition(chr(10) * 2)[0])} |"
    return "\n\n".join(parts)


def _file_of(part: Path) -> Path:
    return part / "__init__.py" if part.is_dir() else part.with_suffix(".py")


def command_page() -> str:
    """Every command with its help, arguments and options, as `--help` has them."""
    parts = ["# Commands"]
    for name, command in every_command(typer.main.get_command(commands.app)):
        parts.append(f"## {name}\n\n{(command.help or '').strip()}")
        parts.append(f"```console\n{_usage(name, command)}\n```")
        rows = [_parameter(each) for each in command.params if each.name != "help"]
        if rows:
            parts.append("\n".join(["| name | what for | default |", "|---|---|---|", *rows]))
    parts.insert(1, f"Out of a checkout, all of them with `uv run` in front. {commands.EXIT_CODES}")
    return "\n\n".join(parts)


def every_command(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Commands that do something, in the order of the help, by the words that name them."""
    children = getattr(command, "commands", {})
    if not children or not path:
        yield " ".join(("ackademy", *path)), command
    for name, child in children.items():
        yield from every_command(child, (*path, name))


def _usage(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    named = [(each.metavar or each.name.upper(), each.required) for each in arguments]
    return " ".join(
        [PREFIX + name, *(word if needed else f"[{word}]" for word, needed in named), "[OPTIONS]"]
    )


def _parameter(parameter: Any) -> str:
    """A row of the table. The help of `--help` is known to everybody."""
    name = ", ".join(f"`{each}`" for each in parameter.opts)
    if parameter.param_type_name == "argument":
        name = f"`{parameter.metavar or parameter.name.upper()}`"
    default = parameter.default
    shown = "" if default in (None, False) or callable(default) else f"`{default}`"
    return f"| {name} | {_cell(parameter.help or '')} | {shown} |"


def guarantee_page(exercises: Sequence[Exercise]) -> str:
    """The catalogue: each guarantee's sentence, when it is wrong, where it is graded."""
    parts = [
        "# Guarantees",
        (
            "A guarantee is a true sentence about a good system, and a check that looks for its "
            "opposite in what really happened. These are all there are."
        ),
    ]
    for name, each in sorted(checks.catalogue().items()):
        graded = [
            f"[{one.title}](/exercises/{one.path}/README.md) ({one.points[name]} points)"
            for one in exercises
            if name in one.points
        ]
        told = each.description.replace("\n", "\n")
        where = f"Graded in: {', '.join(graded)}." if graded else "Graded nowhere yet."
        parts.append(f"## {name}\n\n**{each.sentence}**\n\n{told}\n\n{where}")
    return "\n\n".join(parts)


_MEANING = {
    Status.PASS: "The promise was put to the test, and held.",
    Status.FAIL: "It broke; the report shows the events that broke it.",
    Status.INCONCLUSIVE: "This run cannot tell. It costs nothing; run it again.",
}


def verdict_page() -> str:
    """The three verdicts and what each exit code says."""
    rows = [
        f"| {words.GLYPH[each]} {words.WORD[each]} | `{each}` | {_MEANING[each]} |"
        for each in Status
    ]
    codes = {
        0: "pass; or the command did what it was asked to",
        1: "fail",
        UsageError.exit_code: "usage: a name, a path or an option is not right",
        failures.OUR_FAULT: "our fault: a broker died, a disk is full, a bug of ours",
        4: "inconclusive",
        cli.INTERRUPTED: "interrupted by Ctrl-C; nothing is decided and nothing is remembered",
    }
    coded = [f"| {code} | {meaning} |" for code, meaning in codes.items()]
    return "\n".join(
        [
            "# Verdicts and exit codes",
            "",
            (
                "A check looks at one run and says one of three things. The worst verdict over all runs "
                "is the guarantee's, the worst over all guarantees the grade's."
            ),
            "",
            "| shown as | in JSON | it means |",
            "|---|---|---|",
            *rows,
            "",
            (
                "A fault of ours is none of the three: it costs nobody points and has an exit code of "
                "its own."
            ),
            "",
            "| exit code | it means |",
            "|---|---|",
            *coded,
        ]
    )


_KEYS = {
    "title": "A few words, for lists and reports.",
    "kind": f"What the student writes: {', '.join(f'`{each}`' for each in catalog.KINDS)}.",
    "entry": "`module:function`: the file the student edits, and what we call in it.",
    "engines": f"What it is graded on, the default first: {', '.join(f'`{each}`' for each in catalog.ENGINES)}.",
    "timeout_s": "Seconds one scenario may take, the broker's own time not counted.",
    "points": "A table: one guarantee, one whole number above 0.",
    "calls": "A table: one function, the names of what it is given. Left out where `run` is called as "
    "the pools are: `source, handle, *, workers, stop`.",
}


def exercise_page(exercises: Sequence[Exercise]) -> str:
    """The keys of `exercise.toml`, with a real file."""
    rows = [f"| `{key}` | {told} |" for key, told in _KEYS.items()]
    example = exercises[0]
    text = (example.folder / "exercise.toml").read_text(encoding="utf-8").rstrip()
    return "\n".join(
        [
            "# exercise.toml",
            "",
            (
                "How an exercise describes itself. Every key but `calls` is required, no other is allowed; the "
                "statement, in words, is `README.md` beside it."
            ),
            "",
            "| key | it says |",
            "|---|---|",
            *rows,
            "",
            f"The one of [{example.title}](/exercises/{example.path}/README.md):",
            "",
            "```toml",
            text,
            "```",
        ]
    )


def report_page() -> str:
    """The report's fields, and the schema itself."""
    schema = json_report.schema()
    parts = [
        "# The report as JSON",
        (
            "`uv run ackademy check --json FILE` writes a grade for programs. The format is called "
            f"`{json_report.SCHEMA}`; its name changes when a reader of the old one would be misled."
        ),
        _table(schema),
    ]
    for name, each in schema.get("$defs", {}).items():
        told = each.get("description", "")
        parts.append(
            f"## {name}\n\n{told}\n\n{_table(each) if 'properties' in each else _type(each)}"
        )
    text = json.dumps(schema, indent=2, ensure_ascii=False)
    parts.append(f"## The schema\n\n```json\n{text}\n```")
    return "\n\n".join(parts)


def _table(schema: dict[str, Any]) -> str:
    return "\n".join(["| field | type | meaning |", "|---|---|---|", *_fields(schema)])


def _fields(schema: dict[str, Any], within: str = "") -> Iterator[str]:
    """A row for each field, and for the fields of fields."""
    required = set(schema.get("required", ()))
    for name, each in schema.get("properties", {}).items():
        optional = "" if name in required else " (may be missing)"
        told = _cell(each.get("description", ""))
        yield f"| `{within}{name}` | {_type(each)}{optional} | {told} |"
        yield from _fields(each, f"{within}{name}.")
        if "properties" in each.get("items", {}):
            yield from _fields(each["items"], f"{within}{name}[].")


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return " or ".join(_type(each) for each in choices)
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
