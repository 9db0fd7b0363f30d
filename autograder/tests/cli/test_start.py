"""What a command loads: half of a simulated check's second used to be imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

ONLY_ON_A_BROKER = {"aiokafka", "nats", "pika", "testcontainers", "docker", "psutil", "httpx"}
ONLY_FOR_SOME = {"jinja2", "filelock", "pydantic", "hypothesis", "pytest", "rich.progress"}

SHOW = "import sys; {}; print(*sorted(sys.modules))"
GRADE = """
import sys
from autograder import catalog, grading
exercise = catalog.find("worker_pool", catalog.course_root())
grading.grade(exercise, exercise.skeleton, engine="sim", seeds=(1,), tests=exercise.visible_tests)
print(*sorted(sys.modules))
"""


def loaded(program: str) -> set[str]:
    """The modules of a fresh interpreter after this program."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["commands", "checking"])
def test_a_check_begins_without_what_few_checks_need(module):
    found = loaded(SHOW.format(f"import autograder.cli.{module}"))
    assert f"autograder.cli.{module}" in found
    assert not found & (ONLY_ON_A_BROKER | ONLY_FOR_SOME)


def test_a_grade_in_the_simulation_loads_no_broker():
    found = loaded(GRADE)
    assert "autograder.grading.simulated" in found
    assert not found & (ONLY_ON_A_BROKER | ONLY_FOR_SOME)
    assert "autograder.brokers" not in found


def test_the_process_that_subjects_are_forked_from_loads_the_port_and_one_adapter():
    found = loaded(SHOW.format("import autograder.subject.zygote, autograder.messaging.memory"))
    ours = {each for each in found if each.startswith("autograder.")}
    assert "autograder.subject.host" in ours
    allowed = ("autograder.subject", "autograder.messaging", "autograder.model")
    others = [each for each in sorted(ours) if not each.startswith(allowed)]
    assert others == [
        "autograder.storage"
    ]  # the port alone: its clients cost more than all the rest
    assert not found & (ONLY_ON_A_BROKER | ONLY_FOR_SOME | {"rich", "typer"})
