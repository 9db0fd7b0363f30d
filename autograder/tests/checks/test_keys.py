from __future__ import annotations

import pytest

from autograder.checks.keyed import (
    keys_run_in_parallel,
    memory_is_bounded,
    same_key_same_route_across_restarts,
    slow_key_does_not_block_others,
)
from autograder.model import Kind, Status
from autograder.tests.checks.build import Story

EIGHT = 8  # workers: with fewer, a right pool may have bad luck with its lanes


def many(count: int, prefix: str = "k") -> list[str]:
    return [f"{prefix}{number}:1" for number in range(count)]


class TestKeysRunInParallel:
    def judged(self, told):
        return keys_run_in_parallel(told.history())

    def in_hand(self, count, workers=EIGHT):
        return Story(workers).publish(*many(20)).begin().take(*many(count))

    def one_by_one(self, told, count):
        for message in many(count):
            told.start(message).wait(0.01).finish(message).ack(message)
        return told

    def test_a_quarter_of_the_workers_at_once(self):
        told = self.in_hand(4, workers=16).start(*many(4))
        assert self.judged(told).status is Status.PASS

    def test_one_after_the_other_with_full_hands(self):
        verdict = self.judged(self.one_by_one(self.in_hand(10), 10))
        assert verdict.status is Status.FAIL
        assert "Never more than 1 key was at work" in verdict.observed
        assert "one lock" in verdict.slip

    def test_fewer_lanes_than_a_quarter(self):
        told = self.in_hand(18, workers=16).start(*many(3)).wait(0.01)
        told.finish(*many(3))
        verdict = self.judged(self.one_by_one(told, 18))
        assert verdict.status is Status.FAIL
        assert "first character" in verdict.slip

    def test_hands_that_are_not_full_prove_nothing(self):
        assert self.judged(self.one_by_one(self.in_hand(9), 9)).status is Status.INCONCLUSIVE

    def test_handlers_that_take_no_time_prove_nothing(self):
        told = self.in_hand(10)
        for message in many(10):
            told.start(message).wait(-0.01).finish(message)
        assert self.judged(told).status is Status.INCONCLUSIVE

    def test_few_workers_prove_nothing(self):
        told = self.one_by_one(self.in_hand(10, workers=7), 10)
        assert self.judged(told).status is Status.INCONCLUSIVE

    def test_a_pool_that_takes_no_more_than_one(self):
        told = self.in_hand(1).start("k0:1").say(Kind.HELD, "k0:1")
        told.expect("stalled taken=10 seen=1 buffered=19 in_hand=1 busy=1 held=1")
        assert self.judged(told).status is Status.FAIL

    def test_a_pool_that_took_all_there_was_may_stand(self):
        told = self.in_hand(1).start("k0:1").say(Kind.HELD, "k0:1")
        told.expect("stalled taken=10 seen=1 buffered=0 in_hand=1 busy=1 held=1")
        assert self.judged(told).status is Status.INCONCLUSIVE


class TestRoomForTwoMoreThanWorkers:
    """Eight workers, so ten in hand; `b` is what lies in the buffer beside gates that hold `k`."""

    def judged(self, told):
        return keys_run_in_parallel(told.history())

    def stood(self, count, *, workers=EIGHT, lanes=4, how="stalled", seen=None, buffered=2, held=4):
        told = Story(workers).publish(*many(20)).begin().take(*many(count))
        told.start(*many(lanes)).say(Kind.HELD, "k0:1")
        return told.expect(
            f"{how} taken=10 seen={count if seen is None else seen} buffered={buffered} "
            f"in_hand={count} busy={lanes} held={held}"
        )

    def test_as_many_as_workers(self):
        verdict = self.judged(self.stood(8))
        assert verdict.status is Status.FAIL
        assert "8 messages were in hand" in verdict.observed
        assert "2 more waited, and the pool took none" in verdict.observed
        assert "room for workers + 2 = 10" in verdict.observed
        assert "only as many messages as there are workers" in verdict.slip

    def test_other_numbers_have_other_reasons(self):
        assert "one message more than there are workers" in self.judged(self.stood(9)).slip
        assert "something else than room" in self.judged(self.stood(5)).slip

    def test_few_workers_need_room_as_well(self):
        verdict = self.judged(self.stood(3, workers=3, lanes=3, held=3))
        assert verdict.status is Status.FAIL
        assert "workers + 2 = 5" in verdict.observed

    def test_one_key_at_a_time_comes_first(self):
        told = Story(EIGHT).publish(*many(20)).begin().take(*many(8)).start("k0:1")
        told.say(Kind.HELD, "k0:1")
        told.expect("stalled taken=10 seen=8 buffered=2 in_hand=8 busy=1 held=1")
        assert "one lock" in self.judged(told).slip

    @pytest.mark.parametrize(
        "right",
        [
            {"count": 10},  # its room is full
            {"count": 8, "buffered": 0},  # there was nothing to take
            {"count": 8, "how": "late"},  # a slow machine
            {"count": 8, "seen": 10},  # it took what was waited for
            {"count": 8, "held": 3},  # a handler works
            {"count": 8, "lanes": 0, "held": 0},  # nobody was held: it stands for another reason
        ],
    )
    def test_nobody_else_is_accused(self, right):
        assert self.judged(self.stood(**right)).status is not Status.FAIL

    def test_who_was_told_to_stop_takes_nothing(self):
        told = Story(EIGHT).publish(*many(20)).begin().take(*many(8)).start(*many(4)).stop()
        told.expect("stalled taken=10 seen=8 buffered=2 in_hand=8 busy=4 held=4")
        assert self.judged(told).status is not Status.FAIL

    def test_what_failed_before_may_hold_it_up(self):
        told = Story(EIGHT).publish(*many(20)).begin().take(*many(8)).start(*many(5)).fail("k4:1")
        told.expect("stalled taken=10 seen=8 buffered=2 in_hand=8 busy=4 held=4")
        assert self.judged(told).status is not Status.FAIL


class TestSlowKey:
    def judged(self, told):
        return slow_key_does_not_block_others(told.history())

    def held(self, workers=EIGHT, slow=("slow:1", "slow:2")):
        told = Story(workers).publish(*slow).begin().take(*slow).start(slow[0])
        return told.say(Kind.HELD, slow[0]).publish(*many(16))

    def test_half_of_the_others_went_on(self):
        told = self.held().handle(*many(8))
        told.expect("met finished=8 seen=8 buffered=0 in_hand=2 busy=1 held=1")
        assert self.judged(told).status is Status.PASS

    def test_the_receiver_waits_for_the_slow_one(self):
        told = self.held().handle(*many(3)).take("k3:1")
        told.expect("stalled finished=8 seen=3 buffered=12 in_hand=3 busy=1 held=1")
        verdict = self.judged(told)
        assert verdict.status is Status.FAIL
        assert "3 of 16 other messages were finished" in verdict.observed
        assert "wait for room" in verdict.slip

    def test_half_is_enough_even_if_the_pool_stands_then(self):
        told = self.held().handle(*many(8))
        told.expect("stalled finished=9 seen=8 buffered=0 in_hand=2 busy=1 held=1")
        assert self.judged(told).status is Status.INCONCLUSIVE

    def test_a_slow_machine_accuses_nobody(self):
        told = self.held().handle(*many(3))
        told.expect("late finished=8 seen=3 buffered=12 in_hand=3 busy=1 held=1")
        assert self.judged(told).status is Status.INCONCLUSIVE

    def test_three_messages_of_it_may_fill_the_hands(self):
        told = self.held(slow=("slow:1", "slow:2", "slow:3")).handle(*many(3))
        told.expect("stalled finished=8 seen=3 buffered=12 in_hand=3 busy=1 held=1")
        assert self.judged(told).status is Status.INCONCLUSIVE

    def test_few_workers_or_few_others_prove_nothing(self):
        told = self.held(workers=7).handle(*many(3))
        told.expect("stalled finished=8 seen=3 buffered=12 in_hand=3 busy=1 held=1")
        assert self.judged(told).status is Status.INCONCLUSIVE


class TestAKeyThatRests:
    """Between two tries of `slow:1`, eight workers have sixteen other messages to do."""

    def judged(self, told, engine="sim"):
        return slow_key_does_not_block_others(told.history(engine=engine))

    def resting(self, done, *, pause_s=1.0, workers=EIGHT):
        told = (
            Story(workers).publish("slow:1").begin().take("slow:1").start("slow:1").fail("slow:1")
        )
        told.publish(*many(16)).handle(*many(done)).wait(pause_s)
        return told.start("slow:1").finish("slow:1").ack("slow:1")

    def test_half_of_the_others_went_on(self):
        assert self.judged(self.resting(8)).status is Status.PASS

    def test_everybody_rests(self):
        verdict = self.judged(self.resting(0))
        assert verdict.status is Status.FAIL
        assert "slow:1 of slow waited for its next try" in verdict.observed
        assert "0 of 16 messages of other keys" in verdict.observed
        assert "pause of one key" in verdict.slip

    def test_only_an_exact_clock_tells(self):
        assert self.judged(self.resting(0), "kafka").status is Status.INCONCLUSIVE

    def test_a_short_pause_or_few_workers_prove_nothing(self):
        assert self.judged(self.resting(0, pause_s=0.05)).status is Status.INCONCLUSIVE
        assert self.judged(self.resting(0, workers=7)).status is Status.INCONCLUSIVE

    def test_after_a_stop_nobody_has_to_go_on(self):
        told = Story(EIGHT).publish("slow:1").begin().take("slow:1").start("slow:1").fail("slow:1")
        told.publish(*many(16)).stop().wait(1).start("slow:1").finish("slow:1").ack("slow:1")
        assert self.judged(told).status is Status.INCONCLUSIVE


class TestSameRoute:
    """Two keys are held, `x` and `y` are not."""

    def judged(self, told):
        return same_key_same_route_across_restarts(told.history())

    def process(self, told, number, *begun, stalled=True):
        ids = [f"{key}:{number}" for key in ("h", "i", "x", "y")]
        told.publish(*ids).begin().take(*ids)
        for held in ids[:2]:
            told.start(held).say(Kind.HELD, held)
        for key in begun:
            told.start(f"{key}:{number}").finish(f"{key}:{number}").ack(f"{key}:{number}")
        word = "stalled" if stalled else "met"
        told.expect(f"{word} finished=2 seen={len(begun)} buffered=0 in_hand=3 busy=2 held=2")
        told.say(Kind.RELEASED, detail="everything")
        told.finish(*ids[:2]).ack(*ids[:2])
        rest = [message for message in ids[2:] if message.partition(":")[0] not in begun]
        told.start(*rest).finish(*rest).ack(*rest)
        return told.stop().returned()

    def test_the_same_key_waits_in_both(self):
        told = Story(4)
        self.process(told, 1, "y")
        assert self.judged(self.process(told, 2, "y")).status is Status.PASS

    def test_nobody_waits(self):
        told = Story(4)
        self.process(told, 1, "x", "y", stalled=False)
        assert self.judged(self.process(told, 2, "x", "y", stalled=False)).status is Status.PASS

    def test_another_key_waits(self):
        told = Story(4)
        self.process(told, 1, "y")
        verdict = self.judged(self.process(told, 2, "x"))
        assert verdict.status is Status.FAIL
        assert "waited behind h, i" in verdict.observed
        assert "hash()" in verdict.slip

    def test_who_came_before_the_held_ones_passed_nobody(self):
        told = Story(4)
        self.process(told, 1, "y")
        told.publish("y:2", "h:2", "i:2", "x:2").begin().take("y:2", "x:2", "h:2", "i:2")
        told.start("x:2").finish("x:2").ack("x:2")
        told.start("h:2").say(Kind.HELD, "h:2").start("i:2").say(Kind.HELD, "i:2")
        told.expect("stalled finished=2 seen=1 buffered=0 in_hand=3 busy=2 held=2")
        assert self.judged(told).status is not Status.FAIL

    def test_full_hands_explain_why_one_waits(self):
        told = Story(1)
        self.process(told, 1, "y")
        history = self.process(told, 2, "x").history()
        events = [
            each if each.kind is not Kind.EXPECTED else replaced(each, "in_hand=4")
            for each in history.events
        ]
        told.events = events
        assert self.judged(told).status is not Status.FAIL

    def test_one_process_proves_nothing(self):
        assert self.judged(self.process(Story(4), 1, "y")).status is Status.INCONCLUSIVE


def replaced(event, word):
    return type(event)(
        event.at, event.kind, event.message, event.key, event.delivery, event.attempt,
        event.process, event.detail.replace("in_hand=3", word),
    )  # fmt: skip


class TestMemoryIsBounded:
    def judged(self, detail, *in_hand):
        told = Story(2).publish("a:1", "b:1").begin().handle("a:1").take(*in_hand)
        return memory_is_bounded(told.say(Kind.WEIGHED, detail=detail).history())

    def test_few_of_the_keys_are_held(self):
        assert self.judged("0 of 150 keys").status is Status.PASS
        assert self.judged("75 of 150 keys").status is Status.PASS

    def test_most_of_the_keys_are_held(self):
        verdict = self.judged("76 of 150 keys")
        assert verdict.status is Status.FAIL
        assert "76 of 150 keys were still held" in verdict.observed
        assert "dictionary" in verdict.slip
        assert [event.kind for event in verdict.witness][-1] is Kind.WEIGHED

    def test_few_keys_prove_nothing(self):
        assert self.judged("99 of 99 keys").status is Status.INCONCLUSIVE

    def test_messages_in_hand_explain_their_keys(self):
        assert self.judged("150 of 150 keys", "b:1").status is Status.INCONCLUSIVE

    def test_what_cannot_be_read_proves_nothing(self):
        assert self.judged("all keys").status is Status.INCONCLUSIVE
