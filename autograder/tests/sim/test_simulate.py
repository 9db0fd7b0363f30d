"""Grading in the simulation: what it finds, how small it makes it, and what it leaves to others."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from autograder import catalog
from autograder.authoring import submissions
from autograder.grading import grade
from autograder.grading.exploring import LEAST_SEEDS
from autograder.grading.simulated import replay
from autograder.model import Exercise, Kind, Status, UsageError
from autograder.sim.schedule import MANNERS, PACES, TROUBLES, Rehearsal, Schedule

EXERCISE = catalog.find("worker_pool", catalog.course_root())
needs_solutions = pytest.mark.skipif(
    not EXERCISE.solution_folder.is_dir(), reason="the student edition has no solutions"
)


@pytest.fixture
def programs(tmp_path: Path):
    found, _ = submissions.collect(EXERCISE, tmp_path)
    return {each.name: each for each in found}


def simulated(exercise: Exercise, submission: Path, **options):
    options = {"seeds": ()} | options
    return grade(exercise, submission, engine="sim", **options)


def failing(done):
    return {each.guarantee for each in done.results if each.verdict.status is Status.FAIL}


@needs_solutions
def test_a_right_program_passes_on_every_manner(programs):
    done = simulated(EXERCISE, EXERCISE.reference)
    assert done.status is Status.PASS, [each.verdict for each in done.results]
    assert (done.engine, done.provider, done.points) == ("sim", "simulation", done.points_possible)
    assert len(done.seeds) >= LEAST_SEEDS
    assert done.seeds == tuple(range(1, len(done.seeds) + 1))


@needs_solutions
@pytest.mark.parametrize(
    "name",
    ["unbounded_queue", "ack_on_receipt", "waves", "stop_cancels_handlers", "nack_is_not_guarded"],
)
def test_a_wrong_program_dies_by_its_guarantee_in_a_small_run(programs, name):
    mutant = programs[f"mutants/{name}"]
    small = simulated(EXERCISE, mutant.file)
    assert set(mutant.caught_by) <= failing(small)
    [found] = [each for each in small.results if each.guarantee == mutant.caught_by[0]]
    assert found.history is not None
    published = len(found.history.of(Kind.PUBLISHED))
    whole = found.history.workers * 100
    assert len(found.history.events) < whole
    assert published <= 40


@needs_solutions
def test_it_says_the_same_every_time(programs):
    mutant = programs["mutants/slot_given_back_twice"].file
    grades = [simulated(EXERCISE, mutant) for _ in range(2)]
    told = [[(r.guarantee, r.verdict, r.test, r.seed) for r in each.results] for each in grades]
    assert told[0] == told[1]
    assert grades[0].seeds == grades[1].seeds


@needs_solutions
def test_seeds_that_were_asked_for_are_all_there_is(programs):
    done = simulated(EXERCISE, EXERCISE.reference, seeds=(4, 9))
    assert done.seeds == (4, 9)
    assert {each.histories > 0 for each in done.results} == {True}


@needs_solutions
def test_a_failing_run_is_replayed_by_its_name(programs):
    mutant = programs["mutants/unbounded_queue"].file
    done = simulated(EXERCISE, mutant)
    [found] = [each for each in done.results if each.replay]
    histories = [each.history for each in replay(EXERCISE, mutant, found.replay, tests=None)]
    assert found.history is not None
    assert found.history.events in [each.events for each in histories]


def test_a_name_of_no_run_says_what_there_is():
    with pytest.raises(UsageError, match=r"names no simulated run.*test_the_process_dies"):
        replay(EXERCISE, EXERCISE.skeleton, "test_nothing@1", tests=EXERCISE.visible_tests)


@pytest.mark.parametrize("seed", [1, 2, 3, 8, 15])
@pytest.mark.parametrize("share", [1, 8])
def test_a_run_is_its_name(seed, share):
    for pace in PACES:
        usual = Schedule.of(seed)
        for trouble in "none", usual.trouble:
            run = Rehearsal("test_it", Schedule(seed, usual.manner, pace, trouble), share)
            assert " " not in str(run)
            assert Rehearsal.read(str(run)) == run


@pytest.mark.parametrize(
    "name", ["", "test_it", "test_it@", "test_it@x", "@1", "test_it@0", "test_it@1/even", "test_it@1/no/1", "test_it@4/even/1/wild", "test_it@1/even/0"]
)  # fmt: skip
def test_what_is_no_name_is_refused(name):
    with pytest.raises(ValueError):  # noqa: PT011 - int's own sentence, or the name
        Rehearsal.read(name)


def test_fifteen_seeds_see_each_manner_at_each_pace():
    seen = {(each.manner, each.pace) for each in map(Schedule.of, range(1, 16))}
    assert len(seen) == len(MANNERS) * len(PACES)
    assert [Schedule.of(seed).manner for seed in (1, 2, 3)] == list(MANNERS)
    troubles = {(each.manner, each.trouble) for each in map(Schedule.of, range(1, 10))}
    assert len(troubles) == len(MANNERS) * len(TROUBLES)


@needs_solutions
@pytest.mark.parametrize(
    "name",
    ["timeout_around_the_handler", "grace_of_a_second_at_stop", "hangs_when_the_source_ends"],
)
def test_what_no_broker_can_show_is_caught_here(programs, name):
    mutant = programs[f"mutants/{name}"]
    assert (mutant.belongs_on("sim"), mutant.belongs_on("nats")) == (True, False)
    assert set(mutant.caught_by) <= failing(simulated(EXERCISE, mutant.file))


def test_the_skeleton_fails_at_once():
    done = simulated(EXERCISE, EXERCISE.skeleton, tests=EXERCISE.visible_tests)
    assert done.status is Status.FAIL
    assert done.seeds == (1,)


def test_what_is_not_simulated_is_left_to_a_real_broker(tmp_path):
    sleeper = tmp_path / "worker_pool.py"
    sleeper.write_text(
        "import time\nasync def run(source, handle, *, workers, stop):\n    time.sleep(1)\n"
    )
    done = simulated(EXERCISE, sleeper, tests=EXERCISE.visible_tests)
    assert done.status is Status.INCONCLUSIVE
    [notice] = done.notices  # once, whatever number of scenarios met it
    assert "scenarios: the simulation has no time.sleep" in notice


@needs_solutions
def test_a_module_may_sleep_while_it_is_imported(tmp_path):
    sleeper = tmp_path / "worker_pool.py"
    sleeper.write_text(f"{EXERCISE.reference.read_text()}\nimport time\ntime.sleep(600)\n")
    done = simulated(EXERCISE, sleeper, tests=EXERCISE.visible_tests)
    assert done.status is Status.PASS


def test_an_endless_loop_is_a_verdict_in_time(tmp_path):
    spinner = tmp_path / "worker_pool.py"
    spinner.write_text(
        "async def run(source, handle, *, workers, stop):\n    while True:\n        pass\n"
    )
    began = time.monotonic()
    done = simulated(EXERCISE, spinner, tests=EXERCISE.visible_tests)
    assert time.monotonic() - began < EXERCISE.timeout_s
    assert done.status is Status.FAIL


def test_what_a_module_prints_is_shown_of_one_run(tmp_path):
    printer = tmp_path / "worker_pool.py"
    printer.write_text(
        "async def run(source, handle, *, workers, stop):\n    print('hello from', workers)\n"
    )
    done = simulated(EXERCISE, printer, tests=EXERCISE.visible_tests)
    assert done.output.count("hello from") == 1


@needs_solutions
def test_what_a_killed_process_would_still_have_said_is_not_shown(tmp_path):
    tidy = tmp_path / "worker_pool.py"
    tidy.write_text(TIDY)
    done = simulated(EXERCISE, tidy)
    assert done.status is Status.FAIL
    assert "Frozen" not in done.output


TIDY = """
import asyncio
from autograder.messaging import Permanent

async def run(source, handle, *, workers, stop):
    async def work():
        async for message in source:
            try:
                await handle(message)
            except Permanent:
                await message.nack(requeue=False)
            except Exception:
                await message.nack(requeue=True)
            else:
                await message.ack()
    async def close():
        await stop.wait()
        await source.stop_receiving()
    try:
        async with asyncio.TaskGroup() as group:
            closing = group.create_task(close())
            await asyncio.wait([group.create_task(work()) for _ in range(workers)])
            closing.cancel()
    finally:
        await source.stop_receiving()
"""


HOSTILE = Path(__file__).parents[1] / "hostile" / "submissions"


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("forks", Status.INCONCLUSIVE, ""),
        ("leaves_threads", Status.INCONCLUSIVE, ""),
        ("os_exits_at_import", Status.FAIL, "exited"),
        ("os_exits_mid_run", Status.FAIL, "exited"),
        ("exits_in_a_task", Status.FAIL, "exit"),
        ("writes_garbage_to_the_host", Status.FAIL, "control"),
        ("kills_its_parent", Status.FAIL, ""),
        ("reads_the_solution", Status.FAIL, ""),
        ("speaks_for_the_host", Status.FAIL, ""),
    ],
)
def test_malice_hangs_nothing_and_wins_nothing(name, status, code):
    done = simulated(EXERCISE, HOSTILE / f"{name}.py", tests=EXERCISE.visible_tests)
    assert done.status is status
    assert (done.problem.code if done.problem else "") == code


def test_a_module_that_does_not_load_is_a_problem_not_a_verdict(tmp_path):
    broken = tmp_path / "worker_pool.py"
    broken.write_text("def run(:\n")
    done = simulated(EXERCISE, broken, tests=EXERCISE.visible_tests)
    assert done.problem is not None
    assert done.problem.code == "syntax"
