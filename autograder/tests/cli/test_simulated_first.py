"""A check begins in the simulation, and a real broker has the last word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autograder import grading, progress
from autograder.model import Grade, Problem, Result, Verdict, failed, inconclusive, passed
from autograder.tests.authoring import course


@pytest.fixture(autouse=True)
def simulated_course(exercise):
    """The small course, with the simulation among its engines."""
    file = exercise.folder / "exercise.toml"
    file.write_text(file.read_text().replace('["nats"', '["sim", "nats"'))


@pytest.fixture
def grades(monkeypatch):
    """Let each engine say this; what was asked for is kept."""
    asked: list[tuple[str, tuple[int, ...]]] = []

    def answer(problem=None, **verdicts: Verdict):
        def grade(exercise, submission, *, engine, seeds, **_):
            asked.append((engine, tuple(seeds)))
            results = tuple(
                Result(name, "A sentence.", points, verdicts[engine], 3, "test_a", 1)
                for name, points in exercise.points.items()
            )
            if engine == "sim" and verdicts[engine].status == "fail":
                results = tuple(replace(each, replay="test_a@1/even/8") for each in results)
            found = Grade(
                exercise, submission, "ab" * 32, engine, "embedded", "2", "landlock", (1, 2, 3), results
            )  # fmt: skip
            return replace(found, problem=problem, started_at="2030-01-01T10:00:00+00:00")

        monkeypatch.setattr(grading, "grade", grade)
        return asked

    return answer


def test_a_real_broker_decides_once_the_simulation_is_green(run, grades, tmp_path):
    asked = grades(sim=passed(), nats=passed())
    ran = run("check")
    assert [engine for engine, _ in asked] == ["sim", "nats"]
    assert asked[0][1] == ()  # as many as there is time for
    assert "Simulation: nothing found on 3 schedules" in ran.err
    assert "nats" in ran.out
    assert ran.code == 0
    assert set(progress.read(tmp_path).of(course.NAME).passed) == {"nats"}


def test_a_failure_in_the_simulation_is_the_report(run, grades, tmp_path):
    asked = grades(sim=failed("seen", slip="Is it?"), nats=passed())
    ran = run("check")
    assert [engine for engine, _ in asked] == ["sim"]
    assert "Whole: ackademy replay test_a@1/even/8" in ran.out
    assert ran.code == 1
    assert progress.read(tmp_path).of(course.NAME).engine == "sim"


def test_what_the_simulation_cannot_judge_a_real_broker_does(run, grades):
    asked = grades(sim=inconclusive("no"), nats=passed())
    ran = run("check")
    assert [engine for engine, _ in asked] == ["sim", "nats"]
    assert "not everything can be judged there" in ran.err
    assert ran.code == 0


def test_a_module_that_does_not_load_needs_no_broker_to_be_told(run, grades):
    asked = grades(sim=passed(), problem=Problem("syntax", "Line 1 is not valid Python."))
    assert run("check").code == 1
    assert [engine for engine, _ in asked] == ["sim"]


@pytest.mark.parametrize(
    ("options", "engines"),
    [
        (["--engine", "nats"], ["nats"]),
        (["--engine", "kafka"], ["kafka"]),
        (["--engine", "sim"], ["sim"]),
        (["--provider", "embedded"], ["nats"]),
        (["--seed", "7"], ["nats"]),
        (["--json", "grade.json"], ["nats"]),
        (["--html", "grade.html"], ["nats"]),
        (["--submission", "solutions/03_concurrency/01_worker_pool/worker_pool.py"], ["nats"]),
        (["--seeds", "5"], ["sim", "nats"]),
        (["--visible"], ["sim", "nats"]),
    ],
)
def test_whoever_names_something_gets_that(run, grades, options, engines):
    asked = grades(sim=passed(), nats=passed(), kafka=passed())
    run("check", *options)
    assert [engine for engine, _ in asked] == engines


def test_the_simulation_alone_passes_nobody(run, grades, tmp_path):
    grades(sim=passed())
    ran = run("check", "--engine", "sim")
    assert ran.code == 0
    assert not progress.read(tmp_path).of(course.NAME).passed
    assert ran.out.splitlines()[-1] == f"Next:  ackademy check {course.NAME} --engine nats"


SCENARIO = """
from autograder.checks.pool import no_message_is_lost
from autograder.exam import guarantees

@guarantees(no_message_is_lost)
async def test_a(exam):
    async with exam.start(workers=1) as run:
        await run.publish(exam.messages(2))
        await run.until(settled=2)
"""


def test_replay_shows_a_run_event_by_event(run, exercise):
    exercise.hidden_tests.write_text(SCENARIO)
    loser = exercise.folder / "loser.py"
    loser.write_text(
        "async def run(source, handle, *, workers, stop):\n"
        "    async for message in source:\n"
        "        await message.ack()\n"
    )
    ran = run("replay", "test_a@3", "worker_pool", "--submission", str(loser))
    assert ran.code == 1
    assert "test_a: run 1 of 1, 1 workers" in ran.out
    assert " ack  " in ran.out
    assert "fail         ack_follows_work" in ran.out
    assert run("replay", "test_a@3", "worker_pool", "--submission", str(loser)).out == ran.out


def test_replay_refuses_what_names_no_run(run, exercise):
    exercise.hidden_tests.write_text(SCENARIO)
    ran = run("replay", "nonsense", "worker_pool")
    assert ran.code == 2
    assert "'nonsense' names no simulated run" in ran.err
    assert ran.err.endswith(f"Next: ackademy replay test_a@1 {course.NAME}\n")
