"""Progress: a file of the student's that survives crashes, edits and other commands."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autograder import progress
from autograder.model import Exercise, Grade, Problem, Result, Status, failed, passed

NAME = "03_concurrency/01_worker_pool"


def grade(
    *, started_at="2030-01-01T10:00:00+00:00", engine="nats", path=NAME, problem=None, **verdicts
):
    exercise = Exercise(
        path=path,
        title="Worker pool",
        kind="port",
        module="worker_pool",
        function="run",
        engines=("nats", "kafka"),
        timeout_s=30.0,
        points=dict.fromkeys(verdicts, 2),
        folder=Path("exercises") / path,
        solution_folder=Path("solutions") / path,
    )
    results = tuple(Result(name, "", 2, verdict, 1) for name, verdict in verdicts.items())
    return Grade(
        exercise, exercise.skeleton, "", engine, "embedded", "2.15", "plain", (1,), results,
        problem=problem, started_at=started_at,
    )  # fmt: skip


def test_the_last_check_is_kept_and_read_again(tmp_path):
    assert progress.read(tmp_path).latest is None

    said = progress.record_grade(tmp_path, grade(order_is_kept=passed(), no_loss=failed("lost")))

    record = progress.read(tmp_path).of(NAME)
    assert said == []
    assert record.status is Status.FAIL
    assert record.failing == ("no_loss",)
    assert (record.points, record.points_possible) == (2, 4)
    assert not record.passed
    assert progress.path(tmp_path).read_text().startswith("# What you have done")


def test_a_pass_is_dated_per_engine_and_a_later_failure_takes_it_away(tmp_path):
    progress.record_grade(tmp_path, grade(started_at="2030-01-01", no_loss=passed()))
    progress.record_grade(tmp_path, grade(started_at="2030-01-02", no_loss=passed()))
    progress.record_grade(
        tmp_path, grade(started_at="2030-01-03", engine="kafka", no_loss=passed())
    )
    assert progress.read(tmp_path).of(NAME).passed == {"nats": "2030-01-01", "kafka": "2030-01-03"}

    progress.record_grade(tmp_path, grade(started_at="2030-01-04", no_loss=failed("lost")))
    assert progress.read(tmp_path).of(NAME).passed == {"kafka": "2030-01-03"}


def test_a_check_that_does_not_count_keeps_verdicts_only(tmp_path):
    progress.record_grade(tmp_path, grade(no_loss=passed()), counts=False)

    record = progress.read(tmp_path).of(NAME)
    assert record.status is Status.PASS
    assert not record.passed


def test_a_submission_that_cannot_be_graded_is_kept_too(tmp_path):
    progress.record_grade(tmp_path, grade(problem=Problem("no-run", "There is no run.")))

    assert progress.read(tmp_path).of(NAME).status is Status.FAIL


def test_hints_taken_survive_checks_and_never_go_back(tmp_path):
    progress.record_hint(tmp_path, NAME, "no_loss", 2)
    progress.record_hint(tmp_path, NAME, "no_loss", 1)
    assert progress.read(tmp_path).latest is None

    progress.record_grade(tmp_path, grade(no_loss=passed()))

    assert progress.read(tmp_path).of(NAME).hints == {"no_loss": 2}


def test_the_latest_check_is_known(tmp_path):
    progress.record_grade(tmp_path, grade(started_at="2030-01-02", no_loss=passed()))
    progress.record_grade(
        tmp_path, grade(started_at="2030-01-01", path="01_a/01_b", no_loss=passed())
    )

    assert progress.read(tmp_path).latest == NAME


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[[[", b"x = "])
def test_a_file_that_is_no_toml_is_kept_aside_and_said_once(tmp_path, content):
    file = progress.path(tmp_path)
    file.parent.mkdir()
    file.write_bytes(content)
    (file.parent / "progress-unreadable-1.toml").write_text("an older one")

    said = progress.record_grade(tmp_path, grade(no_loss=passed()))

    assert len(said) == 1
    assert "progress-unreadable-2.toml" in said[0]
    assert (file.parent / "progress-unreadable-2.toml").read_bytes() == content
    assert (file.parent / "progress-unreadable-1.toml").read_text() == "an older one"
    assert progress.read(tmp_path).notices == []
    assert progress.read(tmp_path).of(NAME).status is Status.PASS


def test_one_wrong_record_costs_one_record(tmp_path):
    progress.record_grade(tmp_path, grade(no_loss=passed()))
    file = progress.path(tmp_path)
    edited = file.read_text() + '\n["01_a/01_b"]\nstatus = "excellent"\n\n[other]\nverdicts = 3\n'
    file.write_text(edited)

    read = progress.read(tmp_path)

    assert list(read.records) == [NAME]
    assert "01_a/01_b, other" in read.notices[0]
    assert (file.parent / "progress-unreadable-1.toml").read_text() == edited
    assert progress.read(tmp_path).notices == []


def test_a_place_that_cannot_be_written_is_a_notice_not_an_error(tmp_path):
    (tmp_path / ".ackademy").write_text("a file where the folder should be")

    assert "was not kept" in progress.record_grade(tmp_path, grade(no_loss=passed()))[0]
    assert "cannot be read" in progress.read(tmp_path).notices[0]


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    progress.record_grade(tmp_path, grade(no_loss=passed()))
    before = progress.path(tmp_path).read_text()

    def crash(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(progress, "_dump", crash)
    with pytest.raises(KeyboardInterrupt):
        progress.record_grade(tmp_path, grade(no_loss=failed("lost")))

    assert progress.path(tmp_path).read_text() == before
    assert not list((tmp_path / ".ackademy").glob("*.tmp"))


def test_two_commands_at_once_lose_nothing(tmp_path):
    def write(number):
        return progress.record_hint(tmp_path, f"01_a/{number:02}_b", "no_loss", 1)

    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(write, range(24)))

    assert said == [[]] * 24
    assert len(progress.read(tmp_path).records) == 24
