from __future__ import annotations

from dataclasses import replace

import pytest

from autograder.checks.pool import shutdown_drains_in_flight, stop_means_no_new_work
from autograder.model import Kind, Status
from autograder.tests.checks.build import Story

HUNG = "stalled returned=1 seen=0 buffered=0 in_hand={hand} busy={busy} held={busy}"


def at_work() -> Story:
    """Two messages, one of them in its handler's hands."""
    return Story(2).publish("a", "b").begin().take("a").start("a")


class TestStopMeansNoNewWork:
    def judged(self, story, **options):
        return stop_means_no_new_work(story.history(**options))

    def test_messages_waited_and_none_was_taken(self):
        story = at_work().stop().finish("a").ack("a").returned()
        assert self.judged(story).status is Status.PASS

    def test_taken_after_the_stop(self):
        verdict = self.judged(at_work().stop().take("b"))
        assert verdict.status is Status.FAIL
        assert "1 message was taken after stop was in force" in verdict.observed
        kinds = [event.kind for event in verdict.witness]
        assert kinds == [Kind.TAKEN, Kind.STOP_SET, Kind.STOP_IN_FORCE, Kind.TAKEN]
        assert "one more message" in verdict.slip

    def test_a_take_in_the_turn_of_the_stop_is_tolerated(self):
        story = at_work().say(Kind.STOP_SET).take("b").say(Kind.STOP_IN_FORCE)
        story.finish("a").ack("a").requeue("b").returned()
        assert self.judged(story).status is Status.PASS

    def test_starting_what_was_taken_before_is_no_new_work(self):
        story = at_work().take("b").stop().start("b").finish("a", "b").ack("a", "b").returned()
        assert self.judged(story).status is not Status.FAIL

    def test_stop_before_the_start(self):
        def begun():
            story = Story(2).publish("a")
            story.process = 1
            story.say(Kind.SPAWNED).say(Kind.STOP_SET).say(Kind.RUN_STARTED)
            return story.say(Kind.STOP_IN_FORCE)

        assert self.judged(begun().returned()).status is Status.PASS
        verdict = self.judged(begun().take("a"))
        assert verdict.status is Status.FAIL
        assert "before the first message" in verdict.slip

    def test_the_next_process_works_again(self):
        story = at_work().stop().finish("a").ack("a").returned().begin().handle("b")
        assert self.judged(story).status is Status.PASS

    def test_the_whole_backlog_is_told_apart_from_one_message_each(self):
        story = Story(1).publish(*"abcdef").begin().take("a").stop().take(*"bcdef")
        assert "backlog" in self.judged(story).slip

    def test_no_stop_proves_nothing(self):
        assert self.judged(at_work().kill()).status is Status.INCONCLUSIVE

    def test_nothing_left_to_take_proves_nothing(self):
        story = Story(1).publish("a").begin().handle("a").stop().returned()
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_what_is_given_back_tempts_again(self):
        story = Story(1).publish("a").begin().take("a").stop().requeue("a").returned()
        assert self.judged(story).status is Status.PASS

    def test_a_run_cut_off_at_the_stop_proves_nothing(self):
        assert self.judged(at_work().stop(), truncated=True).status is Status.INCONCLUSIVE


class TestShutdownDrainsInFlight:
    def judged(self, story, **options):
        return shutdown_drains_in_flight(story.history(**options))

    def test_finished_settled_and_returned(self):
        story = at_work().take("b").stop().finish("a").ack("a").requeue("b").returned()
        assert self.judged(story).status is Status.PASS

    def test_idle_and_returned(self):
        story = Story(1).publish("a").begin().handle("a").stop().returned()
        assert self.judged(story).status is Status.PASS

    def test_a_failed_settlement_is_settled(self):
        story = at_work().fault("cut").stop().finish("a").call(Kind.ACK, "a", Kind.SETTLE_FAILED)
        assert self.judged(story.returned()).status is Status.PASS

    def test_no_stop_proves_nothing(self):
        assert self.judged(at_work().kill()).status is Status.INCONCLUSIVE
        assert self.judged(at_work().returned()).status is Status.INCONCLUSIVE

    def test_a_running_handler_cancelled(self):
        verdict = self.judged(at_work().stop().cancelled("a").requeue("a").returned())
        assert verdict.status is Status.FAIL
        assert "1 running handler was cancelled after stop" in verdict.observed
        assert any(event.kind is Kind.STOP_SET for event in verdict.witness)

    def test_cancelled_and_acked_is_a_question_of_its_own(self):
        verdict = self.judged(at_work().stop().cancelled("a").ack("a").returned())
        assert "settled all the same" in verdict.slip

    @pytest.mark.parametrize("fault", ["kill", "cancel"])
    def test_a_later_fault_ends_the_duty(self, fault):
        story = at_work().stop().fault(fault).cancelled("a")
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_returned_with_a_message_in_hand(self):
        verdict = self.judged(at_work().stop().returned())
        assert verdict.status is Status.FAIL
        assert "with 1 message in hand" in verdict.observed
        assert "handlers that are running" in verdict.slip

    def test_returned_with_a_settlement_under_way(self):
        story = at_work().stop().finish("a").say(Kind.ACK, "a").returned()
        assert "settlements have returned" in self.judged(story).slip

    def test_returned_with_a_message_nobody_had_begun(self):
        story = at_work().take("b").stop().finish("a").ack("a").returned()
        assert "waited for a worker" in self.judged(story).slip

    @pytest.mark.parametrize("call", [Kind.ACK, Kind.GIVE_UP])
    def test_settled_for_good_without_being_handled(self, call):
        story = at_work().take("b").stop().call(call, "b").finish("a").ack("a").returned()
        verdict = self.judged(story)
        assert verdict.status is Status.FAIL
        assert "no handler had finished with it: b" in verdict.observed

    def test_a_permanent_failure_is_rightly_given_up(self):
        story = at_work().stop().fail("a", "permanent").give_up("a").returned()
        assert self.judged(story).status is Status.PASS

    def test_raising_is_not_returning(self):
        verdict = self.judged(at_work().stop().finish("a").ack("a").raised("CancelledError\nlong"))
        assert verdict.status is Status.FAIL
        assert "run() raised CancelledError at" in verdict.observed

    def test_hanging(self):
        story = at_work().stop().finish("a").ack("a").expect(HUNG.format(hand=0, busy=0))
        assert "wait for a message" in self.judged(story).slip
        story = at_work().take("b").stop().finish("a").ack("a").expect(HUNG.format(hand=1, busy=0))
        assert "join()" in self.judged(story).slip

    def test_while_the_examiner_holds_a_handler_nobody_has_to_return(self):
        story = at_work().say(Kind.HELD, "a").stop().expect(HUNG.format(hand=1, busy=1))
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_drained_says_nothing_unless_the_end_was_waited_for(self):
        story = at_work().stop().finish("a").ack("a").expect("drained settled=2 seen=1 busy=0")
        assert self.judged(story).status is Status.INCONCLUSIVE
        story = at_work().stop().finish("a").ack("a").expect("drained returned=1 seen=0 busy=0")
        assert self.judged(story).status is Status.FAIL

    def test_late_is_no_verdict(self):
        story = at_work().stop().expect("late returned=1 seen=0 in_hand=1 busy=1 held=0").kill()
        assert self.judged(story).status is Status.INCONCLUSIVE
        assert self.judged(at_work().stop(), truncated=True).status is Status.INCONCLUSIVE

    def test_tasks_left_behind(self):
        story = at_work().stop().finish("a").ack("a").returned("worker-1, Task-7")
        verdict = self.judged(story)
        assert verdict.status is Status.FAIL
        assert "2 tasks behind: worker-1, Task-7" in verdict.observed

    def test_the_time_in_which_the_source_closes_is_the_brokers(self):
        closing = at_work().stop().finish("a").ack("a").say(Kind.SOURCE_STOPPED).wait(30)
        closed = closing.say(Kind.SOURCE_CLOSED)
        assert self.judged(closed.returned()).status is Status.PASS
        again = at_work().stop().finish("a").ack("a").say(Kind.SOURCE_CLOSED).wait(6)
        assert self.judged(again.returned()).status is Status.FAIL

    @pytest.mark.parametrize(("idle_s", "status"), [(4.8, Status.PASS), (5.2, Status.FAIL)])
    def test_prompt_is_measured_generously(self, idle_s, status):
        story = at_work().stop().finish("a").ack("a").wait(idle_s).returned()
        assert self.judged(story).status is status

    @pytest.mark.parametrize(("idle_s", "status"), [(1.4, Status.PASS), (1.6, Status.FAIL)])
    def test_where_time_is_virtual_prompt_is_what_the_contract_says(self, idle_s, status):
        story = at_work().stop().finish("a").ack("a").wait(idle_s).returned()
        assert shutdown_drains_in_flight(replace(story.history(), engine="sim")).status is status

    @pytest.mark.parametrize(("delay", "status"), [("1", Status.PASS), ("3600", Status.FAIL)])
    def test_put_off_for_a_second_at_most(self, delay, status):
        story = at_work().take("b").stop().finish("a").ack("a").say(Kind.REQUEUE, "b", delay)
        verdict = self.judged(story.say(Kind.SETTLED, "b").returned())
        assert verdict.status is status
        if status is Status.FAIL:
            assert "with a delay of 3600 s" in verdict.observed

    def test_a_slow_handler_is_no_slow_shutdown(self):
        story = at_work().stop().wait(9).finish("a").ack("a").returned()
        assert self.judged(story).status is Status.PASS

    def test_frozen_by_the_examiner_nobody_is_slow(self):
        story = at_work().stop().finish("a").ack("a").fault("pause").wait(9).fault("resume")
        assert self.judged(story.returned()).status is Status.PASS

    def test_the_process_has_to_live_until_run_returns(self):
        story = at_work().stop().finish("a").ack("a")
        assert "before run() had returned" in self.judged(story.say(Kind.EXITED)).observed
        story = at_work().fault("terminate").say(Kind.EXITED, detail="signal SIGTERM")
        assert "died by signal SIGTERM" in self.judged(story).observed

    def test_killed_by_the_examiner_it_need_not(self):
        story = at_work().stop().say(Kind.EXITED, detail="signal SIGKILL")
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_each_process_has_its_own_stop(self):
        story = at_work().stop().finish("a").ack("a").returned().begin().take("b").start("b")
        assert self.judged(story.stop().returned()).status is Status.FAIL


class TestCancellingRun:
    def judged(self, story, engine=""):
        return shutdown_drains_in_flight(replace(story.history(), engine=engine))

    def test_it_ends_and_leaves_nothing(self):
        story = at_work().fault("cancel").cancelled("a").raised("CancelledError (pool.py line 3)")
        assert self.judged(story).status is Status.PASS

    def test_it_goes_on(self):
        story = at_work().fault("cancel").cancelled("a").take("b").start("b").say(Kind.HELD, "b")
        verdict = self.judged(story.expect(HUNG.format(hand=2, busy=1)))
        assert verdict.status is Status.FAIL
        assert "had not ended" in verdict.observed
        assert "CancelledError" in verdict.slip

    def test_it_leaves_a_task(self):
        story = at_work().fault("cancel").cancelled("a")
        story.raised("CancelledError (pool.py line 3); left behind: worker-1\nTraceback")
        assert "1 task behind: worker-1" in self.judged(story).observed

    @pytest.mark.parametrize("how", ["CancelledError", "CancelledError: enough (pool.py line 3)"])
    def test_what_comes_out_is_the_cancelled_error(self, how):
        story = at_work().fault("cancel").cancelled("a").raised(f"{how}\nTraceback")
        assert self.judged(story).status is Status.PASS

    @pytest.mark.parametrize("how", ["RuntimeError: was cancelled", "BaseExceptionGroup: (2)"])
    def test_another_exception_comes_out(self, how):
        story = at_work().fault("cancel").cancelled("a").raised(f"{how} (pool.py line 3)\nlong")
        verdict = self.judged(story)
        assert verdict.status is Status.FAIL
        assert f"raised {how.partition(':')[0]}: CancelledError has to come out" in verdict.observed

    def test_cancelled_while_it_stops_it_does_not_return(self):
        story = at_work().say(Kind.HELD, "a").stop().fault("cancel").cancelled("a").returned()
        assert "as if it had not been" in self.judged(story).observed

    def test_it_takes_its_time(self):
        def ended(seconds):
            return at_work().fault("cancel").cancelled("a").wait(seconds).raised("CancelledError")

        assert self.judged(ended(4.8)).status is Status.PASS
        assert self.judged(ended(1.4), engine="sim").status is Status.PASS
        assert self.judged(ended(1.8), engine="sim").status is Status.FAIL
        verdict = self.judged(ended(5.2))
        assert "ended 5.2 s after the last thing that happened" in verdict.observed

    def test_while_the_source_closes_the_broker_is_waited_for(self):
        story = at_work().fault("cancel").cancelled("a").say(Kind.SOURCE_STOPPED).wait(9)
        story.say(Kind.SOURCE_CLOSED).raised("CancelledError")
        assert self.judged(story).status is Status.PASS


class TestASourceThatEnds:
    """Nobody set `stop`, and there is nothing to take any more."""

    def judged(self, story, **options):
        return shutdown_drains_in_flight(story.history(**options))

    def ended(self) -> Story:
        story = Story(2).publish("a").begin().take("a").start("a").finish("a").ack("a")
        return story.say(Kind.FAULT, detail="end of the source")

    def test_run_comes_back(self):
        assert self.judged(self.ended().returned()).status is Status.PASS

    def test_run_goes_on_waiting(self):
        story = self.ended().say(Kind.EXPECTED, detail=HUNG.format(hand=0, busy=0))
        verdict = self.judged(story)
        assert verdict.status is Status.FAIL
        assert "The source came to its end" in verdict.observed
        assert "wait" in verdict.slip
        assert Kind.FAULT in [event.kind for event in verdict.witness]

    def test_run_raises(self):
        story = self.ended().say(Kind.RUN_RAISED, detail="StopAsyncIteration (pool.py line 3)")
        verdict = self.judged(story)
        assert verdict.status is Status.FAIL
        assert "StopAsyncIteration" in verdict.observed

    def test_killed_before_it_could(self):
        story = self.ended().say(Kind.FAULT, detail="kill")
        assert self.judged(story).status is Status.INCONCLUSIVE

    def test_a_stop_after_the_end_has_its_own_duty(self):
        story = self.ended().stop().say(Kind.EXPECTED, detail=HUNG.format(hand=0, busy=0))
        assert "stop was set" in self.judged(story).observed


class TestTriesAfterTheStop:
    def judged(self, story):
        return shutdown_drains_in_flight(story.history())

    def test_a_failed_one_is_not_begun_again(self):
        verdict = self.judged(at_work().fail("a").stop().start("a").finish("a").ack("a").returned())
        assert verdict.status is Status.FAIL
        assert "a had failed and was tried again" in verdict.observed
        assert "pause between two tries" in verdict.slip

    def test_a_try_that_began_before_may_end(self):
        story = at_work().fail("a").start("a").stop().finish("a").ack("a").returned()
        assert self.judged(story).status is Status.PASS

    def test_a_first_try_of_what_was_taken_is_no_repeat(self):
        story = at_work().fail("a").take("b").stop().requeue("a").start("b").finish("b").ack("b")
        assert self.judged(story.returned()).status is Status.PASS
