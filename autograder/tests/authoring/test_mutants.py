"""Mutants: reading the patch's message, making the wrong program, refusing what does not fit."""

from __future__ import annotations

import subprocess

import pytest

from autograder.authoring import mutants
from autograder.model import GraderError, UsageError
from autograder.tests.authoring import course


@pytest.fixture
def reference(tmp_path):
    file = tmp_path / "reference" / "worker_pool.py"
    file.parent.mkdir()
    file.write_text(course.REFERENCE)
    return file


@pytest.fixture
def parse(tmp_path):
    def parse(text: str) -> mutants.Mutant:
        file = tmp_path / "early_ack.patch"
        file.write_text(text)
        return mutants.parse(file)

    return parse


def test_a_patch_names_the_misconception_its_consequence_and_its_catcher(parse):
    mutant = parse(course.patch("ack_follows_work"))

    assert mutant.name == "early_ack"
    assert mutant.subject == "Ack on receipt"
    assert mutant.body == "A crash then loses the message."
    assert mutant.caught_by == ("ack_follows_work",)
    assert mutant.target == "worker_pool.py"


def test_a_mistake_may_show_on_one_engine_alone(parse):
    mutant = parse(course.patch("one\nOnly-on: sim (it takes minutes)"))

    assert (mutant.only_on, mutant.caught_by) == ("sim", ("one",))
    assert "Only-on" not in mutant.body
    assert parse(course.patch("one")).only_on == ""


@pytest.mark.parametrize("trailer", ["Only-on: sim", "Only-on: (why)", "Only-on:"])
def test_an_engine_alone_needs_its_name_and_the_reason(parse, trailer):
    with pytest.raises(UsageError, match="Only-on"):
        parse(course.patch(f"one\n{trailer}"))


def test_a_verdict_may_be_another_in_the_simulation(parse):
    mutant = parse(course.patch("one\nDiffers: two (by chance)\nDiffers: three (it must)"))

    assert mutant.differs == {"two": "by chance", "three": "it must"}
    assert "Differs" not in mutant.body
    assert not parse(course.patch("one")).differs


@pytest.mark.parametrize("trailer", ["Differs: two", "Differs: (why)", "Differs:"])
def test_another_verdict_needs_its_guarantee_and_the_reason(parse, trailer):
    with pytest.raises(UsageError, match="Differs"):
        parse(course.patch(f"one\n{trailer}"))


@pytest.mark.parametrize(
    "trailer",
    [
        "Caught-by: one, two",
        "Caught-by: one two",
        "caught-by: one\nCaught-by: two",
        "Caught-by: one,two\nSigned-off-by: Somebody",
    ],
)
def test_several_guarantees_may_catch_it(parse, trailer):
    assert parse(course.patch("one").replace("Caught-by: one", trailer)).caught_by == ("one", "two")


def test_a_line_of_dashes_ends_the_message(parse):
    text = course.patch("one").replace("--- a/", "---\n worker_pool.py | 1 +\n\n--- a/")

    mutant = parse(text)

    assert mutant.body == "A crash then loses the message."
    assert mutant.target == "worker_pool.py"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("Caught-by: one\n", "", "no `Caught-by:`"),
        ("Caught-by: one", "Caught-by:", "no `Caught-by:`"),
        ("A crash then loses the message.", "", "no body"),
        ("+++ b/worker_pool.py", "", "no diff"),
    ],
)
def test_what_is_missing_is_named(parse, old, new, complaint):
    with pytest.raises(UsageError, match=complaint) as caught:
        parse(course.patch("one").replace(old, new))

    assert "early_ack.patch" in caught.value.sentence


def test_a_patch_without_words_has_no_subject(parse):
    text = course.patch("one")

    with pytest.raises(UsageError, match="no subject"):
        parse(text[text.index("--- a/") :])


def test_a_patch_that_is_not_text_is_refused(tmp_path):
    file = tmp_path / "binary.patch"
    file.write_bytes(b"\xff\xfe")

    with pytest.raises(UsageError, match="cannot be read"):
        mutants.parse(file)


@pytest.mark.parametrize("prefix", ["", "solutions/03_concurrency/01_worker_pool/"])
def test_the_wrong_program_is_made_beside_the_right_one(parse, reference, tmp_path, prefix):
    text = course.patch("one")
    text = text.replace("a/worker_pool", f"a/{prefix}worker_pool")
    text = text.replace("b/worker_pool", f"b/{prefix}worker_pool")

    made = mutants.apply(parse(text), reference, tmp_path / "made")

    assert made.name == "worker_pool.py"
    assert "# breaks one" in made.read_text()
    assert reference.read_text() == course.REFERENCE


def test_a_repository_around_the_workshop_changes_nothing(parse, reference, tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)  # noqa: S607 - the git in use

    made = mutants.apply(parse(course.patch("one")), reference, tmp_path / "inside/made")

    assert "# breaks one" in made.read_text()


def test_a_reference_that_moved_makes_its_patches_fail(parse, reference, tmp_path):
    reference.write_text(course.REFERENCE.replace("handle(message)", "handle(each)"))

    with pytest.raises(UsageError, match=r"does not apply to worker_pool\.py") as caught:
        mutants.apply(parse(course.patch("one")), reference, tmp_path / "made")

    assert caught.value.next_command.startswith("git apply --check")


@pytest.mark.parametrize("target", ["other.py", "../worker_pool.py", "/tmp/worker_pool.py"])  # noqa: S108 - refused
def test_a_patch_changes_the_module_and_nothing_else(parse, reference, tmp_path, target):
    text = course.patch("one").replace("b/worker_pool.py", f"b/{target}")

    with pytest.raises(UsageError, match=r"not worker_pool\.py"):
        mutants.apply(parse(text), reference, tmp_path / "made")


def test_two_files_in_one_patch_are_refused(parse):
    text = course.patch("one")

    with pytest.raises(UsageError, match="changes 2 files"):
        parse(text + text[text.index("--- a/") :])


def test_without_git_it_is_our_fault(parse, reference, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(GraderError, match="git is not installed"):
        mutants.apply(parse(course.patch("one")), reference, tmp_path / "made")
