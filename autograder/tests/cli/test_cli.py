"""The command as a person meets it: exit codes, next commands, hints, progress."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autograder import grading, progress
from autograder.cli import failures, proving, serving
from autograder.model import (
    Grade,
    GraderError,
    Problem,
    Result,
    Verdict,
    failed,
    inconclusive,
    passed,
)
from autograder.tests.authoring import course


@pytest.fixture
def grades(monkeypatch, exercise):
    """Let `check` get the verdicts named here; what it asked for is kept."""
    asked = []

    def answer(*verdicts: Verdict, problem=None, complete=True, raises=None):
        def grade(exercise, submission, **options):
            asked.append({"submission": submission, **options})
            if raises is not None:
                raise raises
            results = [
                Result(name, "A sentence.", points, verdict, 3, "test_a", 1)
                for (name, points), verdict in zip(exercise.points.items(), verdicts, strict=False)
            ]
            return Grade(
                exercise,
                submission,
                "ab" * 32,
                options["engine"],
                "embedded",
                "2.15",
                "landlock",
                options["seeds"],
                tuple(results),
                problem=problem,
                complete=complete,
                started_at="2030-01-01T10:00:00+00:00",
            )

        monkeypatch.setattr(grading, "grade", grade)
        return asked

    return answer


def test_the_bare_command_says_where_one_is_and_what_is_next(run, tmp_path):
    ran = run()

    assert ran.code == 0
    assert f"Ackademy in {tmp_path}: 0 of 1 exercises passed." in ran.out
    assert f"Next: ackademy check {course.NAME}" in ran.out


def test_the_next_command_follows_what_happened(run, grades):
    grades(passed(), failed("late"))
    run("check", "worker_pool")
    assert "Next: ackademy hint ack_follows_work" in run().out

    grades(passed(), inconclusive("slow"))
    run("check", "worker_pool")
    assert f"Next: ackademy check {course.NAME} --engine nats" in run().out

    grades(passed(), passed())
    run("check", "worker_pool")
    assert f"Next: ackademy check {course.NAME} --engine kafka" in run().out

    run("check", "worker_pool", "--engine", "kafka")
    assert "1 of 1 exercises passed" in run().out
    assert "Next: ackademy list" in run().out


def test_an_interrupted_check_is_not_progress(run, grades, tmp_path):
    grades(passed(), failed("late"))
    run("check")
    before = progress.path(tmp_path).read_text()

    grades(passed(), passed(), complete=False)
    ran = run("check")

    assert ran.code == 130
    assert "points" not in ran.out
    assert progress.path(tmp_path).read_text() == before


def test_when_all_has_passed_nothing_is_suggested_again(run, grades):
    grades(passed(), passed())
    assert run("check").out.endswith(f"Next:  ackademy check {course.NAME} --engine kafka\n")
    assert run("check", "--engine", "kafka").out.endswith("Next:  ackademy list\n")

    assert "has passed on every engine" in run().out
    assert "Next: ackademy list" in run().out
    assert run("hint").err.splitlines()[-1] == "Next: ackademy list"

    grades(passed(), inconclusive("slow"))
    run("check")
    assert "Next: ackademy list" in run().out  # what cannot tell takes nothing away


def test_visible_tests_neither_pass_nor_take_a_pass_away(run, grades, tmp_path):
    grades(passed(), passed())
    ran = run("check", "--visible")
    assert "visible tests only" in ran.out
    assert "points" not in ran.out
    assert ran.out.endswith(f"Next:  ackademy check {course.NAME} --engine nats\n")
    assert "pass, visible tests only" in run().out

    run("check")
    run("check", "--visible")
    assert progress.read(tmp_path).of(course.NAME).passed


def test_list_shows_every_exercise_and_how_far_one_is(run, grades, tmp_path):
    assert "not checked" in run("list").out

    grades(passed(), failed("late"))
    run("check")
    assert "fail on nats, 3/5" in run("list").out

    grades(passed(), passed())
    run("check")
    assert "pass on nats" in run("list").out

    (tmp_path / "exercises" / "04_reliability" / "01_broken").mkdir(parents=True)
    ran = run("list")
    assert course.NAME in ran.out
    assert "01_broken cannot be graded" in ran.err


def test_list_with_a_name_shows_its_guarantees(run, grades):
    grades(passed(), failed("late"))
    run("check")
    run("hint")

    ran = run("list", "03/01")

    rows = [line.split() for line in ran.out.splitlines()]
    assert ["no_message_is_lost", "3", "pass", "-"] in rows
    assert ["ack_follows_work", "2", "fail", "1", "of", "3"] in rows


@pytest.mark.parametrize(
    ("verdicts", "options", "code"),
    [
        ((passed(), passed()), {}, 0),
        ((passed(), failed("late")), {}, 1),
        ((passed(), inconclusive("slow")), {}, 4),
        ((), {"problem": Problem("no-run", "There is no run.")}, 1),
        ((passed(),), {"complete": False}, 130),
        ((failed("lost"),), {"complete": False}, 130),
        ((), {"complete": False}, 130),
        (
            (),
            {"raises": GraderError("The broker died.", next_command="ackademy brokers status")},
            3,
        ),
        ((), {"raises": ZeroDivisionError()}, 3),
        ((), {"raises": KeyboardInterrupt()}, 130),
    ],
)
def test_every_way_a_check_ends_has_its_exit_code(run, grades, verdicts, options, code):
    grades(*verdicts, **options)

    assert run("check", "worker_pool").code == code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "xyzzy"], "No exercise is called 'xyzzy'"),
        (["check", "--engine", "rabbitmq"], "not graded on rabbitmq. There are: nats, kafka."),
        (["check", "--json", "none/grade.json"], "There is no folder none."),
        (["check", "--html", "exercises"], "exercises is a folder"),
        (["check", "--seed", "0"], "--seed"),
        (["check", "--seed", "one"], "--seed"),
        (["check", "--seeds", "0"], "--seeds"),
        (["check", "one", "two"], "two"),
        (["chekc"], "chekc"),
        (["hint", "xyzzy"], "No exercise is called 'xyzzy'"),
        (["hint", "--rung", "4"], "--rung"),
        (["hint"], "hints follow a check"),
        (["list", "xyzzy"], "No exercise is called 'xyzzy'"),
        (["brokers", "up", "sqs"], "There is no engine 'sqs'"),
        (["brokers", "down", "sqs"], "There is no engine 'sqs'"),
        (["brokers", "install", "nats"], "Only kafka"),
        (["author", "verify", "xyzzy"], "No exercise is called 'xyzzy'"),
        (["author", "drill"], "EXERCISE"),
        (["author", "drill", "worker_pool", "--runs", "0"], "--runs"),
        (["author", "drill", "worker_pool", "--only", "skeleton"], "--only names skeleton"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(run, words, said):
    ran = run(*words)

    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_an_error_ends_with_the_command_to_type_next(run):
    assert (
        run("check", "worker_poool").err.splitlines()[-1] == f"Next: ackademy check {course.NAME}"
    )


def test_what_is_asked_for_reaches_grading(run, grades, exercise):
    asked = grades(passed(), passed())
    run("check")
    run("check", "--seed", "7", "--engine", "kafka", "--provider", "local")
    run("check", "--seed", "7", "--seeds", "2", "--submission", "other.py")
    run("check", "--seeds", "5", "--visible")

    assert asked[0]["submission"] == exercise.skeleton
    assert asked[0]["engine"] == "nats"
    assert asked[0]["tests"] is None
    assert [each["seeds"] for each in asked] == [(1, 2, 3), (7,), (7, 8), (1, 2, 3, 4, 5)]
    assert (asked[1]["engine"], asked[1]["provider"]) == ("kafka", "local")
    assert asked[2]["submission"] == Path("other.py")
    assert asked[3]["tests"] == exercise.visible_tests


def test_a_check_without_a_name_is_of_the_folder_one_is_in(run, grades, exercise, monkeypatch):
    asked = grades(passed(), passed())
    monkeypatch.chdir(exercise.folder)

    assert run("check").code == 0
    assert asked[0]["submission"] == exercise.skeleton


def test_visible_tests_that_are_not_there(run, exercise):
    exercise.visible_tests.unlink()

    ran = run("check", "--visible")

    assert ran.code == 2
    assert "nothing visible to run" in ran.err


def test_the_grade_is_written_where_asked(run, grades, tmp_path):
    grades(passed(), failed("late"))

    ran = run("check", "--json", "grade.json", "--html", "grade.html")

    assert ran.code == 1
    assert json.loads((tmp_path / "grade.json").read_text())
    assert "</html>" in (tmp_path / "grade.html").read_text()


def test_only_the_students_own_file_is_progress(run, grades, exercise, tmp_path):
    grades(passed(), passed())
    run("check", "--submission", str(exercise.reference))
    assert progress.read(tmp_path).records == {}

    run("check", "--visible")
    assert not progress.read(tmp_path).of(course.NAME).passed

    run("check", "--submission", str(exercise.skeleton))
    assert progress.read(tmp_path).of(course.NAME).passed


@pytest.mark.parametrize("content", [b"\xff", b"format = 1\n[x]\nstatus = 7\n"])
def test_progress_that_cannot_be_read_never_stops_a_check(run, grades, tmp_path, content):
    grades(passed(), passed())
    (tmp_path / ".ackademy").mkdir()
    progress.path(tmp_path).write_bytes(content)

    ran = run("check", "worker_pool")

    assert ran.code == 0
    assert "It is kept as progress-unreadable-1.toml" in ran.err
    assert "pass on nats" in run("list").out


def test_each_hint_goes_one_rung_further(run, grades):
    grades(failed("lost"), failed("late"))
    run("check")

    first, second, third, fourth = (run("hint") for _ in range(4))

    assert "ack_follows_work, hint 1 of 3" in first.out
    assert "Why?" in first.out
    assert "Also failing: no_message_is_lost" in first.out
    assert "More: ackademy hint ack_follows_work" in first.out
    assert "hint 2 of 3" in second.out
    assert "ack()" in third.out
    assert "That was the last hint." in third.out
    assert "hint 3 of 3" in fourth.out


def test_a_hint_for_a_guarantee_by_name_and_a_rung_by_number(run, grades):
    assert "ack_follows_work, hint 1 of 3" in run("hint", "ack_follows_work").out
    assert "ack_follows_work, hint 3 of 3" in run("hint", "ack_follows_work", "--rung", "3").out
    assert "ack_follows_work, hint 1 of 3" in run("hint", "ack_follows_work", "--rung", "1").out

    grades(failed("lost"), passed())
    run("check")
    assert "no_message_is_lost, hint 1 of 3" in run("hint", "worker_pool").out


@pytest.mark.parametrize("part", ["follows", "ack-follows", "ACK_FOLLOWS"])
def test_a_unique_part_of_a_guarantees_name_does(run, grades, part):
    assert "ack_follows_work, hint 1 of 3" in run("hint", part).out


def test_a_mistyped_guarantee_gets_the_nearest(run, grades):
    ran = run("hint", "no_mesage_is_lost")
    assert ran.code == 2
    assert "Did you mean no_message_is_lost?" in ran.err
    assert ran.err.splitlines()[-1] == "Next: ackademy hint no_message_is_lost"

    several = run("hint", "o")
    assert several.code == 2 or "hint 1 of 3" in several.out
    assert "No exercise is called 'xyzzy'" in run("hint", "xyzzy").err


def test_a_folder_for_a_report_is_answered_with_a_file_in_it(run, grades, tmp_path):
    ran = run("check", "--html", str(tmp_path))
    assert ran.err.splitlines()[-1] == (
        f"Next: ackademy check {course.NAME} --html {tmp_path / 'grade.html'}"
    )


def test_after_a_pass_there_is_nothing_to_hint_at(run, grades):
    grades(passed(), passed())
    run("check")

    ran = run("hint")

    assert ran.code == 2
    assert "passed its last check" in ran.err


def test_a_missing_hint_is_said(run, exercise):
    (exercise.folder / "hints.md").write_text("")

    ran = run("hint", "ack_follows_work")

    assert ran.code == 2
    assert "has no hint for ack_follows_work" in ran.err


def test_a_bug_of_ours_is_kept_in_a_file_and_named(run, grades):
    grades(raises=ZeroDivisionError("by zero"))

    ran = run("check")

    assert "this is not about your module" in ran.err
    assert "Traceback" not in ran.err
    file = Path(next(word for word in ran.err.split() if "ackademy-fault-" in word).rstrip(":"))
    assert "ZeroDivisionError: by zero" in file.read_text()
    file.unlink()


def test_a_bug_of_ours_on_a_full_disk_is_told_at_once(run, grades, monkeypatch):
    def full(_text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(failures, "_keep", full)
    grades(raises=ZeroDivisionError("by zero"))

    ran = run("check")

    assert ran.code == 3
    assert "Traceback" in ran.err


class TestKafkaDownload:
    """The one download: offered, never forced."""

    @pytest.fixture(autouse=True)
    def _missing(self, monkeypatch, grades):
        embedded = serving.brokers.Missing(
            "its jars are not here", serving.kafka_jars.INSTALL_COMMAND
        )
        error = serving.MissingError(
            "There is no kafka server to be had here.",
            next_command=serving.kafka_jars.INSTALL_COMMAND,
            reasons={"embedded": embedded},
        )
        self.fetched = []

        def fetch(progress=None, *, waiting=None):
            self.fetched.append(True)
            progress(1, 2)
            waiting()
            grades(passed(), passed())

        grades(raises=error)
        monkeypatch.setattr(serving.kafka_jars, "install", fetch)

    def test_yes_fetches_and_grades(self, run):
        ran = run("check", "--engine", "kafka", "--yes")

        assert ran.code == 0
        assert self.fetched
        assert "Fetching Apache Kafka" in ran.err

    def test_nobody_to_ask_is_an_error_that_names_the_command(self, run):
        ran = run("check", "--engine", "kafka")

        assert ran.code == 3
        assert not self.fetched
        assert ran.err.splitlines()[-1] == "Next: ackademy brokers install kafka"

    @pytest.mark.parametrize(("answer", "code"), [(True, 0), (False, 2)])
    def test_a_person_is_asked(self, run, monkeypatch, answer, code):
        monkeypatch.setattr(serving, "_somebody_is_there", lambda: True)
        monkeypatch.setattr(serving.typer, "confirm", lambda *_args, **_options: answer)

        ran = run("check", "--engine", "kafka")

        assert ran.code == code
        assert bool(self.fetched) is answer
        assert "MB, once" in ran.err


@pytest.fixture
def brokerless(monkeypatch):
    monkeypatch.setattr(proving.grading, "grade", course.grade)
    monkeypatch.setattr(proving.serving, "acquired", course.acquire)


def test_verify_shows_the_matrix_and_writes_it(run, brokerless, tmp_path):
    ran = run(
        "author", "verify", "worker_pool", "--json", "matrix.json", "--seeds", "2", "--jobs", "1"
    )

    assert ran.code == 0
    assert "mutants/early_ack" in ran.out
    assert "12/12" in ran.err
    (table,) = json.loads((tmp_path / "matrix.json").read_text())
    assert table["seeds"] == [1, 2]


def test_verify_of_everything_has_the_worst_exit_code(run, brokerless, exercise):
    (exercise.folder / "README.md").unlink()

    ran = run("author", "verify", "--engine", "nats", "--jobs", "1")

    assert ran.code == 1
    assert "README.md is missing" in ran.out


def test_drill_counts_and_writes(run, brokerless, tmp_path):
    ran = run(
        "author", "drill", "worker_pool", "--runs", "2", "--only", "reference, variants", "--json", "d.json"
    )  # fmt: skip

    assert ran.code == 0
    assert "4 runs, 8 verdicts: 0 false fail" in ran.out
    assert [each["engine"] for each in json.loads((tmp_path / "d.json").read_text())] == [
        "nats",
        "kafka",
    ]


def command(*words, cwd, **options):
    program = [sys.executable, "-c", "from autograder.cli import main; main()", *words]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "COLUMNS": "200"}
    return subprocess.run(
        program,
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [(["list"], 0), (["--version"], 0), (["--help"], 0), (["check", "xyzzy"], 2), (["--wrong"], 2)],
)
def test_a_real_process_ends_with_the_same_codes(exercise, tmp_path, words, code):
    ran = command(*words, cwd=tmp_path)

    assert ran.returncode == code, ran.stderr


def test_a_terminal_that_knows_no_arrows_gets_question_marks(exercise, tmp_path):
    (exercise.folder / "hints.md").write_text("## ack_follows_work\n\n1. A → b?\n2. b\n3. c\n")

    program = [sys.executable, "-c", "from autograder.cli import main; main()"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(Path(__file__).parents[3])}
    ran = subprocess.run(
        [*program, "hint", "ack_follows_work"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    assert "A ? b?" in ran.stdout


def test_help_and_list_import_no_broker_client_and_no_examiner(exercise, tmp_path):
    program = (
        "import sys\nfrom autograder.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'autograder.grading', 'autograder.exam', 'autograder.brokers', 'pytest', 'aiokafka',"
        " 'nats', 'jinja2', 'httpx'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))\n"
    )
    for words in (["--help"], ["list"], []):
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        ran = subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert "heavy: []" in ran.stdout


FOR_A_MINUTE = "for _ in range(600): time.sleep(0.1)"
"""What a program does until it is interrupted. Not one long sleep: a signal that comes just before its
system call is heard at its end, and Python 3.14 hears none after a call with keywords, as `print` is here."""


def test_ctrl_c_ends_with_130_and_one_word(exercise, tmp_path):
    program = (
        "import time\nfrom autograder import cli, progress\n"
        f"def wait(root):\n    print('ready', flush=True)\n    {FOR_A_MINUTE}\n"
        "progress.read = wait\ncli.main()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(
        [sys.executable, "-c", program, "list"],
        cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as ran:  # fmt: skip
        assert ran.stdout.readline() == "ready\n"
        ran.send_signal(signal.SIGINT)
        _, said = ran.communicate(timeout=20)

    assert ran.returncode == 130
    assert said == "Interrupted.\n"


ENV = {"PYTHONPATH": str(Path(__file__).parents[3]), "COLUMNS": "200"}


def test_a_second_ctrl_c_does_not_disturb_cleaning_up(exercise, tmp_path):
    program = (
        "import asyncio, time\nfrom autograder import cli, progress\n"
        "async def wait():\n"
        "    try:\n        print('ready', flush=True)\n        await asyncio.sleep(60)\n"
        "    finally:\n        print('cleaning', flush=True)\n        await asyncio.sleep(0.5)\n"
        "        print('clean', flush=True)\n"
        "progress.read = lambda root: asyncio.run(wait())\ncli.main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, "list"],
        cwd=tmp_path, env={**os.environ, **ENV}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as ran:  # fmt: skip
        assert ran.stdout.readline() == "ready\n"
        ran.send_signal(signal.SIGINT)
        assert ran.stdout.readline() == "cleaning\n"
        for _ in range(3):
            ran.send_signal(signal.SIGINT)
        out, said = ran.communicate(timeout=20)

    assert out == "clean\n"
    assert ran.returncode == 130
    assert said == "Interrupted.\n"


def test_ctrl_c_during_the_imports_is_no_traceback(exercise, tmp_path):
    program = (
        "import sys, time\nfrom autograder import cli\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'typer':\n            print('ready', flush=True)\n            {FOR_A_MINUTE}\n"
        "sys.meta_path.insert(0, Slow())\ncli.main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, "list"],
        cwd=tmp_path, env={**os.environ, **ENV}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as ran:  # fmt: skip
        assert ran.stdout.readline() == "ready\n"
        ran.send_signal(signal.SIGINT)
        _, said = ran.communicate(timeout=20)

    assert ran.returncode == 130
    assert said == "Interrupted.\n"


def test_a_reader_that_has_gone_costs_neither_code_nor_progress(exercise, tmp_path):
    program = (
        "import sys\nfrom autograder import cli, grading\n"
        "from autograder.model import Grade, Result, failed\n"
        "def grade(exercise, submission, **options):\n"
        "    found = [Result(n, 'S.', p, failed('late'), 1, 'test_a', 1) for n, p in exercise.points.items()]\n"
        "    return Grade(exercise, submission, 'ab', 'nats', 'embedded', '2', 'plain', (1,), tuple(found))\n"
        "grading.grade = grade\ncli.main()\n"
    )
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        ran = subprocess.run(
            [sys.executable, "-c", program, "check", "--json", "grade.json"],
            cwd=tmp_path, env={**os.environ, **ENV}, stdout=gone, stderr=subprocess.PIPE, text=True,
            timeout=60, check=False,
        )  # fmt: skip

    assert (ran.returncode, ran.stderr) == (1, "")
    assert (tmp_path / "grade.json").is_file()
    assert progress.read(tmp_path).of(course.NAME).failing


def test_what_brokers_status_suggests_is_of_use_for_that_provider(run, monkeypatch):
    lacks = serving.brokers.Missing("there is none", "ackademy check --provider embedded")
    other = serving.brokers.Missing("it is not set", "export X=1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(serving.brokers, "engines", lambda: ("nats",))
    monkeypatch.setattr(
        serving.brokers,
        "available",
        lambda _engine: {"external": other, "embedded": None, "local": lacks},
    )

    out = run("brokers", "status").out

    assert "  embedded   ready\n" in out
    assert "  external   it is not set\n             to have it: export X=1\n" in out
    assert "--provider embedded" not in out
