from __future__ import annotations

import pytest

from autograder.checks.dead_letter_queue import attempts_are_exact
from autograder.model import Kind, Status
from autograder.tests.checks.letters import Letters


def judged(story, **options):
    return attempts_are_exact(story.history(**options))


def begun(attempts: int = 2) -> Letters:
    return Letters().publish("a").begin(f"run max_attempts={attempts}")


def once() -> Letters:
    """A first attempt that failed and was given back."""
    return begun().take("a").start("a").fail("a").requeue("a")


class TestRight:
    def test_up_to_the_last_attempt_and_then_a_letter(self):
        story = once().take("a").start("a").fail("a").letter("a").ack("a")
        assert judged(story).status is Status.PASS

    def test_healing_at_the_last_attempt(self):
        story = once().take("a").start("a").finish("a").ack("a")
        assert judged(story).status is Status.PASS

    def test_nothing_that_failed_transiently_proves_nothing(self):
        story = begun().take("a").start("a").fail("a", "permanent").letter("a").ack("a")
        assert judged(story).status is Status.INCONCLUSIVE

    def test_a_letter_that_failed_brings_it_back_and_the_letter_alone_is_tried_again(self):
        story = once().take("a").start("a").fail("a").letter_fails("a").requeue("a")
        story.take("a").letter("a").ack("a")
        assert judged(story).status is Status.PASS

    def test_what_is_known_to_be_hopeless_need_not_be_tried_again_for_its_letter(self):
        story = begun(3).take("a").start("a").fail("a", "permanent").letter_fails("a").requeue("a")
        story.take("a").letter("a").ack("a").publish("b").take("b").start("b").fail("b").requeue(
            "b"
        )
        assert judged(story).status is Status.PASS

    def test_giving_back_after_a_stop_at_the_last_attempt(self):
        story = once().take("a").start("a").stop().fail("a").requeue("a").returned()
        assert judged(story).status is Status.PASS

    def test_a_kill_cuts_everything_short(self):
        story = once().take("a").start("a").fail("a").kill()
        assert judged(story).status is Status.PASS

    def test_a_new_process_has_its_own_limit(self):
        story = (
            once().kill().begin("run max_attempts=3").take("a").start("a").fail("a").requeue("a")
        )
        assert judged(story).status is Status.PASS

    def test_a_body_that_is_no_json_needs_no_attempt(self):
        story = Letters().publish("g", body=b"\xff").publish("a").begin("run max_attempts=3")
        story.take("g").letter("g").ack("g").take("a").start("a").fail("a").requeue("a")
        assert judged(story).status is Status.PASS


class TestWrong:
    def test_one_attempt_too_many(self):
        story = once().take("a").start("a").fail("a").requeue("a").take("a").start("a")
        verdict = judged(story)
        assert verdict.status is Status.FAIL
        assert verdict.observed == "a was handled at attempt 3, though it had 2."
        assert "`>`" in verdict.slip

    def test_twice_in_one_delivery(self):
        verdict = judged(begun().take("a").start("a").fail("a").start("a").finish("a").ack("a"))
        assert "handled again within one delivery" in verdict.observed

    def test_a_letter_with_attempts_left(self):
        verdict = judged(begun().take("a").start("a").fail("a", "error").letter("a").ack("a"))
        assert "a failed (error) at attempt 1 of 2 and went to the dead letters" in verdict.observed
        assert "`ValueError`" in verdict.slip

    def test_letters_of_every_kind_with_attempts_left(self):
        story = begun().publish("b").take("a").start("a").fail("a", "error").letter("a").ack("a")
        verdict = judged(story.take("b").start("b").fail("b").letter("b").ack("b"))
        assert "off by one" in verdict.slip

    def test_a_letter_for_a_cancelled_error_of_the_handlers_own(self):
        verdict = judged(begun().take("a").start("a").fail("a", "cancelled").letter("a").ack("a"))
        assert "`CancelledError`" in verdict.slip

    def test_a_letter_without_a_try(self):
        verdict = judged(once().take("a").letter("a").ack("a"))
        assert "a was not even tried at attempt 2 of 2" in verdict.observed
        assert "`>=`" in verdict.slip

    def test_a_letter_for_cancelled_work(self):
        story = begun(1).take("a").start("a").fault("cancel").cancelled("a").letter("a")
        assert "CancelledError" in judged(story).observed or "cancelled" in judged(story).observed

    def test_given_back_after_the_last_attempt(self):
        verdict = judged(once().take("a").start("a").fail("a").requeue("a"))
        assert verdict.status is Status.FAIL
        assert "at attempt 2 of 2 and was given back once more" in verdict.observed
        assert "counted in your process" in verdict.slip

    @pytest.mark.parametrize("call", [Kind.ACK, Kind.GIVE_UP])
    def test_settled_with_attempts_left(self, call):
        verdict = judged(begun().take("a").start("a").fail("a").call(call, "a"))
        assert "was not given back, though it had attempts left" in verdict.observed
        assert verdict.witness

    def test_a_delay_beyond_the_second(self):
        story = (
            begun()
            .take("a")
            .start("a")
            .fail("a")
            .say(Kind.REQUEUE, "a", "2")
            .say(Kind.SETTLED, "a")
        )
        verdict = judged(story)
        assert verdict.observed == "a was given back with a delay of 2 s, and 1 s is allowed."
        story = (
            begun()
            .take("a")
            .start("a")
            .fail("a")
            .say(Kind.REQUEUE, "a", "1")
            .say(Kind.SETTLED, "a")
        )
        assert judged(story).status is Status.PASS

    def test_given_back_because_run_was_cancelled(self):
        story = begun().take("a").start("a").fault("cancel").cancelled("a").requeue("a")
        verdict = judged(story.raised("CancelledError"))
        assert verdict.status is Status.FAIL
        assert "which ended the handler of a, and the message was given back" in verdict.observed

    def test_after_a_cancel_what_had_failed_by_itself_may_be_answered_and_what_never_began(self):
        story = begun().publish("b").take("a", "b").start("a").fault("cancel").fail("a")
        assert judged(story.requeue("a", "b").raised("CancelledError")).status is Status.PASS

    def test_a_stop_gives_back_what_a_cancel_ends_afterwards(self):
        story = begun().take("a").start("a").stop().fault("cancel").cancelled("a").requeue("a")
        assert judged(story.raised("CancelledError")).status is not Status.FAIL
