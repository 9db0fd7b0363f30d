"""A grade is what was seen, whole or cut short; and what is our fault is nobody's verdict."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autograder import brokers
from autograder.brokers.process import wait_until
from autograder.exam import Zygote
from autograder.grading import grade
from autograder.model import Exercise, GraderError, Status

pytestmark = pytest.mark.nats
HERE = Path(__file__).parent
GOOD = """
async def run(source, handle, *, workers, stop):
    async for message in source:
        await handle(message)
        await message.ack()
"""


@pytest.fixture
def submission(tmp_path: Path) -> Path:
    path = tmp_path / "pool.py"
    path.write_text(GOOD)
    return path


@pytest.fixture
def exercise() -> Exercise:
    return Exercise(
        path="00_test/02_grading",
        title="Grading",
        kind="port",
        module="pool",
        function="run",
        engines=("nats",),
        timeout_s=30,
        points={"no_message_is_lost": 3},
        folder=HERE,
        solution_folder=HERE,
    )


@pytest.fixture
def ten_orders(tmp_path: Path) -> Path:
    """A file with the first scenario only."""
    path = tmp_path / "ten_orders.py"
    whole = (HERE / "scenarios.py").read_text()
    path.write_text(whole[: whole.index("@guarantees", whole.index("test_ten_orders"))])
    return path


def test_a_good_submission_passes_on_every_seed(exercise, submission, ten_orders, bench):
    result = grade(
        exercise, submission, engine="nats", server=bench.server("nats"), tests=ten_orders
    )
    assert result.status is Status.PASS
    assert (result.points, result.points_possible) == (3, 3)
    assert result.seeds == (1, 2, 3)
    assert result.results[0].histories == 3
    assert result.submission_sha256
    assert result.versions["nats-py"]
    assert result.complete


def test_a_failed_first_seed_spares_the_others(exercise, submission, ten_orders, bench):
    submission.write_text(GOOD.replace("await handle(message)", "pass"))
    result = grade(
        exercise, submission, engine="nats", server=bench.server("nats"), tests=ten_orders
    )
    assert result.status is Status.FAIL
    assert result.seeds == (1,)
    assert result.results[0].verdict.witness


def test_a_broker_that_dies_is_our_fault(exercise, submission, ten_orders):
    """Killed in the middle: no verdict, but an error with exit code 3."""
    submission.write_text(
        GOOD.replace(
            "await handle(message)",
            "await handle(message)\n        await __import__('asyncio').sleep(0.5)",
        )
    )
    with brokers.acquire("nats", "embedded") as server:
        killer = threading.Timer(1, os.kill, (server.pid, signal.SIGKILL))
        killer.start()
        with pytest.raises(GraderError, match="died") as caught:
            grade(exercise, submission, engine="nats", server=server, tests=ten_orders)
        killer.join()
    assert caught.value.exit_code == 3


def test_a_full_disk_is_our_fault(submission, ten_orders, bench):
    """The limit on file sizes stands in for the disk: the copy of the module does not fit."""
    submission.write_text(GOOD + "#" * 100_000)
    script = f"""
        import resource
        from pathlib import Path
        from autograder.brokers import Server
        from autograder.exam import process
        from autograder.grading import grade
        from autograder.model import Exercise, GraderError
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        exercise = Exercise("a/b", "t", "port", "pool", "run", ("nats",), 30, {{"no_message_is_lost": 1}}, Path("."), Path("."))
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        try:
            grade(exercise, Path({str(submission)!r}), engine="nats", tests=Path({str(ten_orders)!r}),
                  server=Server("nats", {bench.server("nats").url!r}, "external", "2"))
        except GraderError as error:
            print(error.exit_code, error.sentence)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("3 This machine did not play along: File too large"), done.stderr


@pytest.fixture
def grader(exercise, submission, tmp_path) -> Iterator[subprocess.Popen[str]]:
    """A process of its own that grades and is held in the second scenario."""
    script = f"""
        from pathlib import Path
        from autograder.grading import grade
        from autograder.model import Exercise
        exercise = Exercise("a/b", "t", "port", "pool", "run", ("nats",), 600, {{"no_message_is_lost": 1}}, Path("."), Path("."))
        result = grade(exercise, Path({str(submission)!r}), engine="nats", provider="embedded",
                       tests=Path({str(HERE / "scenarios.py")!r}), seeds=(1,),
                       on_progress=lambda done, planned: print("JUDGED", flush=True))
        print("GRADED", result.complete, result.status, result.results[0].histories, flush=True)
    """
    environment = os.environ | {"ACKADEMY_STATE_DIR": str(tmp_path / "state")}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert {process.stdout.readline(), process.stdout.readline()} == {"HELD\n", "JUDGED\n"}
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_ctrl_c_keeps_what_was_judged_and_leaves_no_process(grader):
    family = psutil.Process(grader.pid).children(recursive=True)
    assert len(family) >= 4  # server, zygote, keeper, subject
    grader.send_signal(signal.SIGINT)
    assert grader.stdout.read() == "GRADED False inconclusive 1\n"
    assert _gone(family)


def test_kill_9_of_the_grader_leaves_no_process(grader):
    """What hangs on its sockets dies at once; a server at the latest with the next start."""
    family = psutil.Process(grader.pid).children(recursive=True)
    children = psutil.Process(grader.pid).children()
    (zygote,) = (each for each in children if "autograder.subject.zygote" in each.cmdline())
    folder = Path(zygote.cwd())
    assert folder.is_dir()
    grader.kill()
    grader.wait()
    assert _gone(family)
    with Zygote("memory", isolation_kind="plain"):  # the next one cleans up, here or anywhere
        assert wait_until(lambda: not folder.exists(), timeout_s=10)


def _gone(family: list[psutil.Process]) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family):
            return True
        psutil.wait_procs(family, timeout=0.2)
    return False
