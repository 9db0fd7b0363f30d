from __future__ import annotations

import pytest

from autograder.checks import effects
from autograder.checks.effects import (
    ack_follows_commit,
    distinct_messages_are_not_swallowed,
    effect_happens_once,
    every_delivery_is_settled,
    failed_attempt_can_be_retried,
    same_id_other_payload_is_refused,
)
from autograder.model import Kind, Status
from autograder.tests.checks.build import Story

ALL = (
    ack_follows_commit,
    distinct_messages_are_not_swallowed,
    effect_happens_once,
    failed_attempt_can_be_retried,
    same_id_other_payload_is_refused,
    every_delivery_is_settled,
)


class Books(Story):
    """A story with a database at its end."""

    def published(self, message: str, amount: int = 1) -> Books:
        return self.say(Kind.PUBLISHED, message, f"amount {amount}").say(Kind.CONFIRMED, message)

    def look(self, *messages: str, amount: int = 1) -> Books:
        self.say(Kind.COUNTED)
        for message in messages:
            self.say(Kind.EFFECT, message, f"amount {amount}")
        return self

    def attempt(self, *messages: str) -> Books:
        return self.take(*messages).start(*messages).finish(*messages)


def begun(*messages: str) -> Books:
    story = Books()
    for message in messages:
        story.published(message)
    return story.begin()


def judged(guarantee, story):
    return guarantee(story.history())


@pytest.mark.parametrize("guarantee", ALL[:-1])
def test_without_a_look_into_the_database_nothing_is_known(guarantee):
    assert judged(guarantee, begun("a", "b").handle("a", "b")).status is Status.INCONCLUSIVE


@pytest.mark.parametrize("guarantee", ALL)
def test_a_sentence_is_one_short_line_and_the_rest_defines_it(guarantee):
    assert guarantee.sentence.endswith(".")
    assert len(guarantee.sentence) <= 67, "a report shows it in one line of 80 columns"
    assert len(guarantee.description.split()) > 30
    assert guarantee.name in vars(effects)


class TestEffectHappensOnce:
    def test_a_repetition_that_is_acked_without_work_is_right(self):
        story = begun("a", "b").handle("a", "b").take("a").ack("a").look("a", "b")
        assert judged(effect_happens_once, story).status is Status.PASS

    def test_without_a_repetition_nothing_is_known(self):
        assert judged(effect_happens_once, begun("a").handle("a").look("a")).status is (
            Status.INCONCLUSIVE
        )

    def test_twice_in_sequence(self):
        verdict = judged(effect_happens_once, begun("a").handle("a", "a").look("a", "a"))
        assert verdict.status is Status.FAIL
        assert verdict.observed == "a is booked 2 times."
        assert "What tells the second delivery" in verdict.slip
        assert [e.kind for e in verdict.witness].count(Kind.EFFECT) == 2

    def test_twice_at_the_same_time(self):
        story = begun("a").take("a").start("a").take("a").start("a").finish("a").look("a", "a")
        assert "before either has written it" in judged(effect_happens_once, story).slip

    def test_twice_by_two_consumers_at_the_same_time(self):
        story = begun("a").take("a").start("a").begin().attempt("a").ack("a").look("a", "a")
        assert "Do two consumers look" in judged(effect_happens_once, story).slip

    def test_twice_because_of_a_crash(self):
        story = begun("a", "b").attempt("a").kill().begin().attempt("a").ack("a")
        verdict = judged(effect_happens_once, story.look("a", "a", "b", "b"))
        assert "1 other more than once" in verdict.observed
        assert "in another transaction" in verdict.slip
        assert any(e.kind is Kind.FAULT for e in verdict.witness)

    def test_twice_because_a_failed_attempt_was_committed(self):
        story = begun("a").take("a").start("a").fail("a").requeue("a").handle("a").look("a", "a")
        assert "attempt that failed is committed" in judged(effect_happens_once, story).slip or (
            "of an attempt that failed committed" in judged(effect_happens_once, story).slip
        )

    def test_two_looks_at_the_same_row_are_one_row(self):
        story = begun("a").handle("a").look("a").take("a").ack("a").look()
        assert judged(effect_happens_once, story).status is Status.PASS

    def test_a_payment_that_nobody_published(self):
        verdict = judged(effect_happens_once, begun("a").handle("a").look("b"))
        assert verdict.status is Status.FAIL
        assert "nobody published: b" in verdict.observed

    def test_a_payment_that_failed_for_good(self):
        story = begun("a").take("a").start("a").fail("a", "permanent").give_up("a").look("a")
        verdict = judged(effect_happens_once, story)
        assert verdict.status is Status.FAIL
        assert verdict.observed == (
            "1 payment was booked although the handler had raised `Permanent`: a."
        )

    def test_a_payment_that_failed_for_good_and_came_right_later(self):
        story = begun("a").take("a").start("a").fail("a", "permanent").give_up("a").handle("a")
        assert judged(effect_happens_once, story.look("a")).status is Status.PASS

    def test_two_amounts_under_one_id_are_another_matter(self):
        story = begun("a").handle("a").published("a", 2).handle("a").look("a").look("a", amount=2)
        assert judged(effect_happens_once, story).status is Status.PASS


class TestFailedAttemptCanBeRetried:
    def failed_once(self):
        return begun("a", "b").take("a").start("a").fail("a")

    def test_booked_by_the_second_attempt(self):
        story = self.failed_once().requeue("a").handle("a").look("a")
        assert judged(failed_attempt_can_be_retried, story).status is Status.PASS

    def test_without_a_failure_nothing_is_known(self):
        story = begun("a").handle("a").look("a")
        assert judged(failed_attempt_can_be_retried, story).status is Status.INCONCLUSIVE

    def test_the_second_is_taken_for_a_repetition(self):
        verdict = judged(
            failed_attempt_can_be_retried, self.failed_once().requeue("a").take("a").ack("a").look()
        )
        assert verdict.status is Status.FAIL
        assert verdict.observed == "1 payment was tried in vain, then acked, and never booked: a."
        assert "before it" in verdict.slip
        assert Kind.FAILED in [e.kind for e in verdict.witness]

    def test_the_failure_itself_is_acked_or_given_up(self):
        acked = judged(failed_attempt_can_be_retried, self.failed_once().ack("a").look())
        assert "although its handler raised" in acked.slip
        given_up = judged(failed_attempt_can_be_retried, self.failed_once().give_up("a").look())
        assert "given up" in given_up.observed
        assert "permanent" in given_up.slip

    def test_permanent_failures_are_given_up_rightly(self):
        story = self.failed_once().requeue("a").take("a").start("a").fail("a", "permanent")
        assert judged(failed_attempt_can_be_retried, story.give_up("a").look()).status is (
            Status.INCONCLUSIVE
        )

    def test_an_attempt_that_died_with_its_process(self):
        story = begun("a").take("a").start("a").kill().begin().take("a").ack("a").look()
        assert judged(failed_attempt_can_be_retried, story).status is Status.FAIL
        story = begun("a").take("a").start("a").kill().begin().handle("a").look("a")
        assert judged(failed_attempt_can_be_retried, story).status is Status.PASS

    def test_what_still_waits_is_not_judged(self):
        story = self.failed_once().requeue("a").stop().returned().look()
        assert judged(failed_attempt_can_be_retried, story).status is Status.INCONCLUSIVE

    def test_what_comes_again_for_ever_is_stuck(self):
        story = self.failed_once().requeue("a").take("a").requeue("a")
        story.expect("storm settled=1 seen=0 buffered=0 in_hand=1 busy=0 held=0").look()
        verdict = judged(failed_attempt_can_be_retried, story)
        assert verdict.status is Status.FAIL
        assert "never tried again" in verdict.observed


class TestDistinctMessagesAreNotSwallowed:
    def test_each_has_its_row(self):
        story = begun("a", "b").handle("a", "b").look("a", "b")
        assert judged(distinct_messages_are_not_swallowed, story).status is Status.PASS

    def test_one_row_proves_nothing(self):
        story = begun("a", "b").handle("a").look("a")
        assert judged(distinct_messages_are_not_swallowed, story).status is Status.INCONCLUSIVE

    def test_one_is_taken_for_the_other(self):
        verdict = judged(
            distinct_messages_are_not_swallowed,
            begun("a", "b").handle("a").take("b").ack("b").look("a"),
        )
        assert verdict.status is Status.FAIL
        assert verdict.observed == "1 message of 2 acked was never booked: b."
        assert "may share" in verdict.slip

    def test_one_whose_transaction_came_to_nothing(self):
        story = begun("a", "b").handle("a", "b").look("a")
        assert "not committed" in judged(distinct_messages_are_not_swallowed, story).slip

    def test_failed_attempts_are_another_matter(self):
        story = begun("a", "b", "c").take("a").start("a").fail("a").requeue("a").take("a").ack("a")
        story.handle("b", "c").look("b", "c")
        assert judged(distinct_messages_are_not_swallowed, story).status is Status.PASS


class TestSameIdOtherPayloadIsRefused:
    def second(self):
        return begun("a").handle("a").published("a", 2).take("a")

    def test_given_up(self):
        story = self.second().give_up("a").look("a")
        assert judged(same_id_other_payload_is_refused, story).status is Status.PASS

    def test_acked_as_a_repetition(self):
        verdict = judged(same_id_other_payload_is_refused, self.second().ack("a").look("a"))
        assert verdict.status is Status.FAIL
        assert "the second one was acked" in verdict.observed

    def test_booked(self):
        story = self.second().start("a").finish("a").ack("a").look("a").look("a", amount=2)
        verdict = judged(same_id_other_payload_is_refused, story)
        assert "is booked, too" in verdict.observed
        assert verdict.witness[-1].kind is Kind.EFFECT

    def test_the_same_payload_twice_is_no_case_of_it(self):
        story = begun("a").handle("a").published("a").take("a").ack("a").look("a")
        assert judged(same_id_other_payload_is_refused, story).status is Status.INCONCLUSIVE

    def test_a_repetition_that_is_given_up(self):
        story = self.second().give_up("a").published("b").handle("b").take("b").give_up("b")
        verdict = judged(same_id_other_payload_is_refused, story.look("a", "b"))
        assert verdict.status is Status.FAIL
        assert verdict.observed == "1 message was given up that came with one payload only: b."

    def test_what_failed_for_good_is_given_up_rightly(self):
        story = self.second().give_up("a").published("b").handle("b")
        story.take("b").start("b").fail("b", "permanent").give_up("b").look("a", "b")
        assert judged(same_id_other_payload_is_refused, story).status is Status.PASS

    def test_given_back_for_ever(self):
        story = begun("a").handle("a").published("a", 2)
        for _ in range(60):
            story.take("a").requeue("a")
        assert judged(same_id_other_payload_is_refused, story.look("a")).status is (
            Status.INCONCLUSIVE
        )
        verdict = judged(
            same_id_other_payload_is_refused, story.expect("storm settled=2 seen=1").look("a")
        )
        assert verdict.status is Status.FAIL
        assert "given back 60 times and never given up" in verdict.observed
        assert "nack(requeue=False)" in verdict.slip

    def test_not_settled_yet(self):
        assert judged(same_id_other_payload_is_refused, self.second().look("a")).status is (
            Status.INCONCLUSIVE
        )


class TestEveryDeliveryIsSettled:
    def test_repetitions_are_acked(self):
        story = begun("a").handle("a").take("a").ack("a").stop().returned().look("a")
        assert judged(every_delivery_is_settled, story).status is Status.PASS

    def test_a_repetition_that_is_left(self):
        story = begun("a").handle("a").take("a").stop().returned().look("a")
        verdict = judged(every_delivery_is_settled, story)
        assert verdict.status is Status.FAIL
        assert verdict.observed == "1 of 2 deliveries was never settled: a."
        assert verdict.witness[-1].kind is Kind.RUN_RETURNED

    def test_settled_twice(self):
        story = begun("a").take("a").ack("a").say(Kind.SETTLED_TWICE, "a", "requeue")
        verdict = judged(every_delivery_is_settled, story)
        assert verdict.observed == "1 message was settled a second time: a."

    @pytest.mark.parametrize(("call", "said"), [("requeue", "given back"), ("give_up", "given up")])
    def test_a_charge_that_was_made_is_acked(self, call, said):
        story = begun("a").take("a").say(Kind.LEASE_TAKEN, "a", "60 s").start("a").finish("a")
        verdict = judged(every_delivery_is_settled, getattr(story, call)("a").stop().returned())
        assert verdict.status is Status.FAIL
        assert said in verdict.observed

    def test_what_failed_for_good_is_not_acked(self):
        story = begun("a").take("a").start("a").fail("a", "permanent").ack("a").stop().returned()
        verdict = judged(every_delivery_is_settled, story)
        assert verdict.observed == (
            "The handler of a had raised `Permanent`, and the message was then acked."
        )

    def failed_for_good(self):
        return begun("a").take("a").start("a").fail("a", "permanent")

    def test_nor_given_back(self):
        verdict = judged(every_delivery_is_settled, self.failed_for_good().requeue("a"))
        assert verdict.status is Status.FAIL
        assert verdict.observed.endswith("`Permanent`, and the message was then given back.")

    def test_unless_it_was_told_to_stop_or_something_else_went_wrong(self):
        told = begun("a").take("a").start("a").say(Kind.STOP_SET).fail("a", "permanent")
        lost = self.failed_for_good().say(Kind.COMMIT_LOST, detail="undone")
        for story in told, lost:
            verdict = judged(every_delivery_is_settled, story.requeue("a"))
            assert verdict.status is not Status.FAIL

    def booked_and_given_back(self, detail=""):
        story = begun("a").handle("a")
        for _ in range(60):
            story.take("a")
            if detail:
                story.say(Kind.RAISED, detail=detail)
            story.requeue("a")
        return story.expect("storm settled=2 seen=1").look("a")

    def test_a_repetition_that_is_given_back_for_ever(self):
        verdict = judged(every_delivery_is_settled, self.booked_and_given_back())
        assert verdict.status is Status.FAIL
        assert verdict.observed == "a is booked, and its repetition was then given back 60 times."
        own = judged(every_delivery_is_settled, self.booked_and_given_back("TransactionFailed: x"))
        assert own.observed.endswith("The last exception: TransactionFailed: x.")
        assert "line of your own" in own.slip

    def test_nothing_is_said_of_that_where_the_database_is_gone(self):
        story = self.booked_and_given_back("DatabaseGone: connection refused")
        assert judged(every_delivery_is_settled, story).status is Status.INCONCLUSIVE

    def test_what_came_between_a_charge_and_its_answer_makes_the_slip(self):
        def slip(*between):
            story = begun("a").take("a").say(Kind.LEASE_TAKEN, "a", "60 s").start("a").finish("a")
            for kind, detail in between:
                story.say(kind, "a", detail)
            return judged(every_delivery_is_settled, story.requeue("a")).slip

        assert "suppress(StoreGone)" in slip((Kind.LEASE_LOST, "release"))
        assert "what the release says" in slip((Kind.LEASE_RELEASED, "no"))
        assert "although its handler had returned" in slip((Kind.LEASE_RELEASED, ""))

    def test_a_charge_that_failed_is_not(self):
        story = begun("a").take("a").say(Kind.LEASE_TAKEN, "a", "60 s").start("a").fail("a")
        story.requeue("a").stop().returned()
        assert judged(every_delivery_is_settled, story).status is Status.PASS

    def test_what_is_given_back_is_settled(self):
        story = begun("a").take("a").requeue("a").stop().returned()
        assert judged(every_delivery_is_settled, story).status is Status.PASS

    def test_a_process_that_did_not_come_home_is_not_judged(self):
        for story in (begun("a").take("a").kill(), begun("a").take("a").raised("ValueError")):
            assert judged(every_delivery_is_settled, story).status is Status.INCONCLUSIVE


class TestAckFollowsCommit:
    def at_ack(self, story, *found):
        story.say(Kind.BREAK, detail=str(Kind.ACK)).look(*found)
        return story

    def test_booked_when_ack_is_called(self):
        story = self.at_ack(begun("a").attempt("a").say(Kind.ACK, "a"), "a").kill()
        assert judged(ack_follows_commit, story.look()).status is Status.PASS

    def test_not_booked_yet(self):
        story = self.at_ack(begun("a").attempt("a").say(Kind.ACK, "a")).kill()
        verdict = judged(ack_follows_commit, story.begin().handle("a").look("a"))
        assert verdict.status is Status.FAIL
        assert "1 message was acked" in verdict.observed
        assert "not booked: a" in verdict.observed
        assert verdict.witness[-1].kind is Kind.COUNTED

    def test_not_even_begun(self):
        story = self.at_ack(begun("a").take("a").say(Kind.ACK, "a"))
        assert judged(ack_follows_commit, story).status is Status.FAIL

    def test_an_attempt_that_died_before_is_judged_elsewhere(self):
        story = begun("a", "b").take("a").kill().begin().take("a").ack("a").handle("b").look("b")
        assert judged(ack_follows_commit, story).status is Status.PASS
        assert judged(failed_attempt_can_be_retried, story).status is Status.FAIL
        assert judged(distinct_messages_are_not_swallowed, story).status is not Status.FAIL

    def test_a_repetition_is_booked_already(self):
        story = begun("a").handle("a").look("a").take("a").say(Kind.ACK, "a")
        assert judged(ack_follows_commit, self.at_ack(story)).status is Status.PASS

    def test_messages_that_were_never_begun_were_swallowed_and_that_is_judged_elsewhere(self):
        story = begun("a", "b").handle("a").take("b").ack("b").look("a")
        assert judged(ack_follows_commit, story).status is Status.PASS

    def test_failed_attempts_are_judged_elsewhere(self):
        story = begun("a", "b").handle("a").take("b").start("b").fail("b").ack("b").look("a")
        assert judged(ack_follows_commit, story).status is Status.PASS

    def test_nothing_acked_proves_nothing(self):
        assert judged(ack_follows_commit, begun("a").attempt("a").look("a")).status is (
            Status.INCONCLUSIVE
        )
