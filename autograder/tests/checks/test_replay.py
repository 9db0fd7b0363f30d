from __future__ import annotations

import pytest

from autograder.checks.dead_letter_queue import (
    replay_is_bounded,
    replay_keeps_the_message,
    replay_publishes_first,
)
from autograder.model import Kind, Status
from autograder.tests.checks.letters import GOOD, Letters


def begun(limit: int = 2) -> Letters:
    return Letters().put("a", "b", "c").begin(f"replay limit={limit}")


class TestBounded:
    def judged(self, story, **options):
        return replay_is_bounded(story.history(**options))

    def test_as_many_as_asked_for_or_as_there_are(self):
        assert self.judged(begun(2).replay("a", "b").returned()).status is Status.PASS
        assert self.judged(begun(9).replay("a", "b", "c").returned()).status is Status.PASS

    def test_nothing_replayed_or_never_ended(self):
        assert self.judged(begun(0).returned()).status is Status.INCONCLUSIVE
        assert self.judged(begun().replay("a")).status is Status.INCONCLUSIVE
        assert self.judged(begun().take_letter("a").kill()).status is Status.INCONCLUSIVE

    def test_one_too_many(self):
        verdict = self.judged(begun(2).replay("a", "b", "c").returned())
        assert verdict.status is Status.FAIL
        assert verdict.observed == "3 messages were published by a replay with limit=2."

    def test_a_letter_that_comes_back_waits_for_the_next_replay(self):
        back = begun(9).replay("a", "b").put("a")
        assert self.judged(back.replay("c").returned()).status is Status.PASS
        again = begun(9).replay("a", "b").put("a").replay("c", "a").returned()
        assert "replayed again: a" in self.judged(again).observed

    def test_the_next_replay_may_take_what_came_back(self):
        story = begun(9).replay("a", "b", "c").put("a").returned()
        story.begin("replay limit=9").replay("a").returned()
        assert self.judged(story).status is Status.PASS

    def test_two_letters_of_one_message_are_two(self):
        story = Letters().put("a", "a").begin("replay limit=9").replay("a", "a").returned()
        assert self.judged(story).status is Status.PASS

    def test_a_letter_that_nobody_confirmed_may_lie_there_as_well(self):
        story = Letters().publish("a").begin("run max_attempts=1").take("a").start("a").fail("a")
        story.letter_fails("a").requeue("a").take("a").letter("a").ack("a").stop().returned()
        story.begin("replay limit=9").replay("a", "a").returned()
        assert self.judged(story).status is Status.PASS

    def test_a_second_call_after_one_that_failed(self):
        story = begun(1).take_letter("a").say(Kind.REPUBLISH, "a")
        story.say(Kind.PUBLISH_FAILED, "a", "republish").republish("a").ack_letter("a").returned()
        assert self.judged(story).status is Status.PASS

    def test_fewer_than_asked_for(self):
        verdict = self.judged(begun(2).replay("a").returned())
        assert "returned with 1 of 2 messages published" in verdict.observed

    def test_others_than_the_oldest(self):
        verdict = self.judged(begun(2).replay("c", "b").returned())
        assert verdict.status is Status.FAIL
        assert verdict.observed.startswith("a was left among the dead letters")

    def test_which_are_the_oldest_is_in_doubt_after_a_kill_or_a_letter_given_back(self):
        story = begun(2).take_letter("a").kill().begin("replay limit=2").replay("b", "c").returned()
        assert self.judged(story).status is Status.PASS
        story = begun(2).take_letter("a").say(Kind.LETTER_BACK, "a").replay("b", "c").returned()
        assert self.judged(story).status is Status.PASS

    def test_given_back_and_taken_again_without_end(self):
        story = begun(1).replay("a")
        for _ in range(60):
            story.take_letter("b").say(Kind.LETTER_BACK, "b")
        verdict = self.judged(
            story.expect("storm returned=1 seen=0 buffered=0 in_hand=0 busy=0 held=0")
        )
        assert verdict.status is Status.FAIL
        assert "The letter of b was taken 60 times by one replay" in verdict.observed

    def test_an_exception_that_nothing_explains(self):
        verdict = self.judged(
            begun(9).replay("a", "b", "c").raised("StopAsyncIteration (a.py line 3)")
        )
        assert verdict.status is Status.FAIL
        assert (
            "raised StopAsyncIteration (a.py line 3), though nothing had failed" in verdict.observed
        )

    def test_an_exception_that_the_broker_explains(self):
        story = begun(9).take_letter("a").say(Kind.REPUBLISH, "a")
        story.say(Kind.PUBLISH_FAILED, "a", "republish").raised("PublishFailed: no")
        assert self.judged(story).status is not Status.FAIL
        story = begun(9).raised("ConnectionError: the stream does not answer")
        assert self.judged(story).status is not Status.FAIL

    def test_no_end(self):
        stood = "stalled returned=1 seen=0 buffered=0 in_hand=0 busy=0 held=0"
        verdict = self.judged(begun(2).replay("a", "b").expect(stood))
        assert "had not returned" in verdict.observed


class TestPublishesFirst:
    def judged(self, story, **options):
        return replay_publishes_first(story.history(**options))

    def test_published_then_acked(self):
        assert self.judged(begun().replay("a", "b").returned()).status is Status.PASS

    def test_nothing_taken_away(self):
        assert self.judged(begun().take_letter("a").kill()).status is Status.INCONCLUSIVE

    def test_acked_first(self):
        verdict = self.judged(begun().take_letter("a").ack_letter("a").republish("a"))
        assert verdict.status is Status.FAIL
        assert "acked first" in verdict.slip

    def test_acked_while_it_is_published(self):
        story = begun().take_letter("a").say(Kind.REPUBLISH, "a").ack_letter("a")
        assert "not awaited" in self.judged(story.say(Kind.REPUBLISHED, "a")).slip

    def test_a_failed_call_is_no_confirmation(self):
        story = begun().take_letter("a").say(Kind.REPUBLISH, "a")
        story.say(Kind.PUBLISH_FAILED, "a", "republish").ack_letter("a")
        assert self.judged(story).status is Status.FAIL

    def test_published_and_left(self):
        story = begun().take_letter("a").republish("a").returned()
        assert "left among the dead letters: a" in self.judged(story).observed

    def test_a_kill_between_the_two_is_nobodys_fault(self):
        story = begun().replay("a").take_letter("b").republish("b").kill()
        story.begin("replay limit=2").replay("b", "c").returned()
        assert self.judged(story).status is Status.PASS

    def test_a_letter_given_back_unpublished(self):
        story = begun(1).replay("a").take_letter("b").say(Kind.LETTER_BACK, "b").returned()
        assert self.judged(story).status is Status.PASS


class TestKeepsTheMessage:
    def judged(self, story, **options):
        return replay_keeps_the_message(story.history(**options))

    def replayed(self) -> Letters:
        story = Letters().put("a", key="k", headers={**GOOD, "trace": "7"})
        return story.begin("replay limit=1").replay("a").returned()

    def test_as_it_was_published(self):
        story = self.replayed().queued("a", key="k", headers={"trace": "7", "replayed": "1"})
        assert self.judged(story).status is Status.PASS

    def test_nothing_found(self):
        assert self.judged(self.replayed()).status is Status.INCONCLUSIVE

    @pytest.mark.parametrize(
        ("changed", "why"),
        [
            ({"key": ""}, "the key is ''"),
            ({"body": b"[]"}, "the body is another one"),
            ({"headers": {}}, "the header 'trace' is missing"),
            ({"headers": {"trace": "7", **GOOD}}, "it still says 'dead-letter-reason'"),
        ],
    )
    def test_what_was_changed(self, changed, why):
        told = {"key": "k", "headers": {"trace": "7"}} | changed
        verdict = self.judged(self.replayed().queued("a", **told))
        assert verdict.status is Status.FAIL
        assert why in verdict.observed

    def test_an_id_of_its_own(self):
        assert "nobody knows the id 'x'" in self.judged(self.replayed().queued("x")).observed

    def test_what_the_consumer_itself_had_given_up(self):
        story = Letters().publish("a", headers={"trace": "7"}).begin("run max_attempts=1")
        story.begin("replay limit=1").replay("a").queued("a", headers={"trace": "7"})
        assert self.judged(story).status is Status.PASS
