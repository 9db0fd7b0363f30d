from __future__ import annotations

from dataclasses import replace

import pytest

from autograder.checks.phrases import failure
from autograder.checks.pool import ack_follows_work, failed_work_is_not_acked
from autograder.model import Kind, Status
from autograder.tests.checks.build import Story

STOOD = "stalled settled=9 seen=0 buffered=0 in_hand=1 busy=0 held=0"


def taken() -> Story:
    return Story().publish("a", "b").begin().take("a")


class TestAckFollowsWork:
    def judged(self, story, **options):
        return ack_follows_work(story.history(**options))

    def test_after_the_handler_is_right(self):
        assert self.judged(Story().begin().handle("a", "b")).status is Status.PASS

    def test_nothing_acked_proves_nothing(self):
        story = taken().start("a").fail("a").requeue("a")
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_before_the_handler_began(self):
        verdict = self.judged(taken().ack("a").start("a").finish("a"))
        assert verdict.status is Status.FAIL
        assert verdict.observed == "1 of 1 ack came before the handler had begun: a."
        assert "when the message is taken" in verdict.slip
        assert [e.kind for e in verdict.witness][:2] == [Kind.TAKEN, Kind.ACK]

    def test_while_the_handler_runs(self):
        verdict = self.judged(taken().start("a").ack("a").finish("a"))
        assert "while the handler was running" in verdict.observed
        assert "without waiting" in verdict.slip

    def test_an_earlier_delivery_that_finished_excuses_nothing(self):
        story = taken().start("a").finish("a").kill().begin().take("a").ack("a")
        assert self.judged(story).status is Status.FAIL

    def test_the_call_is_the_mistake_even_if_it_came_to_nothing(self):
        story = taken().call(Kind.ACK, "a", Kind.SETTLE_FAILED)
        assert self.judged(story).status is Status.FAIL

    def test_two_events_of_the_same_moment_are_told_apart_by_their_order(self):
        history = taken().start("a").finish("a").ack("a").history()
        same = replace(history, events=tuple(replace(e, at=1.0) for e in history.events))
        assert ack_follows_work(same).status is Status.PASS

    def test_after_a_failure_or_a_cancelled_run_it_is_the_other_checks_matter(self):
        assert self.judged(taken().start("a").fail("a").ack("a")).status is Status.INCONCLUSIVE
        story = taken().start("a").fault("cancel").ack("a")
        assert self.judged(story).status is Status.INCONCLUSIVE

    @pytest.mark.parametrize(("call", "said"), [(Kind.REQUEUE, "back"), (Kind.GIVE_UP, "up")])
    def test_done_work_is_acked_and_nothing_else(self, call, said):
        verdict = self.judged(taken().start("a").finish("a").call(call, "a").handle("b"))
        assert verdict.status is Status.FAIL
        assert (
            verdict.observed == f"1 message was given {said} though its handler had finished it: a."
        )
        assert "choose nack()" in verdict.slip

    def test_done_at_a_second_try_it_is_done(self):
        story = taken().start("a").fail("a").start("a").finish("a").requeue("a").handle("b")
        assert self.judged(story).status is Status.FAIL

    @pytest.mark.parametrize("call", [Kind.REQUEUE, Kind.GIVE_UP])
    def test_nothing_is_said_while_the_handler_runs(self, call):
        verdict = self.judged(taken().start("a").stop().call(call, "a").finish("a").returned())
        assert verdict.status is Status.FAIL
        assert "while its handler was running: a" in verdict.observed
        assert "timeout" in verdict.slip

    def test_what_nobody_has_begun_is_given_back_never_up(self):
        story = Story().publish("a", "b").begin().handle("b").take("a")
        assert self.judged(story.requeue("a")).status is Status.PASS
        story = Story().publish("a", "b").begin().handle("b").take("a")
        verdict = self.judged(story.give_up("a"))
        assert verdict.status is Status.FAIL
        assert "given up though no handler had begun with it: a" in verdict.observed
        assert "seen before" in verdict.slip

    @pytest.mark.parametrize("how", ["transient", "error", "cancelled", "permanent"])
    def test_how_a_failure_is_answered_is_the_other_checks_matter(self, how):
        for call in Kind.REQUEUE, Kind.GIVE_UP:
            story = Story().begin().handle("b").take("a").start("a").fail("a", how)
            assert self.judged(story.call(call, "a")).status is Status.PASS
        story = Story().begin().handle("b").take("a").start("a").cancelled("a").requeue("a")
        assert self.judged(story).status is Status.PASS

    def test_what_a_cancelled_run_says_is_the_other_checks_matter(self):
        story = Story().begin().handle("b").take("a").start("a").fault("cancel").requeue("a")
        assert self.judged(story).status is Status.PASS

    def test_a_truncated_run_may_pass_on_what_it_showed(self):
        assert self.judged(Story().begin().handle("a"), truncated=True).status is Status.PASS


class TestFailedWorkIsNotAcked:
    def judged(self, story, **options):
        return failed_work_is_not_acked(story.history(**options))

    @pytest.mark.parametrize("how", ["transient", "error", "cancelled"])
    def test_back_to_the_broker_if_it_may_work_later(self, how):
        story = taken().start("a").fail("a", how)
        assert self.judged(story.requeue("a")).status is Status.PASS

    @pytest.mark.parametrize("how", ["transient", "error", "cancelled"])
    @pytest.mark.parametrize("call", [Kind.ACK, Kind.GIVE_UP])
    def test_never_settled_for_good(self, how, call):
        verdict = self.judged(taken().start("a").fail("a", how).call(call, "a"))
        assert verdict.status is Status.FAIL
        assert f"({failure(how)})" in verdict.observed
        assert verdict.slip

    @pytest.mark.parametrize(("delay", "status"), [("1", Status.PASS), ("1.1", Status.FAIL)])
    def test_put_off_for_a_second_at_most(self, delay, status):
        story = taken().start("a").fail("a").say(Kind.REQUEUE, "a", delay).say(Kind.SETTLED, "a")
        verdict = self.judged(story)
        assert verdict.status is status
        if status is Status.FAIL:
            assert "a was given back with a delay of 1.1 s, and 1 s is allowed" in verdict.observed
            assert "upper limit" in verdict.slip

    def test_given_up_if_it_never_will(self):
        story = taken().start("a").fail("a", "permanent")
        assert self.judged(story.give_up("a")).status is Status.PASS

    @pytest.mark.parametrize("call", [Kind.ACK, Kind.REQUEUE])
    def test_a_permanent_failure_is_neither_acked_nor_tried_again(self, call):
        story = taken().start("a").fail("a", "permanent").call(call, "a")
        assert self.judged(story).status is Status.FAIL

    def test_at_a_stop_even_a_permanent_failure_may_be_given_back(self):
        story = taken().start("a").stop().fail("a", "permanent").requeue("a").returned()
        assert self.judged(story).status is Status.PASS

    def test_a_settlement_that_fails_was_tried(self):
        story = taken().start("a").fail("a").call(Kind.REQUEUE, "a", Kind.SETTLE_FAILED)
        assert self.judged(story.returned()).status is Status.PASS

    def test_trying_again_in_place_is_no_ack_of_failed_work(self):
        story = taken().start("a").fail("a").start("a").finish("a").ack("a")
        assert self.judged(story).status is Status.PASS

    def test_no_failure_proves_nothing(self):
        assert self.judged(Story().begin().handle("a")).status is Status.INCONCLUSIVE

    def test_settled_twice(self):
        story = taken().start("a").fail("a").requeue("a").say(Kind.SETTLED_TWICE, "a", "ack")
        verdict = self.judged(story)
        assert verdict.status is Status.FAIL
        assert "second time" in verdict.observed
        assert "`except` and `finally`" in verdict.slip

    def test_settled_again_after_the_ack_was_refused(self):
        story = taken().start("a").finish("a").call(Kind.ACK, "a", Kind.SETTLE_FAILED)
        verdict = self.judged(story.say(Kind.SETTLED_TWICE, "a", "requeue"))
        assert verdict.status is Status.FAIL
        assert "SettleFailed" in verdict.slip

    def test_an_early_ack_is_the_other_checks_matter(self):
        story = taken().ack("a").start("a").fail("a").expect(STOOD)
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_left_unsettled_by_a_pool_that_stands_or_has_returned(self):
        stood = self.judged(taken().start("a").fail("a").expect(STOOD))
        assert stood.status is Status.FAIL
        assert "neither given back nor given up" in stood.observed
        assert self.judged(taken().start("a").fail("a").stop().returned()).status is Status.FAIL

    def test_left_unsettled_beside_a_gate_may_only_be_waiting(self):
        story = taken().start("a").fail("a").take("b").start("b").say(Kind.HELD, "b")
        story.expect("stalled settled=1 seen=0 buffered=0 in_hand=2 busy=1 held=1")
        assert self.judged(story).status is Status.INCONCLUSIVE

    @pytest.mark.parametrize("end", ["kill", "cancel", "raise", "truncated"])
    def test_left_unsettled_by_what_ended_is_no_mistake(self, end):
        story = taken().start("a").fail("a")
        if end == "kill":
            story.kill()
        elif end == "cancel":
            story.fault("cancel").raised("CancelledError")
        elif end == "raise":
            story.raised("ExceptionGroup")
        verdict = self.judged(story, truncated=end == "truncated")
        assert verdict.status is Status.INCONCLUSIVE

    def test_a_cancelled_run_settles_nothing(self):
        story = taken().start("a").fault("cancel").cancelled("a")
        assert self.judged(story.raised("CancelledError")).status is Status.PASS

    @pytest.mark.parametrize("call", [Kind.ACK, Kind.GIVE_UP, Kind.REQUEUE])
    @pytest.mark.parametrize("state", ["taken", "running", "cancelled"])
    def test_a_cancelled_run_that_settles_is_wrong(self, call, state):
        story = taken()
        if state != "taken":
            story.start("a")
        story.fault("cancel")
        if state == "cancelled":
            story.cancelled("a")
        verdict = self.judged(story.call(call, "a").raised("CancelledError"))
        assert verdict.status is Status.FAIL
        assert "run() was cancelled" in verdict.observed
        assert any(event.kind is Kind.FAULT for event in verdict.witness)

    def test_what_was_finished_or_failed_by_itself_may_still_be_settled_after_a_cancel(self):
        story = taken().start("a").finish("a").take("b").start("b").fail("b").fault("cancel")
        assert self.judged(story.ack("a").requeue("b").raised("x")).status is Status.PASS

    def test_what_waits_for_its_next_try_is_not_given_back_after_a_cancel(self):
        def told(seconds, call=Kind.REQUEUE, how="transient"):
            story = taken().start("a").fail("a").start("a").fail("a", how).wait(seconds)
            story.fault("cancel")
            return story.call(call, "a").raised("CancelledError")

        verdict = failed_work_is_not_acked(told(0.1).history(engine="sim"))
        assert verdict.status is Status.FAIL
        assert "pause between two tries" in verdict.slip
        for right in told(0.0), told(0.1, Kind.GIVE_UP, "permanent"):
            assert failed_work_is_not_acked(right.history(engine="sim")).status is Status.PASS
        assert failed_work_is_not_acked(told(0.1).history(engine="nats")).status is Status.PASS

    def test_a_stop_before_the_cancel_gives_back(self):
        story = taken().stop().fault("cancel").requeue("a").raised("CancelledError")
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_a_handler_cancelled_by_the_pool_itself_is_given_back(self):
        story = taken().start("a").cancelled("a")
        assert self.judged(story.requeue("a")).status is Status.PASS
        story = taken().start("a").cancelled("a")
        assert self.judged(story.ack("a")).status is Status.FAIL

    def test_the_same_delivery_tried_without_end(self):
        story = taken()
        for _ in range(60):
            story.start("a").fail("a", "permanent")
        verdict = self.judged(story.expect("storm settled=1 seen=0"))
        assert verdict.status is Status.FAIL
        assert "a failed 60 times in one delivery" in verdict.observed
        assert "loop of yours" in verdict.slip

    def test_many_deliveries_of_one_message_are_no_endless_try(self):
        story = Story().publish("a").begin()
        for _ in range(60):
            story.take("a").start("a").fail("a").requeue("a")
        assert self.judged(story.expect("storm settled=1 seen=0")).status is Status.PASS
