"""The kill matrix: what it proves, what it refuses, and what is not the author's fault."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import psutil
import pytest
from rich.console import Console

from autograder.authoring import matrix
from autograder.authoring.submissions import Job, Role, collect, servers
from autograder.authoring.verify import verify
from autograder.model import Call, GraderError, UsageError
from autograder.tests.authoring import course


@pytest.fixture
def exercise(tmp_path):
    return course.write(tmp_path)


def proved(exercise, **options):
    options = {"grade": course.grade, "acquire": course.acquire, **options}
    return verify(exercise, **options)


def drawn(found):
    console = Console(file=io.StringIO(), width=100)
    matrix.draw(found, console)
    return console.file.getvalue()


def test_a_sound_exercise_is_proved_on_every_engine(exercise):
    said = []
    found = proved(exercise, on_progress=said.append)

    assert found.findings == ()
    assert found.exit_code == 0
    assert len(said) == len(found.outcomes) == 2 * 6
    assert said[0] == "1/12 skeleton on nats: no_message_is_lost, ack_follows_work"
    assert [each.job.submission.role for each in found.outcomes if each.job.engine == "nats"] == [
        Role.SKELETON,
        Role.REFERENCE,
        Role.VISIBLE,
        Role.VARIANT,
        Role.MUTANT,
        Role.MUTANT,
    ]


def test_the_matrix_shows_who_was_caught_by_what(exercise):
    text = drawn(proved(exercise, engines=["nats"], seeds=(1, 2)))

    rows = {line.split("  ")[0]: line.split()[-2:] for line in text.splitlines() if "  " in line}
    assert rows["skeleton"] == ["x", "x"]
    assert rows["reference"] == [".", "."]
    assert rows["variants/other"] == [".", "."]
    assert rows["mutants/drops"] == ["X", "."]
    assert rows["mutants/early_ack"] == [".", "X"]
    assert "on nats, seeds 1, 2" in text
    assert "kafka" not in text
    assert "1 ack_follows_work" not in text
    assert "2 mutants, 1 variants, 6 gradings, 0 to mend" in text


def test_gradings_run_in_processes_of_their_own(exercise):
    found = proved(exercise, engines=["nats"], jobs=2)

    assert found.exit_code == 0
    assert len(found.outcomes) == 6


def test_the_matrix_is_plain_data_too(exercise):
    table = json.loads(json.dumps(matrix.as_table(proved(exercise))))

    assert table["format"] == "ackademy/kill-matrix/1"
    assert table["exit_code"] == 0
    mutant = next(each for each in table["programs"] if each["name"] == "mutants/drops")
    assert mutant["verdicts"] == {"no_message_is_lost": "fail", "ack_follows_work": "pass"}
    assert mutant["caught_by"] == ["no_message_is_lost"]


def the_one(found):
    (finding,) = found.findings
    assert finding.remedy
    assert found.exit_code == 1
    assert finding.sentence in drawn(found).replace("\n", " ")
    return f"{finding.where}: {finding.sentence}"


def test_a_skeleton_that_passes_something_earns_points_for_nothing(exercise):
    exercise.skeleton.write_text(
        course.SKELETON.replace("raise NotImplementedError", "...  # breaks ack_follows_work")
    )

    found = proved(exercise, engines=["nats"])

    assert the_one(found).startswith("skeleton on nats: no_message_is_lost passes on an unsolved")


def test_a_skeleton_that_passes_everything(exercise):
    exercise.skeleton.write_text(
        course.SKELETON.replace("raise NotImplementedError", "await handle(source)")
    )

    found = proved(exercise, engines=["nats"])

    assert "skeleton on nats: no guarantee fails" in [
        f"{f.where}: {f.sentence}" for f in found.findings
    ]


def test_a_skeleton_that_cannot_be_graded_proves_nothing(exercise):
    exercise.skeleton.write_text(f"{course.SKELETON}# unusable\n")

    assert "skeleton on nats: could not be graded (no-run)" in the_one(
        proved(exercise, engines=["nats"])
    )


@pytest.mark.parametrize("word", ["breaks", "doubts"])
def test_a_variant_must_pass(exercise, word):
    file = exercise.solution_folder / "variants/other.py"
    file.write_text(f"{course.REFERENCE}# {word} ack_follows_work\n")

    finding = the_one(proved(exercise, engines=["kafka"]))

    assert finding.startswith("variants/other on kafka: ack_follows_work: ")
    assert "test_a, seed 1" in finding


def test_a_reference_must_pass_the_visible_tests_that_judge_something(exercise):
    found = proved(exercise, engines=["nats"])

    visible = next(each for each in found.outcomes if each.job.submission.role is Role.VISIBLE)
    assert list(visible.verdicts) == ["no_message_is_lost"]


def test_a_guarantee_without_a_scenario(exercise):
    def grade(exercise, submission, *, tests, **options):
        visible = exercise.visible_tests  # its fake judges the first guarantee only
        return course.grade(exercise, submission, tests=visible, **options)

    said = {
        f"{f.where}: {f.sentence}" for f in proved(exercise, engines=["nats"], grade=grade).findings
    }

    assert "reference on nats: ack_follows_work has points but no scenario" in said
    assert "ack_follows_work on nats: caught no mutant" in said


def test_a_mutant_that_survives(exercise):
    patch = exercise.solution_folder / "mutants/late_ack.patch"
    patch.write_text(course.patch("nothing", "ack_follows_work"))

    found = proved(exercise, engines=["nats"])

    row = next(line for line in drawn(found).splitlines() if line.startswith("mutants/late_ack "))
    assert row.split()[1:] == [".", "S"]
    assert the_one(found) == (
        "mutants/late_ack on nats: is not caught by ack_follows_work: pass (it survives)"
    )


def test_a_mutant_caught_for_another_reason(exercise):
    patch = exercise.solution_folder / "mutants/late_ack.patch"
    text = course.patch("no_message_is_lost", "ack_follows_work")
    patch.write_text(text.replace("# breaks", "# somehow\n+        # breaks").replace("1,5", "1,6"))

    assert "(caught by no_message_is_lost)" in the_one(proved(exercise, engines=["nats"]))


def test_a_guarantee_that_catches_nothing(exercise):
    (exercise.solution_folder / "mutants/drops.patch").unlink()

    said = {f"{f.where}: {f.sentence}" for f in proved(exercise, engines=["nats"]).findings}

    assert said == {
        f"solutions/{course.NAME}/mutants: no mutant is caught by no_message_is_lost",
        "no_message_is_lost on nats: caught no mutant",
    }


def test_two_patches_that_make_the_same_program(exercise):
    patch = exercise.solution_folder / "mutants/drops_again.patch"
    patch.write_text(course.patch("no_message_is_lost", subject="Forget the message"))

    assert (
        the_one(proved(exercise)) == "mutants/drops_again.patch: is the same program as drops.patch"
    )


def test_a_patch_that_no_longer_applies(exercise):
    text = course.patch("ack_follows_work").replace("handle(message)", "handle(each)")
    (exercise.solution_folder / "mutants/old.patch").write_text(text)

    assert "old.patch does not apply" in the_one(proved(exercise, engines=["nats"]))


def test_a_patch_that_makes_no_python(exercise):
    text = course.patch("ack_follows_work").replace("# breaks ack_follows_work", "def (")
    (exercise.solution_folder / "mutants/syntax.patch").write_text(text)

    assert the_one(proved(exercise, engines=["nats"])).startswith("mutants/syntax.patch: ")


@pytest.mark.parametrize(
    ("line", "said"), [("# fault", "The broker is gone."), ("# bug", "ZeroDivisionError")]
)
def test_a_fault_of_ours_is_no_finding_and_the_others_go_on(exercise, line, said):
    (exercise.solution_folder / "variants/other.py").write_text(f"{course.REFERENCE}{line}\n")

    found = proved(exercise, engines=["nats"])

    assert found.findings == ()
    assert found.exit_code == 3
    assert len(found.outcomes) == 6
    assert said in drawn(found)


def test_an_engine_that_is_not_here_is_named_and_the_other_one_graded(exercise):
    @contextmanager
    def acquire(engine):
        if engine == "kafka":
            raise GraderError("No Kafka.", next_command="ackademy brokers install kafka")
        yield f"a {engine} server"

    found = proved(exercise, acquire=acquire)

    assert found.exit_code == 3
    assert found.findings == ()
    assert {each.job.engine for each in found.outcomes} == {"nats"}
    assert "kafka is not available: No Kafka. Next: ackademy brokers install kafka" in drawn(found)


@pytest.mark.parametrize("line", ["# interrupt", "# cut short"])
def test_ctrl_c_shows_what_was_found_so_far(exercise, line):
    (exercise.solution_folder / "variants/other.py").write_text(f"{course.REFERENCE}{line}\n")

    found = proved(exercise, engines=["nats"])

    assert not found.complete
    assert found.exit_code == 4
    assert len(found.outcomes) == 3
    assert "interrupted" in drawn(found)


def test_the_student_edition_cannot_be_verified(exercise):
    exercise.solution_folder.rename(exercise.solution_folder.with_name("gone"))

    with pytest.raises(UsageError, match="only the full edition"):
        proved(exercise)


def test_the_stores_of_an_exercise_are_started_once_for_all_its_programs(tmp_path):
    exercise = replace(course.write(tmp_path), calls=(Call("run", ("source", "handle", "db")),))
    jobs = [Job(exercise, each, "nats", (1,)) for each in collect(exercise, tmp_path / "made")[0]]
    for engine, stores in (("nats", {"postgres": "a postgres server"}), ("sim", {})):
        with servers(engine, jobs, course.acquire) as warm:
            assert warm == {"server": f"a {engine} server", "stores": stores}


OWNER = """
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from os import getpid
from autograder.authoring.submissions import _begin_worker

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin_worker)
    print(pool.submit(getpid).result(), flush=True)
    sys.stdin.read()
"""


def test_grading_processes_end_with_the_one_that_started_them(tmp_path):
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        worker = psutil.Process(int(owner.stdout.readline()))
        owner.kill()
    assert not psutil.wait_procs([worker], timeout=30)[1]
