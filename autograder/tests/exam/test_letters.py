"""Runs with dead letters on a real broker."""

from __future__ import annotations

import pytest

from autograder.exam import Exam
from autograder.model import GraderError
from autograder.tests.exam.letters_runs import CONSUMER, RunsWithLetters, the_call

pytestmark = pytest.mark.nats


@pytest.fixture
def exam(engine, zygote, tmp_path):
    module = tmp_path / "consumer.py"
    module.write_text(CONSUMER)
    return Exam(engine=engine, zygote=zygote, submission=module, call=the_call, seed=1, test="test")


class TestOnNats(RunsWithLetters):
    async def test_there_is_no_silence_without_a_proxy_and_no_letter_without_a_place(self, exam):
        async with exam.start(max_attempts=1) as run:
            with pytest.raises(GraderError, match="proxy=True"):
                await run.letters_down()
        async with exam.start(function="count") as run:
            with pytest.raises(GraderError, match="no dead letters"):
                await run.put_letters(exam.messages(1))
