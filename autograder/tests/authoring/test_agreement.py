"""The simulation beside real brokers: counted, and every difference named."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import product

import pytest
from rich.console import Console

from autograder.authoring import matrix
from autograder.authoring.agreement import Difference, agreements
from autograder.authoring.verify import verify
from autograder.model import Status, failed, passed
from autograder.tests.authoring import course


def stricter(exercise, submission, *, engine, **options):
    """The simulation sees early acks break the other promise, too."""
    done = course.grade(exercise, submission, engine=engine, **options)
    if engine != "sim" or "early_ack" not in str(submission):
        return done
    return replace(
        done, results=tuple(replace(each, verdict=failed("seen")) for each in done.results)
    )


@pytest.fixture
def found(tmp_path):
    exercise = course.write(tmp_path)
    engines = ("sim", "nats", "kafka")
    return verify(exercise, grade=stricter, acquire=course.acquire, engines=engines)


def test_each_real_engine_is_compared(found):
    seen = list(agreements(found.outcomes))
    assert [each.engine for each in seen] == ["nats", "kafka"]
    assert {each.compared for each in seen} == {11}  # two of each program, one of the visible tests
    for each in seen:
        [one] = each.differences
        assert (one.program, one.simulated, one.real) == (
            "mutants/early_ack", Status.FAIL, passed().status,
        )  # fmt: skip


def test_a_difference_that_nobody_named_is_to_be_mended(found):
    unnamed = [each for each in found.findings if "in the simulation" in each.sentence]
    assert [each.where for each in unnamed] == [
        f"mutants/early_ack on {e}" for e in ("nats", "kafka")
    ]
    assert unnamed[0].remedy.endswith("Differs: no_message_is_lost (why)")
    assert found.exit_code == 1


def test_a_difference_with_a_reason_is_shown_with_it(tmp_path):
    exercise = course.write(tmp_path)
    patch = exercise.solution_folder / "mutants/early_ack.patch"
    named = "Differs: no_message_is_lost (it falls together there)\nCaught-by:"
    patch.write_text(patch.read_text().replace("Caught-by:", named, 1))
    found = verify(exercise, grade=stricter, acquire=course.acquire, engines=("sim", "nats"))

    assert not [each for each in found.findings if "in the simulation" in each.sentence]
    console = Console(file=io.StringIO(), width=200)
    matrix.draw(found, console)
    assert "it falls together there" in console.file.getvalue()


def test_a_difference_that_does_not_come_again_was_chance(tmp_path):
    seen = []

    def strict_the_second_time(exercise, submission, *, engine, **options):
        done = stricter(exercise, submission, engine=engine, **options)
        if engine != "nats" or "early_ack" not in str(submission):
            return done
        seen.append(engine)
        broken = tuple(replace(each, verdict=failed("seen")) for each in done.results)
        return replace(done, results=broken) if len(seen) > 1 else done

    exercise = course.write(tmp_path)
    found = verify(
        exercise, grade=strict_the_second_time, acquire=course.acquire, engines=("sim", "nats")
    )
    assert len(seen) == 2
    assert not [each for each in found.findings if "in the simulation" in each.sentence]


def test_a_verdict_that_does_not_tell_contradicts_nothing():
    told = [Difference("a", "b", *pair) for pair in product(Status, Status)]
    assert {(each.simulated, each.real) for each in told if each.contradicts} == {
        (Status.PASS, Status.FAIL), (Status.FAIL, Status.PASS),
    }  # fmt: skip
    assert not Difference("a", "b", Status.PASS, None).contradicts
    assert not Difference("a", "b", Status.PASS, Status.FAIL, "it has to").contradicts


def test_it_is_drawn_and_kept(found):
    console = Console(file=io.StringIO(), width=200)
    matrix.draw(found, console)
    text = console.file.getvalue()
    assert "simulation and nats: 10 of 11 verdicts are the same" in text
    assert "mutants/early_ack no_message_is_lost: fail in the simulation, pass on kafka" in text
    table = json.loads(json.dumps(matrix.as_table(found)))
    assert [each["compared"] for each in table["agreement"]] == [11, 11]


def test_without_a_simulation_there_is_nothing_to_compare(tmp_path):
    found = verify(course.write(tmp_path), grade=course.grade, acquire=course.acquire)
    assert not list(agreements(found.outcomes))
