"""The drill: false verdicts are counted per program and guarantee, and the machine stays clean."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from rich.console import Console

from autograder.authoring import drill as drilling
from autograder.authoring.drill import Fault, drill
from autograder.authoring.load import load
from autograder.model import UsageError
from autograder.tests.authoring import course


@pytest.fixture
def exercise(tmp_path):
    return course.write(tmp_path)


def seen(exercise, **options):
    options = {"grade": course.grade, "acquire": course.acquire, "engine": "nats", **options}
    options.setdefault("seeds_at_once", 1)
    return drill(exercise, **{"runs": 3, **options})


def drawn(found):
    console = Console(file=io.StringIO(), width=120)
    drilling.draw(found, console)
    return console.file.getvalue()


def test_every_program_runs_on_every_seed_and_the_skeleton_never(exercise):
    seeds = []

    def grade(exercise, submission, *, seeds: tuple[int, ...], **options):
        asked.append((submission.parent.name, *seeds))
        return course.grade(exercise, submission, seeds=seeds, **options)

    asked = seeds
    found = seen(exercise, grade=grade, first_seed=7)

    assert found.exit_code == 0
    assert dict(found.runs) == {
        "reference": 3,
        "variants/other": 3,
        "mutants/drops": 3,
        "mutants/early_ack": 3,
    }
    assert {seed for _, seed in asked} == {7, 8, 9}
    assert [seed for _, seed in asked] == sorted(seed for _, seed in asked)


def test_right_programs_share_a_grading_and_mutants_do_not(exercise):
    asked = []

    def grade(exercise, submission, *, seeds: tuple[int, ...], **options):
        asked.append((submission.parent.name, seeds))
        return course.grade(exercise, submission, seeds=seeds, **options)

    found = seen(exercise, grade=grade, runs=3, seeds_at_once=2)

    assert set(found.runs.values()) == {3}
    assert found.verdicts["reference", "ack_follows_work"] == 3
    sizes = {name: [len(seeds) for each, seeds in asked if each == name] for name, _ in asked}
    assert [2, 1] in sizes.values()
    assert [1, 1, 1] in [sorted(each)[:3] for each in sizes.values()]


def test_a_right_program_that_fails_is_a_false_fail(exercise):
    (exercise.solution_folder / "variants/other.py").write_text(
        f"{course.REFERENCE}# breaks ack_follows_work\n"
    )

    found = seen(exercise)

    assert found.exit_code == 1
    assert found.count(Fault.FALSE_FAIL) == 3
    assert found.count(Fault.FALSE_FAIL, "variants/other", "ack_follows_work") == 3
    assert found.count(Fault.FALSE_FAIL, "reference") == 0
    text = drawn(found)
    assert "false fail: variants/other ack_follows_work, seed 1" in text
    assert "--only variants/other --runs 1 --first-seed 1 --engine nats" in text


def test_a_mutant_that_its_own_guarantee_lets_pass_is_a_false_pass(exercise):
    patch = exercise.solution_folder / "mutants/late.patch"
    patch.write_text(course.patch("no_message_is_lost_not", "ack_follows_work"))

    found = seen(exercise, runs=2)

    assert found.count(Fault.FALSE_PASS, "mutants/late", "ack_follows_work") == 2
    assert found.count(Fault.FALSE_PASS) == 2  # what other guarantees say of it is not counted
    assert found.exit_code == 1


def test_inconclusive_is_counted_and_is_no_false_verdict(exercise):
    exercise.reference.write_text(f"{course.REFERENCE}# doubts ack_follows_work\n")

    found = seen(exercise, only=["reference"])

    assert found.count(Fault.INCONCLUSIVE, guarantee="ack_follows_work") == 3
    assert not any(found.count(fault) for fault in drilling.FALSE)
    assert found.exit_code == 4


@pytest.mark.parametrize(("line", "code"), [("# fault", 3), ("# bug", 3), ("# unusable", 1)])
def test_what_has_no_verdict_is_counted_too(exercise, line, code):
    (exercise.solution_folder / "variants/other.py").write_text(f"{course.REFERENCE}{line}\n")

    found = seen(exercise)

    assert found.exit_code == code
    assert found.runs["variants/other"] == 3
    assert len(found.incidents) == 3


def test_ctrl_c_shows_what_was_seen_so_far(exercise):
    (exercise.solution_folder / "variants/other.py").write_text(f"{course.REFERENCE}# interrupt\n")

    found = seen(exercise)

    assert not found.complete
    assert dict(found.runs) == {"reference": 1}
    assert found.exit_code == 4
    assert "interrupted" in drawn(found)


@pytest.mark.parametrize(
    ("only", "programs"),
    [
        (["reference"], {"reference"}),
        (["reference", "variants"], {"reference", "variants/other"}),
        (["mutants/drops"], {"mutants/drops"}),
        (["variants", "mutants/drops"], {"variants/other", "mutants/drops"}),
    ],
)
def test_only_some_programs(exercise, only, programs):
    assert set(seen(exercise, only=only).runs) == programs


@pytest.mark.parametrize("only", [["skeleton"], ["mutants/none"], ["reference", "varaints"]])
def test_programs_that_are_not_there(exercise, only):
    with pytest.raises(UsageError, match="variants/other"):
        seen(exercise, only=only)


def test_the_drill_is_plain_data_too(exercise):
    table = json.loads(json.dumps(drilling.as_table(seen(exercise))))

    assert table["format"] == "ackademy/drill/1"
    assert table["counts"] == dict.fromkeys(map(str, Fault), 0)
    assert {"program": "reference", "guarantee": "ack_follows_work", "count": 3} in table[
        "verdicts"
    ]


def gone(pids, timeout_s=10.0):
    """Whether these processes have ended, waiting for it if need be."""
    deadline = time.monotonic() + timeout_s
    while any(psutil.pid_exists(pid) and _alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)  # ASYNC-free polling of processes that are not ours to wait for
    return True


def _alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_load_is_real_and_leaves_nothing_behind(exercise):
    pids = []

    def grade(*args, **options):
        children = psutil.Process().children()
        pids[:] = [child.pid for child in children if "getppid" in " ".join(child.cmdline())]
        return course.grade(*args, **options)

    found = seen(exercise, grade=grade, under_load=True, runs=1)

    assert found.loaded
    assert len(pids) == os.cpu_count()
    assert gone(pids)


def test_an_error_ends_the_load():
    with pytest.raises(ZeroDivisionError), load(1) as pids:
        raise ZeroDivisionError

    assert gone(pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_load_ends_with_its_parent_however_that_ends(number):
    program = (
        "import time\nfrom autograder.authoring.load import load\n"
        "with load(1) as pids:\n    print(*pids, flush=True)\n"
        # short ones: a signal that comes just before the system call of a long one is heard at its end
        "    for _ in range(600): time.sleep(0.1)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.send_signal(number)
        parent.wait(timeout=10)

    assert gone(pids)
