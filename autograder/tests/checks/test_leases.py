from __future__ import annotations

import pytest

from autograder.checks import leases
from autograder.checks.leases import (
    held_leases_get_a_pause,
    leases_are_released,
    leases_expire,
    one_holder_at_a_time,
    only_the_owner_releases,
)
from autograder.model import FOR_EVER, Event, Holder, Kind, Status
from autograder.tests.checks.build import Story

ALL = (
    one_holder_at_a_time,
    only_the_owner_releases,
    leases_expire,
    leases_are_released,
    held_leases_get_a_pause,
)
MINE = Holder(1, 60.0)


class Charges(Story):
    """A story with leases of 60 seconds."""

    def begin(self) -> Charges:
        self.process += 1
        return self.say(Kind.SPAWNED, detail="charge workers=2 ttl_s=60").say(Kind.RUN_STARTED)

    def hand(self, what: str, message: str) -> Charges:
        self.say(Kind.FAULT, message, what)
        event = self.events.pop()
        self.events.append(Event(event.at, event.kind, message, detail=what))
        return self

    def other(self, message: str) -> Charges:
        return self.hand("lease-taken", message)

    def freed(self, message: str) -> Charges:
        return self.hand("lease-freed", message)

    def over(self, message: str) -> Charges:
        return self.hand("lease-over", message)

    def lease(self, message: str, span: str = "60 s") -> Charges:
        return self.say(Kind.LEASE_TAKEN, message, span)

    def free(self, message: str) -> Charges:
        return self.say(Kind.LEASE_RELEASED, message)

    def look(self, message: str, holder: Holder) -> Charges:
        return self.say(Kind.LEASE_SEEN, message, str(holder))

    def at_work(self, message: str) -> Charges:
        return self.take(message).lease(message).start(message)

    def whole(self, message: str) -> Charges:
        return self.at_work(message).finish(message).free(message).ack(message)


def begun(*messages: str) -> Charges:
    return Charges().publish(*messages).begin()


def judged(guarantee, story):
    return guarantee(story.history())


@pytest.mark.parametrize("guarantee", ALL)
def test_a_sentence_is_one_short_line_and_the_rest_defines_it(guarantee):
    assert guarantee.sentence.endswith(".")
    assert len(guarantee.sentence) <= 67, "a report shows it in one line of 80 columns"
    assert len(guarantee.description.split()) > 30
    assert guarantee.name in vars(leases)


@pytest.mark.parametrize("guarantee", ALL)
def test_a_run_without_leases_says_nothing(guarantee):
    assert judged(guarantee, Story().publish("a").begin().handle("a")).status is Status.INCONCLUSIVE


class TestOneHolderAtATime:
    def test_work_under_a_lease(self):
        story = begun("a").at_work("a").look("a", MINE).finish("a").free("a").ack("a")
        assert judged(one_holder_at_a_time, story).status is Status.PASS

    def test_waiting_until_another_consumer_has_released_it(self):
        story = begun("a").other("a").take("a").look("a", Holder(-1)).requeue("a").freed("a")
        assert judged(one_holder_at_a_time, story.whole("a")).status is Status.PASS

    def test_never_seen_at_work_is_no_pass(self):
        story = begun("a").whole("a").look("a", Holder())
        assert judged(one_holder_at_a_time, story).status is Status.INCONCLUSIVE

    def test_two_at_the_same_time(self):
        story = begun("a").at_work("a").look("a", MINE).at_work("a")
        verdict = judged(one_holder_at_a_time, story)
        assert verdict.status is Status.FAIL
        assert "while another handler was at work with it" in verdict.observed

    def test_one_after_the_other_is_right(self):
        story = begun("a").at_work("a").look("a", MINE).finish("a").free("a").ack("a").whole("a")
        assert judged(one_holder_at_a_time, story).status is Status.PASS

    def test_a_second_one_after_the_first_lease_was_over(self):
        story = begun("a").at_work("a").look("a", MINE).over("a").at_work("a")
        assert judged(one_holder_at_a_time, story).status is Status.PASS

    def test_a_second_one_after_the_time_was_over(self):
        story = begun("a").at_work("a").look("a", MINE).wait(60).at_work("a")
        assert judged(one_holder_at_a_time, story).status is Status.PASS

    def test_a_second_one_after_the_first_was_cancelled(self):
        story = begun("a").at_work("a").look("a", MINE).cancelled("a").free("a").requeue("a")
        assert judged(one_holder_at_a_time, story.at_work("a")).status is Status.PASS

    def test_the_next_process_comes_before_the_time_is_over(self):
        story = begun("a").at_work("a").look("a", MINE).kill().begin().at_work("a")
        verdict = judged(one_holder_at_a_time, story)
        assert "in process 2, though the lease of process 1 was not over" in verdict.observed

    def test_the_next_process_comes_after_it(self):
        story = begun("a").at_work("a").look("a", MINE).kill().begin().over("a").at_work("a")
        assert judged(one_holder_at_a_time, story).status is Status.PASS

    def test_under_the_lease_of_another_consumer(self):
        story = begun("a").other("a").take("a").start("a").look("a", Holder(-1))
        verdict = judged(one_holder_at_a_time, story)
        assert "while another consumer held its lease" in verdict.observed

    def test_whoever_loses_the_lease_at_work_is_not_accused(self):
        story = begun("a").at_work("a").look("a", MINE).other("a").look("a", Holder(-1)).finish("a")
        assert judged(one_holder_at_a_time, story).status is Status.PASS

    def test_without_a_lease(self):
        story = begun("a").take("a").start("a").look("a", Holder())
        verdict = judged(one_holder_at_a_time, story)
        assert "nobody held its lease" in verdict.observed

    def test_a_take_that_was_not_heard_of_is_none(self):
        story = begun("a", "b").whole("a").take("b").start("b").finish("b").ack("b")
        verdict = judged(one_holder_at_a_time, story.look("a", Holder()).look("b", Holder()))
        assert verdict.status is Status.FAIL
        assert "began with b at" in verdict.observed
        assert "no take of its lease had come back before" in verdict.observed

    def test_a_take_of_the_process_before_is_none_either(self):
        story = begun("a").at_work("a").look("a", MINE).kill().over("a").begin().take("a")
        assert judged(one_holder_at_a_time, story.start("a")).status is Status.FAIL


class TestOnlyTheOwnerReleases:
    def lost(self):
        return begun("a").at_work("a").other("a").finish("a").free("a").ack("a")

    def test_what_is_lost_is_left_alone(self):
        story = self.lost().look("a", Holder(-1))
        assert judged(only_the_owner_releases, story).status is Status.PASS

    def test_lost_while_the_release_was_on_its_way(self):
        story = begun("a").at_work("a").finish("a").other("a").free("a").ack("a")
        assert judged(only_the_owner_releases, story.look("a", Holder(-1))).status is Status.PASS

    def test_deleted(self):
        verdict = judged(only_the_owner_releases, self.lost().look("a", Holder()))
        assert verdict.status is Status.FAIL
        assert "it was free" in verdict.observed

    def test_given_a_life_span(self):
        story = begun("a").at_work("a").other("a").look("a", Holder(-1, 19.5))
        verdict = judged(only_the_owner_releases, story)
        assert "somebody had given it a life span, of which 19.5 s were left" in verdict.observed
        assert "expire_if_equals" in verdict.slip

    @pytest.mark.parametrize(
        ("passed_s", "status"), [(29.0, Status.INCONCLUSIVE), (30.0, Status.PASS)]
    )
    def test_left_alone_by_work_that_goes_on_until_a_renewal_is_due(self, passed_s, status):
        story = begun("a").at_work("a").other("a").wait(passed_s).look("a", Holder(-1))
        assert judged(only_the_owner_releases, story).status is status

    def test_overwritten(self):
        verdict = judged(only_the_owner_releases, self.lost().look("a", MINE))
        assert "somebody had taken it over" in verdict.observed

    def test_a_lease_that_the_other_has_released_may_be_gone(self):
        story = self.lost().freed("a").look("a", Holder())
        assert judged(only_the_owner_releases, story).status is Status.INCONCLUSIVE

    def test_never_lost_is_no_pass(self):
        story = begun("a").whole("a").look("a", Holder())
        assert judged(only_the_owner_releases, story).status is Status.INCONCLUSIVE

    def test_the_same_token_for_two_takes(self):
        story = begun("a").at_work("a").look("a", MINE).over("a").at_work("a").look("a", MINE)
        assert "had the same token" in judged(only_the_owner_releases, story).observed

    def test_the_same_token_in_two_processes(self):
        story = begun("a").at_work("a").look("a", MINE).kill().over("a")
        story = story.begin().at_work("a").look("a", MINE)
        assert "had the same token" in judged(only_the_owner_releases, story).observed

    def test_the_same_token_at_two_looks_at_one_take(self):
        story = begun("a").at_work("a").look("a", MINE).look("a", MINE)
        assert judged(only_the_owner_releases, story).status is Status.INCONCLUSIVE

    def test_the_same_token_for_two_messages_of_one_process(self):
        story = begun("a", "b").at_work("a").look("a", MINE).at_work("b").look("b", MINE)
        assert judged(only_the_owner_releases, story).status is Status.INCONCLUSIVE


class TestLeasesExpire:
    @pytest.mark.parametrize("left", [60.0, 60.5, 31.0])
    def test_a_life_span_as_it_was_to_be(self, left):
        story = begun("a").at_work("a").look("a", Holder(1, left))
        assert judged(leases_expire, story).status is Status.PASS

    def test_a_slow_machine_finds_less_of_it(self):
        story = begun("a").at_work("a").wait(28).look("a", Holder(1, 32.0))
        assert judged(leases_expire, story).status is Status.PASS

    def test_without_one(self):
        verdict = judged(leases_expire, begun("a").take("a").lease("a", FOR_EVER).start("a"))
        assert verdict.status is Status.FAIL
        assert "without a life span" in verdict.observed

    def test_one_that_was_taken_away_later(self):
        verdict = judged(leases_expire, begun("a").at_work("a").look("a", Holder(1)))
        assert "for ever left" in verdict.observed

    @pytest.mark.parametrize("left", [5.0, 600.0])
    def test_another_one(self, left):
        verdict = judged(leases_expire, begun("a").at_work("a").look("a", Holder(1, left)))
        assert f"{left} s left" in verdict.observed

    def test_nothing_seen_is_no_pass(self):
        story = begun("a").whole("a").look("a", Holder())
        assert judged(leases_expire, story).status is Status.INCONCLUSIVE


class TestHeldLeasesGetAPause:
    def met(self, story):
        return story.take("a").say(Kind.LEASE_REFUSED, "a")

    def hammered(self, story):
        return story.say(Kind.LEASE_HAMMERED, "a", "10 pauses of 0.012 s in all")

    def test_asked_for_now_and_then(self):
        story = self.met(begun("a").other("a")).requeue("a").freed("a").whole("a")
        assert judged(held_leases_get_a_pause, story).status is Status.PASS

    def test_asked_for_in_a_loop(self):
        verdict = judged(held_leases_get_a_pause, self.hammered(self.met(begun("a").other("a"))))
        assert verdict.observed == (
            "The lease of a was held, and was asked for again and again, with 10 pauses of 0.012 s in all."
        )
        assert "the loop that asks again" in verdict.slip

    def test_asked_for_by_a_message_that_goes_round(self):
        story = self.hammered(self.met(begun("a").other("a")).requeue("a").take("a"))
        assert "without `delay_s`" in judged(held_leases_get_a_pause, story).slip

    def test_nothing_held_is_no_pass(self):
        story = begun("a").whole("a")
        assert judged(held_leases_get_a_pause, story).status is Status.INCONCLUSIVE


class TestLeasesAreReleased:
    def test_after_the_work(self):
        story = begun("a").whole("a").stop().returned().look("a", Holder())
        assert judged(leases_are_released, story).status is Status.PASS

    def test_kept_after_success(self):
        story = begun("a").at_work("a").finish("a").ack("a").stop().returned().look("a", MINE)
        verdict = judged(leases_are_released, story)
        assert verdict.status is Status.FAIL
        assert "had finished" in verdict.observed

    def test_kept_after_a_failure(self):
        story = begun("a").at_work("a").fail("a").requeue("a").stop().returned().look("a", MINE)
        assert "had failed (transient)" in judged(leases_are_released, story).observed

    def test_left_behind_by_an_exception(self):
        story = begun("a").at_work("a").fail("a", "ValueError").raised("ValueError").look("a", MINE)
        assert "had failed (ValueError)" in judged(leases_are_released, story).observed

    def test_released_before_the_exception(self):
        story = begun("a").at_work("a").fail("a", "ValueError").free("a").raised("ValueError")
        assert judged(leases_are_released, story.look("a", Holder())).status is Status.PASS

    def test_taken_along_by_the_exception_of_another_handler(self):
        story = begun("a", "b").at_work("b").at_work("a").fail("a", "ValueError").free("a")
        story.raised("ValueError").cancelled("b").look("b", MINE)
        assert judged(leases_are_released, story).status is Status.INCONCLUSIVE

    def test_kept_for_ever_after_a_failure(self):
        story = begun("a").at_work("a").fail("a").requeue("a").take("a").requeue("a")
        story.expect("storm settled=1 seen=0 in_hand=0 busy=0 held=0").look("a", MINE)
        assert judged(leases_are_released, story).status is Status.FAIL

    def test_held_while_the_consumer_is_at_work(self):
        story = begun("a").at_work("a").finish("a").look("a", MINE)
        assert judged(leases_are_released, story).status is Status.INCONCLUSIVE

    def test_held_by_another_consumer(self):
        story = begun("a").whole("a").other("a").stop().returned().look("a", Holder(-1))
        assert judged(leases_are_released, story).status is Status.PASS

    def test_left_behind_by_a_process_that_was_killed(self):
        story = begun("a").at_work("a").finish("a").kill().look("a", MINE)
        assert judged(leases_are_released, story).status is Status.INCONCLUSIVE

    def test_standing_behind_a_gate_is_the_tests_own_doing(self):
        story = begun("a").at_work("a").finish("a").free("a").requeue("a").at_work("a")
        story.expect("stalled running=2 seen=1 in_hand=1 busy=1 held=1").look("a", MINE)
        assert judged(leases_are_released, story).status is Status.INCONCLUSIVE


@pytest.mark.parametrize("holder", [Holder(), Holder(-1), Holder(3), Holder(12, 59.9)])
def test_a_holder_is_read_as_it_was_written(holder):
    assert Holder.read(str(holder)) == holder
