"""Pages and navigation come from folders; reference pages from the code they describe."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

pytest.importorskip("jupytext", reason="the site's tools are the group `docs`")

import typer.main
from nbformat import v4

from autograder import catalog, checks
from autograder.cli import commands, reading
from autograder.model import Status
from autograder.report import json_report
from autograder.site import execution, pages, reference
from autograder.tests.authoring import course

ROOT = Path(__file__).parents[3]
LESSON = """---
title: {title}
description: D.
minutes: 5
brokers: [none]
needs: []
outcomes: ["**say** it"]
---

{{{{ outcomes }}}}

```python
1
```
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A course with one exercise, and executions that only pretend."""
    exercise = course.write(tmp_path)
    (exercise.folder / "README.md").write_text("# An exercise\n\nDo it.\n")
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.importlinter.contracts]]\ntype = "layers"\nlayers = []\n'
    )
    (tmp_path / "docs" / "adr").mkdir(parents=True)
    (tmp_path / "docs" / "adr" / "README.md").write_text("# Decisions\n")
    (tmp_path / "docs" / "learn").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n{{ lessons }}\n")
    (tmp_path / "docs" / "learn" / "start.md").write_text("---\norder: 1\n---\n\n# Start\n")

    def executed(notebook, _root, _say):
        done = notebook.cells
        for cell in done.cells:
            if cell.cell_type == "code":
                cell.execution_count = 1
        stamp = dict.fromkeys(
            ("date", "broker", "client", "python", "system", "cores", "ackademy"), "x"
        )
        done.metadata["ackademy"] = {"facts": {}, "executed": stamp}
        return done

    monkeypatch.setattr(execution, "executed", executed)
    return tmp_path


def write_lesson(root, path, title):
    folder = root / "lessons" / path
    folder.mkdir(parents=True)
    (folder / "lesson.md").write_text(LESSON.format(title=title))


def collected(root):
    return pages.collect(root, lambda _line: None)


def test_a_new_lesson_is_a_new_folder_and_nothing_else(root):
    exercise = catalog.names(root)[0]
    write_lesson(root, exercise, "The first")
    before = collected(root)
    write_lesson(root, "99_unit/01_another", "Another")
    site = collected(root)
    added = {page.uri for page in site.pages} - {page.uri for page in before.pages}
    assert added == {"lessons/unit/another.md"}
    assert "lessons/unit/another.ipynb" in site.files
    learn = next(entry["Learn"] for entry in site.navigation if "Learn" in entry)
    assert {"Unit": [{"Another": "lessons/unit/another.md"}]} in learn
    home = next(page for page in site.pages if page.uri == "index.md")
    assert "[Another](lessons/unit/another.md)" in home.body


def test_a_lesson_and_its_exercise_lead_to_each_other(root):
    name = catalog.names(root)[0]
    write_lesson(root, name, "The first")
    site = collected(root)
    lesson = next(page for page in site.pages if page.source.endswith("lesson.md"))
    statement = next(page for page in site.pages if page.uri.startswith("exercises/"))
    assert f"]({'../../' + statement.uri})" in lesson.body
    assert f"]({'../../' + lesson.uri})" in statement.body
    assert "- **say** it" in lesson.body
    assert lesson.uri == reading.page_of(name).replace(".html", ".md")


def test_what_was_not_executed_never_becomes_a_page(root, monkeypatch):
    write_lesson(root, "99_unit/01_another", "Another")
    hollow = v4.new_notebook(cells=[v4.new_code_cell("1")])
    hollow.metadata["ackademy"] = {"facts": {}, "executed": {}}
    monkeypatch.setattr(execution, "executed", lambda *_: hollow)
    with pytest.raises(Exception, match="have not been executed"):
        collected(root)


def test_the_student_edition_has_a_site_too(root):
    (root / "docs" / "learn" / "report.md").write_text(
        "---\ntitle: A report\nexecute: true\nwithheld: true\n---\n\n# A report\n\n```python\n1\n```\n"
    )
    name = catalog.names(root)[0]
    start = root / "docs" / "learn" / "start.md"
    start.write_text(f"# Start\n\nSee [the tests](../../solutions/{name}/test_hidden.py).\n")
    full = {page.uri: page for page in collected(root).pages}
    assert "[the tests](../source/solutions/" in full["learn/start.md"].body
    assert full["learn/report.md"].stamp is not None

    shutil.rmtree(root / "solutions")
    student = {page.uri: page for page in collected(root).pages}
    assert "See the tests." in student["learn/start.md"].body
    assert "student edition" in student["learn/report.md"].body
    assert not any(uri.startswith("source/solutions") for uri in student)


def test_kept_outputs_are_refused(root):
    write_lesson(root, "99_unit/01_another", "Another")
    (root / "lessons" / "99_unit" / "01_another" / "lesson.ipynb").write_text("{}")
    with pytest.raises(Exception, match="outputs are not kept"):
        collected(root)


@pytest.fixture
def exercises(root):
    return catalog.load_all(root)[0]


def test_every_command_and_option_has_its_place(exercises):
    page = reference.command_page()
    for name, command in reference.every_command(typer.main.get_command(commands.app)):
        assert f"## {name}\n" in page
        assert command.help.strip().splitlines()[0] in page
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                assert f"`{parameter.opts[0]}`" in page


def test_every_guarantee_has_its_place(exercises):
    page = reference.guarantee_page(exercises)
    for name, each in checks.catalogue().items():
        assert f"## {name}\n\n**{each.sentence}**" in page


def test_every_verdict_has_a_meaning():
    page = reference.verdict_page()
    assert set(reference._MEANING) == set(Status)
    for code in ("| 0 |", "| 1 |", "| 2 |", "| 3 |", "| 4 |", "| 130 |"):
        assert code in page


def test_every_key_of_an_exercise_is_told(exercises, tmp_path, monkeypatch):
    asked = set()
    original = catalog._Table.refuse_unknown

    def listening(table):
        asked.update(table.asked)
        original(table)

    monkeypatch.setattr(catalog._Table, "refuse_unknown", listening)
    catalog.load_all(tmp_path)
    assert set(reference._KEYS) == asked


def test_every_field_of_the_report_is_told():
    page = reference.report_page()
    for name in json_report.schema()["properties"]:
        assert f"| `{name}` |" in page


def test_every_part_of_the_package_has_its_layer():
    page = reference.package_page(ROOT)
    parts = {file.stem for file in (ROOT / "autograder").iterdir() if file.suffix in {".py", ""}}
    for name in parts - {"__init__", "__pycache__"}:
        assert f"[`{name}`]" in page


def test_a_page_says_where_it_comes_from():
    page = pages.Page("a.md", "docs/a.md", "A", "# A")
    assert "docs/a.md" in page.content
    assert dataclasses.replace(page, title="B: c").content.startswith("---\ntitle: 'B: c'\n---")
