"""A small course on disk, and a grader that needs no broker: it reads the answer in the program.

A program of this course keeps every guarantee unless a line says `# breaks NAME`, `# doubts NAME`
(inconclusive), `# fault` (our fault), `# bug` (an exception of ours) or `# unusable`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autograder import catalog
from autograder.model import (
    Exercise,
    Grade,
    GraderError,
    Problem,
    Result,
    Verdict,
    failed,
    inconclusive,
    passed,
)

NAME = "03_concurrency/01_worker_pool"
GUARANTEES = ("no_message_is_lost", "ack_follows_work")
HEAD = "async def run(source, handle, *, workers: int, stop) -> None:\n"
SKELETON = f'{HEAD}    """Take messages."""\n    # TODO: take messages and settle them.\n    raise NotImplementedError\n'
REFERENCE = f"{HEAD}    async for message in source:\n        await handle(message)\n        await message.ack()\n"

TOML = """\
title = "Worker pool"
kind = "port"
entry = "worker_pool:run"
engines = ["nats", "kafka"]
timeout_s = 30
[points]
no_message_is_lost = 3
ack_follows_work = 2
"""


def hints(*names: str) -> str:
    return "\n".join(f"## {name}\n\n1. Why?\n2. Because.\n3. `ack()`.\n" for name in names)


def patch(breaks: str, caught_by: str | None = None, *, subject: str = "Ack on receipt") -> str:
    """A mutant of REFERENCE whose new line says what it breaks."""
    return f"""\
{subject}

A crash then loses the message.

Caught-by: {caught_by or breaks}

--- a/worker_pool.py
+++ b/worker_pool.py
@@ -1,4 +1,5 @@
 async def run(source, handle, *, workers: int, stop) -> None:
     async for message in source:
+        # breaks {breaks}
         await handle(message)
         await message.ack()
"""


def write(root: Path) -> Exercise:
    """A complete exercise that `verify` finds nothing wrong with."""
    given = root / "exercises" / NAME
    withheld = root / "solutions" / NAME
    for folder in (given, withheld / "mutants", withheld / "variants"):
        folder.mkdir(parents=True)
    (given / "exercise.toml").write_text(TOML)
    (given / "README.md").write_text("# Worker pool\n")
    (given / "hints.md").write_text(hints(*GUARANTEES))
    (given / "test_visible.py").write_text("")
    (given / "worker_pool.py").write_text(SKELETON)
    (withheld / "NOTES.md").write_text("")
    (withheld / "test_hidden.py").write_text("")
    (withheld / "worker_pool.py").write_text(REFERENCE)
    (withheld / "variants/other.py").write_text(f"# another way\n{REFERENCE}")
    (withheld / "mutants/early_ack.patch").write_text(patch("ack_follows_work"))
    (withheld / "mutants/drops.patch").write_text(patch("no_message_is_lost"))
    return catalog.load(root, NAME)


def verdict(name: str, source: str) -> Verdict:
    if "NotImplementedError" in source or re.search(rf"# breaks .*\b{name}\b", source):
        return failed(f"{name} was broken")
    if re.search(rf"# doubts .*\b{name}\b", source):
        return inconclusive("the broker was slow")
    return passed("seen")


def grade(exercise, submission, *, engine, server, stores, seeds, tests, stop_early):
    """What `grading.grade` would return, without running anything."""
    assert server == f"a {engine} server"
    assert stores == {}
    assert tests.name in {"test_hidden.py", "test_visible.py"}
    assert stop_early is False
    source = submission.read_text()
    if "# fault" in source:
        raise GraderError("The broker is gone.", next_command="ackademy brokers status")
    if "# bug" in source:
        raise ZeroDivisionError
    if "# interrupt" in source:
        raise KeyboardInterrupt
    unseen = exercise.points if tests.name == "test_hidden.py" else list(exercise.points)[:1]
    results = [
        Result(name, "", points, verdict(name, source), 1, "test_a", seeds[0], object())
        if name in unseen
        else Result(name, "", points, inconclusive("no run was judged"), 0)
        for name, points in exercise.points.items()
    ]
    return Grade(
        exercise=exercise,
        submission=submission,
        submission_sha256="",
        engine=engine,
        provider="embedded",
        broker_version="1",
        isolation="plain",
        seeds=tuple(seeds),
        results=tuple(results),
        problem=Problem("no-run", "There is no run.") if "# unusable" in source else None,
        duration_s=0.5,
        complete="# cut short" not in source,
    )


@contextmanager
def acquire(engine: str, **_options: object) -> Iterator[str]:
    yield f"a {engine} server"
