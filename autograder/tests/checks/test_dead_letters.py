from __future__ import annotations

import pytest

from autograder.checks.dead_letter_queue import (
    dead_letter_tells_its_story,
    dead_letters_are_confirmed_first,
    healthy_messages_flow,
    no_message_is_lost,
    permanent_goes_straight_to_dlq,
    shutdown_drains_in_flight,
)
from autograder.checks.letterbook import ERRORS
from autograder.model import Kind, Status
from autograder.subject import work
from autograder.tests.checks.letters import GOOD, Letters

STOOD = "stalled finished=2 seen=1 buffered=1 in_hand=1 busy=0 held=0"


def begun(attempts: int = 1) -> Letters:
    return Letters().publish("a", "b").begin(f"run max_attempts={attempts}")


def garbage() -> Letters:
    return Letters().publish("g", body=b"\xff").publish("b").begin("run max_attempts=2")


def hopeless() -> Letters:
    return begun(3).take("a").start("a").fail("a", "permanent")


class TestPermanentGoesStraight:
    def judged(self, story, **options):
        return permanent_goes_straight_to_dlq(story.history(**options))

    def test_to_the_dead_letters_at_once(self):
        assert self.judged(hopeless().letter("a").ack("a")).status is Status.PASS
        assert self.judged(garbage().take("g").letter("g").ack("g")).status is Status.PASS

    def test_nothing_hopeless_proves_nothing(self):
        assert self.judged(begun().handle("a", "b")).status is Status.INCONCLUSIVE
        assert self.judged(hopeless().kill()).status is Status.INCONCLUSIVE

    def test_given_back_after_a_letter_that_failed_or_after_a_stop(self):
        story = hopeless().letter_fails("a").requeue("a").take("a").letter("a").ack("a")
        assert self.judged(story).status is Status.PASS
        story = begun(3).take("a").start("a").stop().fail("a", "permanent").requeue("a")
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_tried_again(self):
        verdict = self.judged(hopeless().requeue("a"))
        assert verdict.status is Status.FAIL
        assert "a failed for good (permanent) and was given back" in verdict.observed
        assert "tried again" in verdict.slip

    @pytest.mark.parametrize("call", [Kind.ACK, Kind.GIVE_UP])
    def test_settled_without_a_letter(self, call):
        verdict = self.judged(hopeless().call(call, "a"))
        assert "was settled, and no letter was written" in verdict.observed

    def test_a_body_that_is_no_json_is_not_handled_and_not_tried_again(self):
        assert "no JSON, and the handler" in self.judged(garbage().take("g").start("g")).observed
        assert "g is no JSON and was given back" in self.judged(garbage().take("g").requeue("g")).observed  # fmt: skip

    def test_a_body_that_is_no_json_ends_nothing(self):
        verdict = self.judged(garbage().take("g").raised("UnicodeDecodeError: invalid start byte"))
        assert verdict.status is Status.FAIL
        assert "run() raised UnicodeDecodeError" in verdict.observed
        assert "outside of the `try`" in verdict.slip


class TestConfirmedFirst:
    def judged(self, story, **options):
        return dead_letters_are_confirmed_first(story.history(**options))

    def failed_once(self) -> Letters:
        return begun().take("a").start("a").fail("a")

    def test_a_letter_and_then_the_ack(self):
        assert self.judged(self.failed_once().letter("a").ack("a")).status is Status.PASS
        assert self.judged(self.failed_once().letter("a").give_up("a")).status is Status.PASS

    def test_nothing_settled_for_a_letter_proves_nothing(self):
        assert self.judged(begun().handle("a", "b")).status is Status.INCONCLUSIVE
        assert self.judged(self.failed_once().letter("a").kill()).status is Status.INCONCLUSIVE

    def test_a_letter_of_an_earlier_delivery_counts(self):
        story = self.failed_once().letter("a").kill().begin().take("a").ack("a")
        assert self.judged(story).status is Status.PASS

    def test_no_letter_at_all(self):
        verdict = self.judged(self.failed_once().give_up("a"))
        assert verdict.status is Status.FAIL
        assert "no letter of it was ever written" in verdict.observed

    def test_a_letter_that_nobody_confirms(self):
        verdict = self.judged(self.failed_once().letter_unheard("a").ack("a"))
        assert "only handed to the connection" in verdict.observed
        assert "publish_nowait" in verdict.slip

    def test_a_letter_that_failed_and_one_that_is_under_way(self):
        for story in (
            self.failed_once().letter_fails("a").ack("a"),
            self.failed_once().say(Kind.DEAD_LETTER, "a").ack("a").say(Kind.DEAD_LETTERED, "a"),
        ):
            assert "its letter was not confirmed" in self.judged(story).observed

    def test_a_letter_afterwards(self):
        verdict = self.judged(self.failed_once().ack("a").letter("a"))
        assert "its letter came afterwards" in verdict.observed

    def test_given_back_after_its_letter(self):
        verdict = self.judged(self.failed_once().letter("a").requeue("a"))
        assert verdict.status is Status.FAIL
        assert "was given back all the same" in verdict.observed
        assert "acked once `publish` has returned" in verdict.slip

    def test_in_hand_after_its_letter(self):
        story = self.failed_once().letter("a")
        assert "still in hand" in self.judged(story.expect(STOOD)).observed
        held = STOOD.replace("held=0", "held=1")
        assert self.judged(self.failed_once().letter("a").expect(held)).status is not Status.FAIL

    def test_a_letter_and_no_ack_by_a_stop_a_kill_or_a_broken_connection(self):
        for story in (
            self.failed_once().letter("a").kill(),
            self.failed_once().letter("a").stop().requeue("a").returned(),
            self.failed_once().letter("a").call(Kind.ACK, "a", Kind.SETTLE_FAILED).expect(STOOD),
        ):
            assert self.judged(story).status is not Status.FAIL


def test_the_checks_know_what_handlers_raise():
    assert ERRORS["error"] == {error.__name__ for error in work.ERRORS}
    assert ERRORS["permanent"] == {work.UnknownCustomer.__name__}


class TestStory:
    def judged(self, story, **options):
        return dead_letter_tells_its_story(story.history(**options))

    def written(self) -> Letters:
        return (
            Letters()
            .publish("a", key="k", headers={"trace": "7"})
            .begin("run max_attempts=1")
            .take("a")
            .start("a")
            .fail("a")
            .letter("a")
            .ack("a")
        )

    def test_all_of_it(self):
        headers = {**GOOD, "trace": "7", "host": "three"}
        assert (
            self.judged(self.written().found("a", key="k", headers=headers)).status is Status.PASS
        )

    def test_nobody_looked_and_nothing_found(self):
        assert self.judged(self.written(), looked=False).status is Status.INCONCLUSIVE
        assert self.judged(self.written()).status is Status.INCONCLUSIVE

    def test_letters_of_the_examiners_are_not_judged(self):
        story = Letters().put("z").begin("replay limit=1").found("z", headers={})
        assert self.judged(story).status is Status.INCONCLUSIVE

    @pytest.mark.parametrize(
        ("changed", "why"),
        [
            ({"trace": ""}, "the header 'trace'"),
            ({"dead-letter-reason": "oops"}, "not the text of the exception"),
            ({"dead-letter-error": "Exception"}, "is 'Exception' instead of Transient"),
            ({"dead-letter-error": ""}, "the header 'dead-letter-error' is empty"),
            ({"dead-letter-attempts": "0"}, "is '0' instead of 1"),
            ({"dead-letter-first-failed-at": "yesterday"}, "no time of ISO 8601"),
            ({"dead-letter-first-failed-at": "2026-11-27T08:00:00"}, "in which time zone"),
            ({"dead-letter-first-failed-at": "2026-11-28T08:00:00+00:00"}, "first after it failed last"),
        ],
    )  # fmt: skip
    def test_what_is_missing_or_wrong(self, changed, why):
        story = self.written().found("a", key="k", headers={**GOOD, "trace": "7"} | changed)
        verdict = self.judged(story)
        assert verdict.status is Status.FAIL
        assert why in verdict.observed
        assert verdict.witness

    def test_a_header_that_is_not_there(self):
        headers = {**GOOD, "trace": "7"}
        del headers["dead-letter-error"]
        verdict = self.judged(self.written().found("a", key="k", headers=headers))
        assert "there is no header 'dead-letter-error'" in verdict.observed

    def test_a_reason_of_the_consumers_own_that_is_empty(self):
        story = Letters().publish("g", body=b"\xff").begin("run max_attempts=2")
        story.take("g").letter("g").ack("g")
        found = story.found("g", body=b"\xff", headers=GOOD | {"dead-letter-reason": ""})
        assert "the header 'dead-letter-reason' is empty" in self.judged(found).observed

    def test_another_body_key_or_id(self):
        headers = {**GOOD, "trace": "7"}
        other = self.written().found("a", key="k", body=b"[]", headers=headers)
        assert "the body is another one" in self.judged(other).observed
        assert "the key is ''" in self.judged(self.written().found("a", headers=headers)).observed
        assert "no message has the id 'x'" in self.judged(self.written().found("x")).observed

    def test_the_module_of_a_type_is_welcome(self):
        headers = {**GOOD, "trace": "7", "dead-letter-error": "autograder.messaging.Transient"}
        assert (
            self.judged(self.written().found("a", key="k", headers=headers)).status is Status.PASS
        )

    def test_two_failures_have_two_times(self):
        story = begun(2).take("a").start("a").fail("a").requeue("a").wait(0.1)
        story.take("a").start("a").fail("a").letter("a").ack("a")
        same = GOOD | {
            "dead-letter-attempts": "2",
            "dead-letter-first-failed-at": GOOD["dead-letter-last-failed-at"],
        }
        assert "the time of the last" in self.judged(story.found("a", headers=same)).observed

    def test_what_an_earlier_letter_told_may_be_forgotten(self):
        same = GOOD | {
            "dead-letter-attempts": "2",
            "dead-letter-first-failed-at": GOOD["dead-letter-last-failed-at"],
        }
        for first in "letter", "letter_fails":
            story = begun(3).take("a").start("a").fail("a", "transient")
            getattr(story, first)("a").call(Kind.ACK, "a", Kind.SETTLE_FAILED).wait(0.1)
            story.take("a").start("a").fail("a").letter("a").ack("a")
            assert self.judged(story.found("a", headers=same)).status is Status.PASS

    def test_after_the_last_attempt_a_new_process_need_not_know(self):
        story = begun(1).take("a").start("a").fail("a").letter_fails("a").requeue("a").kill()
        story.begin("run max_attempts=1").take("a").letter("a").ack("a")
        told = GOOD | {"dead-letter-error": "unknown", "dead-letter-reason": "came back"}
        for attempts in "1", "2":
            found = Letters()
            found.events, found.process = list(story.events), story.process
            found.found("a", headers=told | {"dead-letter-attempts": attempts})
            assert self.judged(found).status is Status.PASS

    def test_a_cancelled_error_has_no_text(self):
        story = begun(1).take("a").start("a").fail("a", "cancelled").letter("a").ack("a")
        told = GOOD | {"dead-letter-error": "CancelledError", "dead-letter-reason": ""}
        assert self.judged(story.found("a", headers=told)).status is Status.PASS


class TestHealthyMessagesFlow:
    def judged(self, story, **options):
        return healthy_messages_flow(story.history(**options))

    def test_others_are_handled_after_a_failure(self):
        story = begun(2).take("a").start("a").fail("a").requeue("a").handle("b")
        assert self.judged(story).status is Status.PASS

    def test_nothing_failed_or_nothing_came_after(self):
        assert self.judged(begun().handle("a", "b")).status is Status.INCONCLUSIVE
        story = begun().handle("b").take("a").start("a").fail("a").letter("a").ack("a")
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_standing_with_a_failed_message_in_hand(self):
        verdict = self.judged(begun(2).take("a").start("a").fail("a").expect(STOOD))
        assert verdict.status is Status.FAIL
        assert "the consumer stood" in verdict.observed
        assert "after a had failed" in verdict.observed

    def test_standing_is_no_fault_at_a_gate_or_with_nothing_healthy_left(self):
        held = STOOD.replace("held=0", "held=1")
        assert self.judged(begun(2).take("a").start("a").fail("a").expect(held)).status is Status.INCONCLUSIVE  # fmt: skip
        story = begun(2).handle("b").take("a").start("a").fail("a").expect(STOOD)
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_a_pause_with_the_message_in_hand_each_time(self):
        verdict = self.judged(self.pausing(0.06, 0.1, 0.2))
        assert verdict.status is Status.FAIL
        assert "m1 failed and was given back 0.07 s later" in verdict.observed
        assert "3 times, 0.07 s at least" in verdict.observed
        assert "instead of asking for a delay" in verdict.slip

    def test_a_machine_that_is_held_up_is_no_pause(self):
        assert self.judged(self.pausing(0.0, 0.5, 0.5, 0.5)).status is Status.PASS
        assert self.judged(self.pausing(0.5, 0.5)).status is Status.PASS

    def test_a_pause_holds_up_nobody_where_nobody_waits_or_others_are_handled(self):
        assert self.judged(self.pausing(0.1, 0.1, 0.1, waiting=False)).status is not Status.FAIL
        story = Letters().publish("a", "b", "m1", "m2", "m3").begin("run max_attempts=2")
        for name in "m1", "m2", "m3":
            story.take(name, "a").start(name).fail(name).wait(0.1).start("a").requeue(name)
            story.finish("a").ack("a")
        assert self.judged(story.handle("b")).status is Status.PASS

    def pausing(self, *pauses: float, waiting: bool = True) -> Letters:
        names = [f"m{number}" for number, _ in enumerate(pauses, 1)]
        story = Letters().publish(*names, *(["b"] if waiting else []))
        story.begin("run max_attempts=2")
        for name, pause_s in zip(names, pauses, strict=True):
            story.take(name).start(name).fail(name).wait(pause_s).requeue(name)
        return story.handle("b") if waiting else story

    def test_a_replay_that_cannot_publish_is_no_failed_message(self):
        story = Letters().put("a", "b").begin("replay limit=2").take_letter("a")
        story.say(Kind.REPUBLISH, "a").say(Kind.PUBLISH_FAILED, "a", "republish")
        assert self.judged(story.raised("PublishFailed")).status is Status.INCONCLUSIVE

    def test_a_consumer_that_ends(self):
        story = begun().take("a").start("a").fail("a", "cancelled").raised("CancelledError")
        assert "run() raised CancelledError" in self.judged(story).observed
        story = begun().take("a").start("a").fail("a").letter_fails("a").raised("PublishFailed: no")
        assert "1 healthy message was left" in self.judged(story).observed

    def test_a_stop_is_no_failure_of_its_own(self):
        story = begun(2).take("a").start("a").fail("a").requeue("a").stop().returned()
        assert self.judged(story).status is Status.INCONCLUSIVE


class TestLoss:
    """What `no_message_is_lost` says where there are dead letters."""

    def judged(self, story, **options):
        return no_message_is_lost(story.history(**options))

    def dead(self) -> Letters:
        return begun().handle("b").take("a").start("a").fail("a", "permanent")

    def test_a_letter_is_no_loss(self):
        assert self.judged(self.dead().letter("a").ack("a").found("a"), waiting=0).status is Status.PASS  # fmt: skip

    def test_giving_up_for_good_is_one(self):
        verdict = self.judged(self.dead().give_up("a"), waiting=0, unsettled=0)
        assert verdict.status is Status.FAIL

    def test_a_letter_that_never_arrived_is_one(self):
        verdict = self.judged(self.dead().letter_unheard("a").ack("a"), waiting=0, unsettled=0)
        assert verdict.status is Status.FAIL
        assert "its letter was not confirmed" in verdict.slip

    def test_a_confirmed_letter_counts_where_nobody_has_looked(self):
        assert self.judged(self.dead().letter("a").ack("a"), looked=False).status is Status.PASS

    def test_replayed_letters_wait_in_the_queue(self):
        story = Letters().put("a", "b").begin("replay limit=1").replay("a").returned()
        assert self.judged(story.queued("a").found("b"), waiting=1).status is Status.PASS

    def test_a_letter_that_is_nowhere_is_lost(self):
        story = Letters().put("a", "b").begin("replay limit=2").replay("a")
        story.take_letter("b").ack_letter("b").kill().queued("a")
        verdict = self.judged(story, waiting=1, unsettled=0)
        assert verdict.status is Status.FAIL
        assert "b" in verdict.observed
        assert "acked before its message" in verdict.slip


class TestStopWhileALetterFails:
    def judged(self, tries: int):
        story = begun(3).take("a").start("a").fail("a", "permanent").letter_fails("a").stop()
        for _ in range(tries):
            story.letter_fails("a")
        return shutdown_drains_in_flight(story.requeue("a").returned().history())

    def test_one_more_try_or_two_are_nobodys_fault(self):
        assert self.judged(1).status is Status.PASS
        assert self.judged(2).status is Status.PASS

    def test_trying_on_and_on(self):
        verdict = self.judged(3)
        assert verdict.status is Status.FAIL
        assert "The letter of a was tried 3 times after stop was set" in verdict.observed
