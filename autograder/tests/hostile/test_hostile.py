"""Every hostile or hopeless submission gets its own sentence, in time, and the grader lives on."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autograder.brokers import Server
from autograder.exam import isolation_here
from autograder.grading import grade
from autograder.model import Exercise, Grade, Status, UsageError
from autograder.pytest_plugin import Bench
from autograder.subject import seccomp

pytestmark = pytest.mark.nats
HERE = Path(__file__).parent
SUBMISSIONS = HERE / "submissions"
TIME_LIMIT_S = 30.0

# submission -> (problem code or "" if a guarantee is broken instead, what the student reads)
EXPECTED = {
    "does_not_parse": ("syntax", r"does_not_parse\.py line 2 is not valid Python: expected ':'"),
    "null_bytes": ("syntax", r"null_bytes\.py .* is not valid Python: .*null bytes"),
    "not_utf8": ("encoding", r"not_utf8\.py is not UTF-8 text \(byte 5\)"),
    "empty": ("empty", r"empty\.py is empty"),
    "no_function": ("no function", r"no_function\.py has no function called run"),
    "wrong_signature": ("signature", r"run\(source, handle\) cannot be called as run\(source, handle, workers"),
    "not_async": ("not async", r"write `async def run`"),
    "missing_import": ("import", r"imports what is not there: No module named 'a_package_nobody_has'"),
    "raises_at_import": ("raises at import", r"raises KeyError: 'limit' while it is imported"),
    "exits_at_import": ("exit at import", r"calls sys\.exit\(0\) while it is imported"),
    "os_exits_at_import": ("exited", r"ended by itself \(status 0\)"),
    "os_exits_mid_run": ("exited", r"ended by itself \(status 0\)"),
    "exits_like_the_host": ("exited", r"ended by itself \(status 69\)"),
    "exits_mid_run": ("exit", r"calls sys\.exit\('enough'\) in the middle of the run \(exits_mid_run\.py line 7\)"),
    "exits_in_a_task": ("exit", r"calls sys\.exit\(0\) in the middle of the run \(exits_in_a_task\.py line 6\)"),
    "forks": ("fork", r"the module forks"),
    "closes_the_control_socket": ("control", r"closed the grader's control connection"),
    "speaks_for_the_host": ("control", r"wrote to the grader's control connection"),
    "writes_garbage_to_the_host": ("control", r"wrote to the grader's control connection"),
    "floods_the_host": ("control", r"wrote to the grader's control connection .*MiB of events"),
    "blocks_the_loop": ("", r"block|event loop"),
    "spins_for_ever": ("", r"block|event loop"),
    "spins_politely": ("", r"10 .*confirmed|never"),
    "ignores_signals": ("", r"10 .*confirmed|never"),
    "returns_at_once": ("", r"return|before"),
    "eats_memory": ("", r"MemoryError"),
    "hostile_exception": ("", r"raised Sly \(hostile_exception\.py line 7\)"),
    "reads_the_solution": ("", r"raised NotImplementedError"),
    "phones_home": ("", r"raised NotImplementedError"),
    "patches_the_grader": ("", r"."),
}  # fmt: skip
# These keep the promise, whatever else they do.
TOLERATED = {
    "prints_100_mb": r"printed 104,857,\d+ bytes",
    "leaves_children": r"left 1 processes behind",
    "leaves_threads": "",
    "digs_deep": "",
}


@pytest.fixture(scope="module")
def server(bench: Bench) -> Server:
    return bench.server("nats")


def graded(name: str, server: Server) -> Grade:
    exercise = Exercise(
        path="00_test/01_hostile",
        title="Hostile",
        kind="port",
        module=name,
        function="run",
        engines=("nats",),
        timeout_s=20,
        points={"no_message_is_lost": 1},
        folder=SUBMISSIONS,
        solution_folder=SUBMISSIONS,
    )
    began = time.monotonic()
    grade_ = grade(
        exercise,
        SUBMISSIONS / f"{name}.py",
        engine="nats",
        server=server,
        seeds=(1,),
        tests=HERE / "scenario.py",
    )
    assert time.monotonic() - began < TIME_LIMIT_S
    return grade_


def test_every_submission_of_the_folder_is_expected():
    rest = {"kills_its_parent"}  # depends on the isolation: below
    names = {path.stem for path in SUBMISSIONS.glob("*.py")}
    assert names == set(EXPECTED) | set(TOLERATED) | rest


@pytest.mark.parametrize("name", EXPECTED)
def test_it_fails_with_a_sentence_of_its_own(name: str, server: Server):
    code, sentence = EXPECTED[name]
    result = graded(name, server)
    assert result.status is Status.FAIL
    assert result.points == 0
    said = result.problem.sentence if result.problem else result.results[0].verdict.observed
    assert (result.problem.code if result.problem else "") == code
    assert re.search(sentence, said), said
    if result.problem:
        for ours in ("autograder", "site-packages", "importlib"):
            assert ours not in result.problem.traceback


@pytest.mark.parametrize("name", TOLERATED)
def test_bad_manners_are_noted_and_cleaned_up(name: str, server: Server):
    result = graded(name, server)
    assert result.status is Status.PASS
    assert re.search(TOLERATED[name], " ".join(result.notices))
    assert len(result.output) < 100_000


def test_the_outside_is_out_of_reach(server: Server):
    if isolation_here() != "landlock":
        pytest.skip("this kernel has no Landlock: isolation is `plain`, and the report says so")
    output = graded("reads_the_solution", server).output
    assert "FOUND" not in output
    assert output.count("refused") == 8
    output = graded("phones_home", server).output
    assert "ALLOWED" not in output
    assert output.count("refused: Operation not permitted") >= 3 * seccomp.available()
    assert output.count("refused") == 5
    assert "PermissionError" in graded("kills_its_parent", server).results[0].verdict.observed


def test_without_isolation_the_report_says_so(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ACKADEMY_ISOLATION", "plain")
    result = graded("kills_its_parent", server)
    assert result.status is Status.FAIL
    assert any("No isolation" in notice for notice in result.notices)


def test_a_directory_is_named_as_such(server: Server):
    exercise = Exercise("a/b", "t", "port", "m", "run", ("nats",), 5, {"no_message_is_lost": 1}, HERE, HERE)  # fmt: skip
    with pytest.raises(UsageError, match="is a directory"):
        grade(exercise, SUBMISSIONS, engine="nats", server=server, tests=HERE / "scenario.py")
    with pytest.raises(UsageError, match="no file"):
        grade(exercise, HERE / "none.py", engine="nats", server=server, tests=HERE / "scenario.py")


@pytest.fixture(autouse=True)
def nothing_is_left(server: Server) -> Iterator[None]:
    """Every process that a test starts, or that a submission starts, is gone when it ends.

    What runs before belongs to a server, as does what that starts meanwhile.
    """
    ours = psutil.Process(os.getpid())
    before = {child.pid for child in ours.children()}
    yield
    left = [child for child in ours.children() if child.pid not in before]
    left += [each for child in left for each in child.children(recursive=True)]
    assert not left, left
