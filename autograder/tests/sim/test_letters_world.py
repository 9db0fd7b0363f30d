"""Runs with dead letters in a simulated world."""

from __future__ import annotations

import pytest

from autograder.exam import Zygote, isolation_here
from autograder.exam.simulated import SimExam
from autograder.exam.simulated_child import Child
from autograder.sim.schedule import MANNERS, Schedule
from autograder.tests.exam.letters_runs import CONSUMER, RunsWithLetters, the_call


@pytest.fixture(scope="module")
def zygote():
    with Zygote("memory", isolation_kind=isolation_here()) as zygote:
        zygote.wait_ready()
        yield zygote


@pytest.fixture(params=MANNERS)
async def exam(request, zygote, tmp_path):
    module = tmp_path / "consumer.py"
    module.write_text(CONSUMER)
    child = Child(zygote, module)
    yield SimExam(child=child, call=the_call, schedule=Schedule(1, request.param), test="test")
    await child.end()


class TestInTheSimulation(RunsWithLetters):
    pass
