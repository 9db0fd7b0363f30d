"""The rules for an exercise's folders: each is broken once, and says how to mend it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autograder import catalog
from autograder.authoring import folders
from autograder.model import UsageError
from autograder.tests.authoring import course


@pytest.fixture
def exercise(tmp_path):
    return course.write(tmp_path)


def sentences(exercise):
    return [f"{finding.where}: {finding.sentence}" for finding in folders.inspect(exercise)]


def the_one(exercise):
    (finding,) = folders.inspect(exercise)
    assert finding.remedy
    return f"{finding.where}: {finding.sentence}"


def test_a_complete_exercise_has_no_finding(exercise):
    assert sentences(exercise) == []


@pytest.mark.parametrize("name", ["README.md", "hints.md", "test_visible.py"])
def test_a_missing_file_a_student_needs(exercise, name):
    (exercise.folder / name).unlink()

    assert f"exercises/{course.NAME}: {name} is missing" in sentences(exercise)


@pytest.mark.parametrize("name", ["NOTES.md", "test_hidden.py", "variants/other.py"])
def test_a_missing_file_of_the_solution(exercise, name):
    (exercise.solution_folder / name).unlink()

    assert the_one(exercise).endswith(" is missing")


def test_without_mutants_nothing_is_proved(exercise):
    for patch in folders.patches(exercise):
        patch.unlink()

    said = sentences(exercise)

    assert f"solutions/{course.NAME}: mutants/*.patch is missing" in said
    assert sum("no mutant is caught by" in each for each in said) == 2


@pytest.mark.parametrize(
    "name", ["notes.txt", "mutants/old.patch.rej", "variants/README.md", "variants/deep/more.py"]
)
def test_a_stray_file(exercise, name):
    file = exercise.solution_folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(course.REFERENCE)

    assert the_one(exercise) == f"solutions/{course.NAME}/{name}: does not belong here"


def test_tables_belong_to_an_exercise_with_a_database_and_to_no_other(exercise):
    (exercise.folder / "tables.sql").write_text("CREATE TABLE t (a TEXT);")

    assert sentences(replace(exercise, tables="CREATE TABLE t (a TEXT);")) == []
    assert the_one(exercise).endswith("tables.sql: does not belong here")


def test_what_tools_leave_behind_is_no_stray(exercise):
    (exercise.folder / "__pycache__").mkdir()
    (exercise.folder / "__pycache__/worker_pool.pyc").write_bytes(b"")
    (exercise.folder / ".DS_Store").write_bytes(b"")

    assert sentences(exercise) == []


def test_an_unknown_guarantee_is_answered_with_the_nearest(exercise, tmp_path):
    text = course.TOML.replace("ack_follows_work", "ack_follow_work")
    (exercise.folder / "exercise.toml").write_text(text)
    (exercise.folder / "hints.md").write_text(course.hints("no_message_is_lost", "ack_follow_work"))
    patch = exercise.solution_folder / "mutants/early_ack.patch"
    patch.write_text(course.patch("ack_follow_work"))

    (finding,) = folders.inspect(catalog.load(tmp_path, course.NAME))

    assert finding.sentence == "ack_follow_work is not a guarantee"
    assert finding.remedy == "Did you mean ack_follows_work?"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("3. `ack()`.\n", "", "has 2 rungs"),
        ("3. `ack()`.\n", "3. `ack()`.\n4. More.\n", "has 4 rungs"),
        ("3. `ack()`.\n", "3. \n", "rungs"),
        ("## ack_follows_work", "## ack_follow_work", "ack_follows_work has 0 rungs"),
    ],
)
def test_each_guarantee_has_three_rungs(exercise, old, new, complaint):
    file = exercise.folder / "hints.md"
    file.write_text(file.read_text().replace(old, new))

    assert complaint in sentences(exercise)[0]


def test_hints_for_nothing(exercise):
    file = exercise.folder / "hints.md"
    file.write_text(file.read_text() + course.hints("order_is_kept"))

    assert the_one(exercise).endswith("order_is_kept has hints but no points")


@pytest.mark.parametrize(
    ("comment", "complaint"),
    [
        ("# Take messages.", "has no TODO"),
        ("# TODO", "TODO is no sentence: ''"),
        ("# TODO: settle", "TODO is no sentence: 'settle'"),
        ("# TODO: take messages and settle them", "TODO is no sentence"),
    ],
)
def test_todos_are_sentences(exercise, comment, complaint):
    source = course.SKELETON.replace("# TODO: take messages and settle them.", comment)
    exercise.skeleton.write_text(source)

    assert complaint in the_one(exercise)


def test_a_todo_may_run_over_several_lines(exercise):
    lines = "# TODO: take messages\n    # and settle each when\n    # its work is done."
    exercise.skeleton.write_text(
        course.SKELETON.replace("# TODO: take messages and settle them.", lines)
    )

    assert sentences(exercise) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("async def", "def"),
        ("workers: int", "workers"),
        ("*, ", ""),
        (" -> None", ""),
        ("stop)", "stop=None)"),
    ],
)
def test_another_signature_than_the_reference(exercise, old, new):
    exercise.skeleton.write_text(course.SKELETON.replace(old, new))

    assert "another signature than the reference" in the_one(exercise)


def test_a_variant_has_the_signature_too(exercise):
    (exercise.solution_folder / "variants/other.py").write_text("def run(): ...\n")

    assert the_one(exercise).startswith("variants/other.py: has another signature")


@pytest.mark.parametrize("source", ["def walk(): ...\n", "def run(:\n", ""])
def test_a_reference_without_the_function(exercise, source):
    exercise.reference.write_text(source)

    assert "worker_pool.py" in the_one(exercise)


def test_a_signature_is_read_not_run(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(f"raise SystemExit\n{course.REFERENCE}")

    assert folders.signature(file, "run") == course.HEAD.strip().removesuffix(":")
    with pytest.raises(UsageError, match="no function walk"):
        folders.signature(file, "walk")


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("Early-Ack.patch", course.patch("ack_follows_work"), "is not a legal name"),
        ("more.patch", course.patch("ack_follow_work"), "Caught-by names ack_follow_work"),
        ("more.patch", "Only a subject\n", "holds no diff"),
    ],
)
def test_a_patch_that_does_not_read_well(exercise, name, text, complaint):
    (exercise.solution_folder / "mutants" / name).write_text(text)

    assert complaint in the_one(exercise)
