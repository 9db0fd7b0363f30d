from __future__ import annotations

import pytest

from autograder.checks.pool import backpressure_holds, concurrency_is_bounded, pool_is_used
from autograder.model import Kind, Status
from autograder.tests.checks.build import Story, names


class TestConcurrencyIsBounded:
    def judged(self, story, **options):
        return concurrency_is_bounded(story.history(**options))

    def test_as_many_as_there_are_workers(self):
        story = Story(workers=2).publish(*names(3)).begin().take(*names(3)).start("m1", "m2")
        assert self.judged(story).status is Status.PASS

    def test_one_more_is_too_many(self):
        story = Story(workers=2).publish(*names(3)).begin().take(*names(3)).start(*names(3))
        verdict = self.judged(story)
        assert verdict.status is Status.FAIL
        assert "3 handlers ran at once, 2 were allowed" in verdict.observed
        assert [event.message for event in verdict.witness] == ["m1", "m2", "m3"]

    @pytest.mark.parametrize("end", [Kind.FINISHED, Kind.FAILED, Kind.CANCELLED])
    def test_any_end_of_a_handler_frees_its_place(self, end):
        story = Story(workers=1).publish("a", "b").begin().take("a", "b").start("a")
        assert self.judged(story.say(end, "a").start("b")).status is Status.PASS

    def test_the_death_of_a_process_ends_its_handlers(self):
        story = Story(workers=1).publish("a", "b").begin().take("a").start("a").kill().begin()
        assert self.judged(story.take("b").start("b")).status is Status.PASS

    def test_without_temptation_nothing_is_proved(self):
        assert self.judged(Story(workers=2).begin()).status is Status.INCONCLUSIVE
        story = Story(workers=2).publish("a", "b").begin().take("a", "b").start("a", "b")
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_the_slip_tells_a_flood_from_one_slot_too_many(self):
        flood = Story(workers=2).begin().take(*names(9)).start(*names(9))
        assert "task created for every message" in self.judged(flood).slip
        story = Story(workers=2).begin().take(*names(4)).start("m1", "m2").fail("m1").start("m3")
        assert "given back twice" in self.judged(story.start("m4")).slip
        story = Story(workers=2).begin().take(*names(4)).start("m1", "m2").finish("m1").start("m3")
        assert "given back twice" in self.judged(story.start("m4")).slip
        story = Story(workers=2).begin().take(*names(3)).start(*names(3))
        assert "one slot too many" in self.judged(story).slip

    def test_a_violation_counts_even_if_time_ran_out(self):
        story = Story(workers=1).begin().take("a", "b").start("a", "b")
        assert self.judged(story, truncated=True).status is Status.FAIL


class TestPoolIsUsed:
    def judged(self, story):
        return pool_is_used(story.history())

    def held(self, running, workers=3):
        ids = names(running)
        story = Story(workers=workers).publish(*names(9)).begin().take(*ids).start(*ids)
        for message in ids:
            story.say(Kind.HELD, message)
        return story

    def test_all_at_work_is_a_pass(self):
        story = self.held(3).expect("met running=3 seen=3 buffered=6 in_hand=3 busy=3 held=3")
        assert self.judged(story).status is Status.PASS

    def test_one_after_the_other_is_not_a_pool(self):
        story = self.held(1).expect("stalled running=3 seen=1 buffered=8 in_hand=1 busy=1 held=1")
        verdict = self.judged(story)
        assert verdict.status is Status.FAIL
        assert "1 of 3 workers were busy" in verdict.observed
        assert "8 messages it could have begun" in verdict.observed
        assert "one runs at a time" in verdict.slip
        assert verdict.witness[-1].kind is Kind.EXPECTED

    def test_one_worker_too_few(self):
        story = self.held(2).expect("stalled running=3 seen=2 buffered=7 in_hand=2 busy=2 held=2")
        assert "use up a slot" in self.judged(story).slip

    def test_waves_stand_when_one_of_a_batch_is_released(self):
        story = self.held(3).expect("met running=3 seen=3 buffered=6 in_hand=3 busy=3 held=3")
        story.say(Kind.RELEASED, detail="m1").finish("m1").ack("m1")
        story.expect("stalled settled=1 seen=1 running=3 seen=2 buffered=6 in_hand=2 busy=2 held=2")
        verdict = self.judged(story)
        assert verdict.status is Status.FAIL
        assert "whole batch" in verdict.slip

    def test_beside_gates_any_wait_shows_idle_workers(self):
        story = self.held(1).expect("stalled settled=5 seen=0 buffered=8 in_hand=1 busy=1 held=1")
        assert self.judged(story).status is Status.FAIL

    def test_messages_in_hand_that_no_handler_has_are_work_too(self):
        story = self.held(1).take("m2").expect("stalled running=3 seen=1 in_hand=2 busy=1 held=1")
        assert self.judged(story).status is Status.FAIL

    def test_without_work_nobody_has_to_be_busy(self):
        story = self.held(2).expect("stalled running=3 seen=2 buffered=0 in_hand=2 busy=2 held=2")
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_a_probe_for_more_than_there_are_workers_accuses_nobody(self):
        story = self.held(3).expect("stalled running=4 seen=3 buffered=6 in_hand=3 busy=3 held=3")
        assert self.judged(story).status is not Status.FAIL

    def test_drained_without_ever_having_used_all(self):
        story = Story(workers=2).publish(*names(4)).begin().handle(*names(4))
        drained = "drained running=2 seen=0 buffered=0 in_hand=0 busy=0 held=0"
        assert "Never more than 1 of 2" in self.judged(story.expect(drained)).observed
        story = Story(workers=2).publish(*names(2)).begin().take("m1", "m2").start("m1", "m2")
        story.finish("m1", "m2").ack("m1", "m2").expect(drained)
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_slots_lost_to_failures_are_another_checks_matter(self):
        story = self.held(3).expect("met running=3 seen=3 buffered=6 in_hand=3 busy=3 held=3")
        story.fail("m1").requeue("m1")
        story.expect("stalled running=3 seen=2 buffered=7 in_hand=2 busy=2 held=2")
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_after_a_stop_nobody_has_to_be_busy(self):
        story = self.held(1).stop()
        story.expect("stalled running=3 seen=1 buffered=8 in_hand=1 busy=1 held=1")
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_a_slow_machine_is_no_idle_pool(self):
        story = self.held(1).expect("late running=3 seen=1 buffered=8 in_hand=1 busy=1 held=1")
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_unasked_the_sight_of_all_at_work_is_enough(self):
        assert self.judged(self.held(3)).status is Status.PASS
        assert self.judged(self.held(2)).status is Status.INCONCLUSIVE


class TestBackpressureHolds:
    def judged(self, story):
        return backpressure_holds(story.history())

    def test_up_to_the_limit(self):
        story = Story(workers=1).publish(*names(9)).begin().take(*names(4))
        assert self.judged(story).status is Status.PASS

    def test_one_above_the_limit(self):
        story = Story(workers=1).publish(*names(9)).begin().take(*names(5))
        verdict = self.judged(story)
        assert verdict.status is Status.FAIL
        assert "5 messages were in hand at once" in verdict.observed
        assert "4 are allowed" in verdict.observed
        assert verdict.witness[-1].message == "m5"

    @pytest.mark.parametrize("result", [Kind.SETTLED, Kind.SETTLE_FAILED])
    def test_in_hand_until_the_settlement_has_returned(self, result):
        def story():
            return Story(workers=1).publish(*names(9)).begin().take(*names(4)).start("m1")

        settled = story().finish("m1").call(Kind.ACK, "m1", result).take("m5")
        assert self.judged(settled).status is Status.PASS
        still = story().finish("m1").say(Kind.ACK, "m1").take("m5").say(result, "m1")
        assert self.judged(still).status is Status.FAIL

    def test_a_new_process_begins_with_empty_hands(self):
        story = Story(workers=1).publish(*names(9)).begin().take(*names(4)).kill().begin()
        assert self.judged(story.take("m5", "m6")).status is Status.PASS

    def test_what_is_taken_after_the_end_of_run_does_not_count(self):
        story = Story(workers=1).publish(*names(9)).begin().take(*names(4))
        assert self.judged(story.say(Kind.RUN_RETURNED).take("m5")).status is Status.PASS

    def test_few_messages_prove_nothing(self):
        assert self.judged(Story(workers=1).begin()).status is Status.INCONCLUSIVE
        story = Story(workers=1).publish(*names(4)).begin().take(*names(4))
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_a_backlog_that_had_to_wait_is_temptation_enough(self):
        story = Story(workers=1).publish(*names(9)).begin().take("m1")
        assert self.judged(story).status is Status.PASS
        story = Story(workers=2).publish(*names(9)).begin().take("m1")
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_the_slip_tells_a_queue_from_a_task_per_message(self):
        queue = Story(workers=1).begin().take(*names(6)).start("m1")
        assert "unbounded" in self.judged(queue).slip
        tasks = Story(workers=1).begin().take(*names(6)).start(*names(6))
        assert "every message" in self.judged(tasks).slip
