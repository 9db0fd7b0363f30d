"""The catalogue: finding the course, reading exercises, naming them by any unique part."""

from __future__ import annotations

from pathlib import Path

import pytest

from autograder import catalog
from autograder.model import UsageError

TOML = """
title = "Worker pool"
kind = "port"
entry = "worker_pool:run"
engines = ["nats", "kafka"]
timeout_s = 30
[points]
no_message_is_lost = 3
concurrency_is_bounded = 2
"""


@pytest.fixture
def course(tmp_path: Path) -> Path:
    for name in (
        "02_delivery/01_acknowledgements",
        "03_concurrency/01_worker_pool",
        "03_concurrency/02_keyed_pool",
        "04_reliability/01_idempotent_handler",
    ):
        folder = tmp_path / "exercises" / name
        folder.mkdir(parents=True)
        (folder / "exercise.toml").write_text(TOML)
        (folder / "worker_pool.py").write_text("")
        (tmp_path / "solutions" / name).mkdir(parents=True)
    return tmp_path


def write(course: Path, text: str) -> str:
    (course / "exercises/03_concurrency/01_worker_pool/exercise.toml").write_text(text)
    return "03_concurrency/01_worker_pool"


def test_an_exercise_is_what_its_file_says(course):
    exercise = catalog.load(course, "03_concurrency/01_worker_pool")

    assert exercise.path == "03_concurrency/01_worker_pool"
    assert (exercise.module, exercise.function) == ("worker_pool", "run")
    assert exercise.engines == ("nats", "kafka")
    assert exercise.timeout_s == 30.0
    assert list(exercise.points) == ["no_message_is_lost", "concurrency_is_bounded"]
    assert exercise.skeleton.is_file()
    assert exercise.reference.parent == course / "solutions/03_concurrency/01_worker_pool"


def test_the_entry_is_called_as_the_pools_are(course):
    exercise = catalog.load(course, "03_concurrency/01_worker_pool")

    assert str(exercise.call()) == "run(source, handle, workers=..., stop=...)"
    assert exercise.call("run") == exercise.call()
    with pytest.raises(KeyError):
        exercise.call("replay")


def test_an_exercise_may_say_how_its_functions_are_called(course):
    calls = 'run = "source, letters, *, tries"\nreplay = "*, limit"\n'
    exercise = catalog.load(course, write(course, f"{TOML}\n[calls]\n{calls}"))

    assert str(exercise.call()) == "run(source, letters, tries=...)"
    assert exercise.call("replay").names == ("limit",)
    assert not exercise.call("replay").positional


def test_what_the_database_holds_comes_from_a_file_beside_it(course):
    name = write(course, TOML)
    assert catalog.load(course, name).tables == ""
    file = catalog.load(course, name).folder / "tables.sql"
    file.write_text("CREATE TABLE t (a TEXT);")
    assert catalog.load(course, name).tables == "CREATE TABLE t (a TEXT);"


@pytest.mark.parametrize(
    "calls",
    ['run = "source handle"', 'run = "source, source"', "run = 3", 'run = "a, *, b, *, c"'],
)
def test_a_call_that_is_none_is_refused(course, calls):
    with pytest.raises(UsageError, match=r"`calls` is .* but must say for each function"):
        catalog.load(course, write(course, f"{TOML}\n[calls]\n{calls}\n"))


def test_exercises_come_in_course_order_and_other_folders_are_none(course):
    (course / "exercises/03_concurrency/__pycache__").mkdir()
    (course / "exercises/notes/01_idea").mkdir(parents=True)

    assert catalog.names(course) == [
        "02_delivery/01_acknowledgements",
        "03_concurrency/01_worker_pool",
        "03_concurrency/02_keyed_pool",
        "04_reliability/01_idempotent_handler",
    ]


@pytest.mark.parametrize(
    "query",
    [
        "03_concurrency/01_worker_pool",
        "exercises/03_concurrency/01_worker_pool",
        "exercises/03_concurrency/01_worker_pool/",
        "./exercises/03_concurrency/01_worker_pool/worker_pool.py",
        "solutions/03_concurrency/01_worker_pool/worker_pool.py",
        "exercises\\03_concurrency\\01_worker_pool",
        "01_worker_pool",
        "01_worker",
        "worker_pool",
        "worker_pool.py",
        "worker",
        "03/01",
        "03_conc/01",
    ],
)
def test_any_unique_part_names_an_exercise(course, query):
    assert catalog.find(query, course).path == "03_concurrency/01_worker_pool"


def test_a_path_counts_from_where_one_stands(course, monkeypatch):
    monkeypatch.chdir(course / "exercises/03_concurrency/01_worker_pool")

    assert catalog.find("worker_pool.py").path == "03_concurrency/01_worker_pool"
    assert catalog.find("../02_keyed_pool").path == "03_concurrency/02_keyed_pool"
    assert catalog.find(".").path == "03_concurrency/01_worker_pool"


def test_an_absolute_path_needs_no_working_directory(course, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))

    file = course / "exercises/03_concurrency/02_keyed_pool/worker_pool.py"
    assert catalog.find(str(file)).path == "03_concurrency/02_keyed_pool"


@pytest.mark.parametrize(("query", "matches"), [("pool", 2), ("03", 2), ("01", 3), ("_", 4)])
def test_an_ambiguous_name_lists_what_it_could_be(course, query, matches):
    with pytest.raises(UsageError, match=f"names {matches} exercises: ") as caught:
        catalog.find(query, course)

    assert caught.value.next_command.startswith("ackademy check 0")


@pytest.mark.parametrize("query", ["workerpool", "03/worker_pol", "04_worker_pol"])
def test_an_unknown_name_is_answered_with_the_nearest(course, query):
    with pytest.raises(UsageError, match="Did you mean 03_concurrency/01_worker_pool"):
        catalog.find(query, course)


@pytest.mark.parametrize("query", ["xyzzy", "a\0b", "x" * 5000, "99/99"])
def test_a_name_like_nothing_leads_to_the_list(course, query):
    with pytest.raises(UsageError) as caught:
        catalog.find(query, course)

    assert caught.value.next_command == "ackademy list"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('title = "Worker pool"', "", "`title` is missing"),
        ('title = "Worker pool"', "title = 3", "`title` is 3"),
        ('kind = "port"', 'kind = "prot"', "one of port, client"),
        ("worker_pool:run", "worker_pool.run", "must be `module:function`"),
        ('["nats", "kafka"]', '["nats", "kafak"]', "out of sim, nats"),
        ('["nats", "kafka"]', "[]", "must name engines"),
        ('["nats", "kafka"]', '["nats", "nats"]', "once each"),
        ('["nats", "kafka"]', '"nats"', "a list of engines"),
        ("timeout_s = 30", "timeout_s = 0", "must be above 0"),
        ("timeout_s = 30", "timeout_s = true", "a number of seconds"),
        ("timeout_s = 30", 'timeout_s = "30"', "a number of seconds"),
        ("timeout_s = 30", "timeout = 30", "`timeout_s` is missing"),
        ("timeout_s = 30", "timeout_s = 30\nengine = 1", "Did you mean `engines`"),
        ("no_message_is_lost = 3", "no_message_is_lost = 0", "a whole number above 0"),
        ("no_message_is_lost = 3", "no_message_is_lost = true", "a whole number above 0"),
        ("[points]", "[point]", "`points` is missing"),
        ("[points]", "[points", "cannot be read"),
    ],
)
def test_a_file_that_does_not_fit_says_which_key(course, old, new, complaint):
    name = write(course, TOML.replace(old, new))

    with pytest.raises(UsageError, match=complaint) as caught:
        catalog.load(course, name)

    assert "exercise.toml" in caught.value.sentence
    assert caught.value.next_command


def test_a_broken_or_missing_file_hides_one_exercise_only(course):
    write(course, "title = ")
    (course / "exercises/03_concurrency/02_keyed_pool/exercise.toml").unlink()
    (course / "exercises/04_reliability/01_idempotent_handler/exercise.toml").write_bytes(b"\xff")

    exercises, errors = catalog.load_all(course)

    assert [each.path for each in exercises] == ["02_delivery/01_acknowledgements"]
    assert len(errors) == 3
    assert "02_keyed_pool cannot be graded" in errors[1].sentence


def test_the_course_is_found_upwards_and_else_beside_the_package(course, monkeypatch):
    assert catalog.course_root(course / "exercises/03_concurrency/01_worker_pool") == course

    monkeypatch.setattr(catalog, "__file__", str(course / "autograder/catalog.py"))
    assert catalog.course_root(Path("/")) == course


def test_without_a_course_the_error_says_where_it_looked(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "__file__", str(tmp_path / "site-packages/autograder/catalog.py"))

    with pytest.raises(UsageError, match="exercises/") as caught:
        catalog.course_root(tmp_path)

    assert "ackademy list" in caught.value.next_command


HINTS = """\
# Hints

Written for students.

## no_message_is_lost

What breaks it: an early ack.

1. When does the broker forget a message?
2. A message is forgotten at `ack`.

   So the ack comes last:

       await handle(message)
       await message.ack()

3. `ack()` after `await handle(message)`.

## `pool_is_used`

1) One
   rung in two lines.
2) Two

# Afterword

1. not a rung
"""


def test_hints_are_numbered_lists_below_the_name_of_a_guarantee():
    hints = catalog.parse_hints(HINTS)

    assert list(hints) == ["no_message_is_lost", "pool_is_used"]
    assert len(hints["no_message_is_lost"]) == catalog.RUNGS
    assert hints["no_message_is_lost"][0] == "When does the broker forget a message?"
    assert hints["no_message_is_lost"][1].endswith(
        "    await handle(message)\n    await message.ack()"
    )
    assert hints["pool_is_used"] == ("One\nrung in two lines.", "Two")


def test_missing_hints_are_said(course):
    with pytest.raises(UsageError, match=r"hints\.md is missing"):
        catalog.read_hints(catalog.load(course, "03_concurrency/01_worker_pool"))
