from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.checks import judge, keyed
from autograder.checks.keyed import (
    empty_key_is_handled,
    one_at_a_time_per_key,
    order_is_kept_per_key,
    order_survives_a_retry,
    shutdown_drains_in_flight,
)
from autograder.model import Kind, Status
from autograder.tests.checks.build import Story


def story(*messages: str, workers: int = 3) -> Story:
    return Story(workers).publish(*messages).begin().take(*messages)


class TestOrderIsKeptPerKey:
    def judged(self, told):
        return order_is_kept_per_key(told.history())

    def test_one_after_the_other(self):
        told = story("a:1", "b:1", "a:2").start("b:1", "a:1").finish("a:1", "b:1").ack("a:1")
        assert self.judged(told.start("a:2").finish("a:2")).status is Status.PASS

    def test_overtaken_before_it_had_begun(self):
        verdict = self.judged(story("a:1", "a:2").start("a:2").finish("a:2"))
        assert verdict.status is Status.FAIL
        assert "a:2 of a was finished" in verdict.observed
        assert "had not been begun" in verdict.observed
        assert [event.message for event in verdict.witness] == ["a:1", "a:2", "a:2", "a:2"]

    def test_overtaken_while_it_was_handled(self):
        verdict = self.judged(story("a:1", "a:2").start("a:1", "a:2").finish("a:2"))
        assert verdict.status is Status.FAIL
        assert "still being handled" in verdict.observed

    def test_the_order_of_the_takes_counts_and_not_that_of_publishing(self):
        told = Story(2).publish("a:1", "a:2").begin().take("a:2", "a:1")
        told.start("a:2").finish("a:2").start("a:1").finish("a:1")
        assert self.judged(told).status is Status.PASS

    def test_other_keys_have_nothing_to_do_with_it(self):
        told = story("a:1", "b:1").start("a:1", "b:1").finish("b:1", "a:1")
        assert self.judged(told).status is Status.INCONCLUSIVE

    def test_a_repeat_comes_too_late_to_be_overtaken(self):
        told = (
            story("a:1", "a:2").start("a:1").finish("a:1").call(Kind.ACK, "a:1", Kind.SETTLE_FAILED)
        )
        told.take("a:1").start("a:2").finish("a:2").start("a:1").finish("a:1")
        assert self.judged(told).status is Status.PASS

    def test_a_message_that_was_given_back_in_vain_is_overtaken_all_the_same(self):
        told = story("a:1", "a:2").requeue("a:1").start("a:2").finish("a:2")
        assert self.judged(told).status is Status.FAIL

    def test_what_failed_for_good_is_done(self):
        told = story("a:1", "a:2").start("a:1").fail("a:1", "permanent").give_up("a:1")
        assert self.judged(told.start("a:2").finish("a:2")).status is Status.PASS

    def test_a_new_process_begins_anew(self):
        told = story("a:1", "a:2").start("a:1").kill().begin().take("a:2", "a:1")
        told.start("a:2").finish("a:2").start("a:1").finish("a:1")
        assert self.judged(told).status is Status.PASS

    def test_what_a_broken_connection_had_delivered_may_be_dropped(self):
        told = story("a:1", "a:2", "a:3").start("a:1").fault("cut").finish("a:1")
        told.take("a:3").start("a:3").finish("a:3").take("a:2").start("a:2").finish("a:2")
        assert self.judged(told).status is Status.PASS

    @pytest.mark.parametrize("call", [Kind.ACK, Kind.GIVE_UP])
    def test_a_message_that_was_settled_unhandled_is_another_checks_matter(self, call):
        told = story("a:1", "a:2", "a:3").call(call, "a:1").start("a:2").finish("a:2")
        assert self.judged(told.start("a:3").finish("a:3")).status is Status.PASS

    def test_a_failed_one_is_the_retrys_matter_and_the_empty_key_its_own(self):
        told = story("a:1", "a:2", "a:3").start("a:1").fail("a:1").start("a:2").finish("a:2")
        assert self.judged(told.start("a:3").finish("a:3")).status is Status.PASS
        assert self.judged(story("1", "2").start("2").finish("2")).status is Status.INCONCLUSIVE


class TestOneAtATimePerKey:
    def judged(self, told):
        return one_at_a_time_per_key(told.history())

    def test_two_at_once(self):
        verdict = self.judged(story("a:1", "a:2").start("a:1", "a:2"))
        assert verdict.status is Status.FAIL
        assert "The handler was called with a:2 of a" in verdict.observed
        assert "while it ran with a:1" in verdict.observed
        assert "one queue" in verdict.slip

    def test_also_with_another_delivery_of_the_same_message(self):
        told = story("a:1").start("a:1").take("a:1").start("a:1")
        assert self.judged(told).status is Status.FAIL

    @pytest.mark.parametrize("end", [Kind.FINISHED, Kind.FAILED, Kind.CANCELLED])
    def test_any_end_makes_room(self, end):
        told = story("a:1", "a:2").start("a:1").say(end, "a:1").start("a:2")
        assert self.judged(told).status is Status.PASS

    def test_a_second_try_is_looked_at_as_well(self):
        told = story("a:1", "a:2").start("a:1").fail("a:1").start("a:2").start("a:1")
        assert self.judged(told).status is Status.FAIL

    def test_keys_and_processes_are_apart(self):
        told = story("a:1", "a:2", "b:1").start("a:1", "b:1").kill().begin().take("a:2")
        assert self.judged(told.start("a:2")).status is Status.INCONCLUSIVE

    def test_one_message_of_a_key_proves_nothing(self):
        assert self.judged(story("a:1", "b:1").start("a:1", "b:1")).status is Status.INCONCLUSIVE


class TestOrderSurvivesARetry:
    def judged(self, told, **options):
        return order_survives_a_retry(told.history(**options))

    def test_tried_again_in_its_place(self):
        told = story("a:1", "a:2").start("a:1").fail("a:1").start("a:1").finish("a:1")
        assert self.judged(told.ack("a:1").start("a:2").finish("a:2")).status is Status.PASS

    @pytest.mark.parametrize("how", ["transient", "error", "cancelled"])
    def test_the_next_one_passes_it(self, how):
        verdict = self.judged(story("a:1", "a:2").start("a:1").fail("a:1", how).start("a:2"))
        assert verdict.status is Status.FAIL
        assert "a:1 of a failed" in verdict.observed
        assert "a:2, which came after it" in verdict.observed
        assert "behind the others" in verdict.slip

    def test_given_back_to_the_broker(self):
        told = story("a:1", "a:2").start("a:1").fail("a:1").requeue("a:1").start("a:2")
        verdict = self.judged(told)
        assert verdict.status is Status.FAIL
        assert "given back to the broker" in verdict.slip

    def test_after_a_stop_nothing_of_the_key_may_go_on(self):
        def stopped():
            return story("a:1", "a:2").start("a:1").fail("a:1").stop().requeue("a:1")

        assert self.judged(stopped().requeue("a:2")).status is Status.PASS
        verdict = self.judged(stopped().start("a:2"))
        assert verdict.status is Status.FAIL
        assert "At stop the failed message goes back." in verdict.slip

    def test_what_went_back_before_the_stop_went_back_for_another_reason(self):
        told = story("a:1", "a:2").start("a:1").fail("a:1").requeue("a:1").stop().start("a:2")
        assert "given back to the broker" in self.judged(told).slip

    def test_one_that_came_before_and_ran_already_is_no_overtaking(self):
        told = story("a:1", "a:2", "a:3").start("a:1", "a:2").fail("a:2").start("a:1")
        assert self.judged(told).status is not Status.FAIL

    def test_permanent_is_no_failure_to_try_again_after(self):
        told = story("a:1", "a:2").start("a:1").fail("a:1", "permanent").give_up("a:1").start("a:2")
        assert self.judged(told).status is Status.INCONCLUSIVE

    @pytest.mark.parametrize("call", [Kind.ACK, Kind.GIVE_UP])
    def test_settling_the_failed_for_good_is_another_checks_matter(self, call):
        told = story("a:1", "a:2").start("a:1").fail("a:1").call(call, "a:1").start("a:2")
        assert self.judged(told).status is not Status.FAIL

    def test_a_broken_connection_ends_the_duty(self):
        told = story("a:1", "a:2").start("a:1").fail("a:1").fault("cut").start("a:2")
        assert self.judged(told).status is not Status.FAIL

    def test_nobody_behind_it_is_no_temptation(self):
        told = story("a:1", "b:1").start("a:1").fail("a:1").start("a:1").finish("a:1")
        assert self.judged(told).status is Status.INCONCLUSIVE

    def test_pauses_are_judged_where_time_is_exact(self):
        def tried(*pauses_s):
            told = story("a:1", "a:2").start("a:1").fail("a:1")
            for pause_s in pauses_s:
                told.wait(pause_s - 0.01).start("a:1").fail("a:1")
            return told

        right = tried(0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0)
        assert self.judged(right, engine="sim").status is Status.PASS
        for wrong in tried(0.02), tried(0.05, 0.05), tried(0.05, 0.1, 0.2, 0.4, 0.8, 0.9):
            assert self.judged(wrong, engine="nats").status is Status.PASS
            verdict = self.judged(wrong, engine="sim")
            assert verdict.status is Status.FAIL
            assert "double the pause" in verdict.slip


class TestPausesWithoutALimit:
    GROWING = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
    STALLED = "stalled settled=2 seen=0 buffered=0 in_hand=2 busy=0 held=0"

    def judged(self, told, engine="sim"):
        return order_survives_a_retry(told.history(engine=engine))

    def tried(self, *pauses_s, beside=""):
        told = story("a:1", "a:2", "b:1").start(*filter(None, [beside]), "a:1").fail("a:1")
        for pause_s in pauses_s:
            told.wait(pause_s - 0.01).start("a:1").fail("a:1")
        return told

    def test_longer_and_longer(self):
        verdict = self.judged(self.tried(*self.GROWING, 3.2))
        assert verdict.status is Status.FAIL
        assert "1.6 s after a failure, and 3.2 s after failure number 7" in verdict.observed
        assert verdict.slip == "Is the pause capped at 1 s?"

    def test_the_pool_is_seen_to_stand_meanwhile(self):
        verdict = self.judged(self.tried(*self.GROWING).wait(2).expect(self.STALLED))
        assert verdict.status is Status.FAIL
        assert "still stood" in verdict.observed

    def test_only_an_exact_clock_tells(self):
        assert self.judged(self.tried(*self.GROWING, 3.2), "nats").status is Status.PASS

    def test_a_late_timer_is_no_missing_limit(self):
        assert self.judged(self.tried(0.05, 0.1, 0.2, 0.4, 3.5)).status is Status.PASS
        assert self.judged(self.tried(*self.GROWING, 2.9)).status is Status.PASS
        assert self.judged(self.tried(0.05, 0.1, 0.2, 0.4, 0.8, 1.4, 3.2)).status is Status.PASS

    def test_one_that_is_never_tried_again_is_another_matter(self):
        told = self.tried(0.05, 0.1).wait(2).expect(self.STALLED)
        assert self.judged(told).status is not Status.FAIL

    def test_who_waits_for_another_handler_waits_rightly(self):
        told = self.tried(*self.GROWING, 3.2, beside="b:1")
        assert self.judged(told).status is not Status.FAIL

    def test_who_comes_after_something_else_waited_for_that(self):
        told = self.tried(*self.GROWING).wait(3).start("b:1").fail("b:1").wait(0.5)
        assert self.judged(told.start("a:1").fail("a:1")).status is not Status.FAIL

    def test_a_stop_ends_the_duty(self):
        told = self.tried(*self.GROWING).stop().wait(3).expect(self.STALLED)
        assert self.judged(told).status is not Status.FAIL


class TestPausesAtTheStop:
    def judged(self, told, engine="sim"):
        return shutdown_drains_in_flight(told.returned().history(engine=engine))

    def resting(self):
        return story("a:1", "a:2", "b:1").start("a:1").fail("a:1").start("a:1").fail("a:1")

    def test_one_that_hears_no_stop(self):
        told = self.resting().stop().wait(0.6).requeue("a:1", "a:2", "b:1")
        verdict = self.judged(told)
        assert verdict.status is Status.FAIL
        assert "a:1 had failed and waited for its next try" in verdict.observed
        assert verdict.slip == "Is the pause a sleep that hears no stop?"

    def test_at_once_is_what_a_look_now_and_then_makes_of_it(self):
        told = self.resting().stop().wait(0.4).requeue("a:1", "a:2", "b:1")
        assert self.judged(told).status is Status.PASS

    def test_only_an_exact_clock_tells(self):
        told = self.resting().stop().wait(0.6).requeue("a:1", "a:2", "b:1")
        assert self.judged(told, "nats").status is Status.PASS

    def test_who_waits_for_another_handler_waits_rightly(self):
        told = self.resting().start("b:1").stop().wait(0.6).finish("b:1").ack("b:1")
        assert self.judged(told.requeue("a:1", "a:2")).status is Status.PASS

    def test_who_waits_for_the_source_waits_for_the_broker(self):
        told = self.resting().stop().wait(0.6).say(Kind.SOURCE_CLOSED)
        assert self.judged(told.requeue("a:1", "a:2", "b:1")).status is Status.PASS

    def test_an_answer_that_takes_its_time_is_no_pause(self):
        told = story("a:1", "a:2", "b:1").start("a:1").fail("a:1").stop().wait(0.6)
        assert self.judged(told.requeue("a:1", "a:2", "b:1")).status is Status.PASS

    def test_a_try_that_runs_at_the_stop_is_no_pause(self):
        told = self.resting().start("a:1").stop().wait(0.6).fail("a:1")
        assert self.judged(told.requeue("a:1", "a:2", "b:1")).status is Status.PASS


class TestEmptyKeyIsHandled:
    def judged(self, told):
        return empty_key_is_handled(told.history())

    def test_in_order_and_one_at_a_time(self):
        told = story("1", "a:1", "2").start("1", "a:1").finish("1").start("2").finish("2", "a:1")
        assert self.judged(told).status is Status.PASS

    def test_two_at_once_and_in_the_wrong_order(self):
        assert self.judged(story("1", "2").start("1", "2")).status is Status.FAIL
        verdict = self.judged(story("1", "2").start("2").finish("2"))
        assert verdict.status is Status.FAIL
        assert "without a key" in verdict.observed

    def test_no_key_is_suspected_where_only_messages_without_one_meet(self):
        verdict = self.judged(story("1", "2").start("1", "2"))
        assert verdict.slip == "Is the empty key treated as no key, in an `if message.key`?"
        shared = story("1", "2", "a:1", "a:2").start("1", "2", "a:1", "a:2")
        assert "share one queue" in self.judged(shared).slip

    def test_thrown_away(self):
        verdict = self.judged(story("1", "a:1").give_up("1").handle("a:1"))
        assert verdict.status is Status.FAIL
        assert "given up though no handler" in verdict.observed

    def test_left_behind(self):
        told = story("1", "a:1").start("a:1").finish("a:1").ack("a:1")
        told.expect("stalled settled=2 seen=1 buffered=0 in_hand=1 busy=0 held=0")
        assert self.judged(told).status is Status.FAIL

    def test_the_end_of_the_pool(self):
        told = Story(2).publish("1", "a:1", "a:2").begin().take("a:1", "1")
        verdict = self.judged(told.raised("IndexError: string index out of range"))
        assert verdict.status is Status.FAIL
        assert "first character" in verdict.slip

    def test_an_end_for_another_reason_is_another_checks_matter(self):
        told = Story(2).publish("1", "a:1", "a:2").begin().take("1").start("1").take("a:1")
        assert self.judged(told.raised("ValueError")).status is Status.INCONCLUSIVE

    def test_without_any_nothing_is_proved(self):
        assert self.judged(story("a:1", "a:2").start("a:1")).status is Status.INCONCLUSIVE


OWN = [order_is_kept_per_key, one_at_a_time_per_key, order_survives_a_retry, empty_key_is_handled]
OTHERS = [getattr(keyed, name) for name in keyed.__all__ if getattr(keyed, name) not in OWN]


def right_pool(seed: int) -> Story:
    """A random history of a right pool: broken connections, retries, restarts, a stop."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, no secret
    keys = ["", "a", "b", "c"][: chance.randint(1, 4)]
    messages = [f"{chance.choice(keys)}:{n}" for n in range(chance.randint(1, 14))]
    told = Story(chance.randint(1, 4)).publish(*messages).begin()
    waiting, lines, running = list(messages), {}, []
    stopped = False
    for _ in range(chance.randint(0, 90)):
        act = chance.choice(["take", "take", "start", "start", "end", "end", "cut", "kill", "stop"])
        idle = [key for key, line in lines.items() if line and key not in running]
        if act == "take" and waiting and not stopped:
            taken = waiting.pop(chance.choice([0, 0, 0, -1]))  # a broker may bring it out of order
            told.take(taken)
            lines.setdefault(taken.rpartition(":")[0], []).append(taken)
        elif act == "start" and idle and len(running) < told.workers and not stopped:
            running.append(key := chance.choice(idle))
            told.start(lines[key][0])
        elif act == "end" and running:
            key = running.pop(chance.randrange(len(running)))
            message = lines[key][0]
            how = chance.choice(["fine", "fine", "transient", "permanent"])
            if how == "fine":
                told.finish(message).ack(message)
            elif how == "permanent":
                told.fail(message, "permanent").give_up(message)
            else:
                told.fail(message)
                continue
            lines[key].pop(0)
        elif act == "cut" and chance.random() < 0.2:
            told.fault("cut")
            for key, line in lines.items():  # what nobody has begun is dropped, and comes back
                kept = line[:1] if key in running else []
                waiting += line[len(kept) :]
                line[:] = kept
        elif act == "kill" and chance.random() < 0.2 and not stopped:
            told.kill().begin()
            waiting += [message for line in lines.values() for message in line]
            chance.shuffle(waiting)
            lines, running = {}, []
        elif act == "stop" and chance.random() < 0.1 and not stopped:
            stopped = True
            told.stop()
            for key, line in lines.items():
                back = line[1:] if key in running else line[:]
                told.requeue(*back)
                del line[len(line) - len(back) :]
    return told


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_nothing_accuses_a_right_pool(seed):
    history = right_pool(seed).history()
    accused = {
        name: verdict
        for name, verdict in judge(history, OWN).items()
        if verdict.status is Status.FAIL
    }
    assert not accused, "\n".join(map(str, history.events))
