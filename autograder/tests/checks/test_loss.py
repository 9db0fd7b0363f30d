from __future__ import annotations

from autograder.checks.pool import no_message_is_lost
from autograder.model import BY_THE_MODULE, Kind, Status
from autograder.tests.checks.build import Story, names


def judged(story: Story, **broker):
    return no_message_is_lost(story.history(**broker))


def test_all_finished_is_a_pass():
    verdict = judged(Story().publish("a", "b").begin().handle("a", "b"))
    assert verdict.status is Status.PASS
    assert "2 confirmed messages" in verdict.observed


def test_nothing_confirmed_proves_nothing():
    story = Story().begin().say(Kind.PUBLISHED, "a")
    assert judged(story).status is Status.INCONCLUSIVE


def test_a_message_without_a_confirmation_may_vanish_or_appear():
    story = Story().say(Kind.PUBLISHED, "maybe").publish("a").begin().handle("a")
    assert judged(story, waiting=0, unsettled=0).status is Status.PASS
    assert judged(story.handle("maybe")).status is Status.PASS


def test_handled_twice_is_fine():
    assert judged(Story().publish("a").begin().handle("a").handle("a")).status is Status.PASS


def test_acked_on_receipt_and_killed_is_lost_and_the_witness_shows_both():
    story = Story().publish(*names(5)).begin().handle("m1", "m2").take("m3").ack("m3").start("m3")
    story.kill().begin().handle("m4", "m5")
    verdict = judged(story, waiting=0, unsettled=0)
    assert verdict.status is Status.FAIL
    assert "1 of 5 confirmed messages" in verdict.observed
    assert "m3" in verdict.observed
    assert verdict.slip == "Is a message acked when it is taken, before its handler has run?"
    kinds = [event.kind for event in verdict.witness]
    assert kinds[-1] is Kind.FAULT
    assert kinds.index(Kind.ACK) < kinds.index(Kind.STARTED)


def test_the_place_in_the_stream_is_named_when_it_tells_something():
    tail = Story().publish(*names(6)).begin().handle("m1", "m2", "m3").take("m4", "m5", "m6")
    assert "(the last 3)" in judged(tail.ack("m4", "m5", "m6").kill()).observed
    head = Story().publish(*names(6)).begin().take("m1", "m2").ack("m1", "m2")
    assert "(the first 2)" in judged(head.handle("m3", "m4", "m5", "m6")).observed
    middle = Story().publish(*names(6)).begin().take("m2", "m4").ack("m2", "m4")
    assert "(the" not in judged(middle.handle("m1", "m3", "m5", "m6")).observed


def test_an_ack_that_failed_loses_nothing():
    story = Story().publish("a").begin().take("a").call(Kind.ACK, "a", Kind.SETTLE_FAILED).kill()
    assert judged(story, waiting=1, unsettled=0).status is Status.PASS


def test_without_counters_an_ack_cut_off_by_the_kill_is_not_held_against_anybody():
    story = Story().publish("a", "b").begin().handle("b").take("a").say(Kind.ACK, "a").kill()
    assert judged(story).status is Status.PASS


def test_the_brokers_counters_decide_about_an_ack_cut_off_by_the_kill():
    story = Story().publish("a", "b").begin().handle("b").take("a").say(Kind.ACK, "a").kill()
    assert judged(story, waiting=1, unsettled=0).status is Status.PASS
    assert judged(story, waiting=0, unsettled=0).status is Status.FAIL


def test_acked_unfinished_but_still_the_brokers_is_not_lost_yet():
    """Kafka: the process died before the offset was committed."""
    story = Story().publish("a", "b").begin().take("a").ack("a").start("a").kill()
    assert judged(story, waiting=2, unsettled=0).status is Status.PASS
    assert judged(story, waiting=1, unsettled=0).status is Status.FAIL


def test_the_counters_tell_how_many_even_if_they_cannot_tell_which():
    story = Story().publish(*names(5)).begin().handle("m1", "m2").kill()
    verdict = judged(story, waiting=2, unsettled=0)
    assert verdict.observed.startswith("1 of 5 confirmed messages was never finished")
    assert "out of these: m3, m4, m5" in verdict.observed


def test_kafka_counts_only_what_is_not_committed():
    story = Story().publish("a", "b").begin().take("a").ack("a").start("a").kill()
    assert judged(story, waiting=2).status is Status.PASS
    assert judged(story, waiting=1).status is Status.FAIL


def test_finished_and_not_acked_may_be_left_over_beside_a_loss():
    story = Story().publish("a", "b", "c").begin().handle("b").take("a").ack("a")
    story.take("c").start("c").finish("c").kill()
    verdict = judged(story, waiting=1, unsettled=0)  # c is the one that is left
    assert verdict.status is Status.FAIL
    assert verdict.observed.endswith("a.")


def test_given_up_after_permanent_is_the_end_of_the_work():
    story = Story().publish("a").begin().take("a").start("a").fail("a", "permanent").give_up("a")
    assert judged(story, waiting=0, unsettled=0).status is Status.PASS


def test_given_up_after_transient_is_lost():
    story = Story().publish("a").begin().take("a").start("a").fail("a").give_up("a")
    verdict = judged(story, waiting=0, unsettled=0)
    assert verdict.status is Status.FAIL
    assert "treated as permanent" in verdict.slip


def test_slips_follow_what_had_become_of_the_handler():
    def slip(story):
        return judged(story.kill(), waiting=0, unsettled=0).slip

    def base():
        return Story().publish("a").begin().take("a")

    assert "beside the handler" in slip(base().start("a").ack("a"))
    assert "finally" in slip(base().start("a").fail("a").ack("a"))
    assert "handler was cancelled" in slip(base().start("a").cancelled("a").ack("a"))
    assert "never started given up" in slip(base().give_up("a"))
    assert "permanent failure" in slip(base().start("a").cancelled("a").give_up("a"))
    assert "forgotten" in slip(base())


def test_waiting_with_the_broker_after_a_stop_is_fine():
    story = Story().publish("a", "b", "c").begin().handle("a").stop().returned()
    assert judged(story, waiting=2, unsettled=0).status is Status.PASS
    assert judged(story).status is Status.PASS


def test_nothing_taken_and_no_counters_prove_nothing():
    assert judged(Story().publish("a").begin().stop().returned()).status is Status.INCONCLUSIVE


def test_left_waiting_by_a_pool_that_stood():
    story = Story().publish("a", "b").begin().handle("a")
    story.expect("stalled settled=2 seen=1 buffered=1 in_hand=0 busy=0 held=0")
    verdict = judged(story, waiting=1, unsettled=0)
    assert verdict.status is Status.FAIL
    assert "1 of 2 confirmed messages was left waiting" in verdict.observed
    assert verdict.witness[-1].kind is Kind.EXPECTED


def test_behind_a_gate_of_the_examiners_nothing_is_left_waiting():
    story = Story().publish("a", "b").begin().take("a").start("a").say(Kind.HELD, "a")
    story.expect("stalled running=2 seen=1 buffered=1 in_hand=1 busy=1 held=1")
    assert judged(story, waiting=1, unsettled=1).status is Status.INCONCLUSIVE


def test_standing_still_after_a_stop_is_another_checks_matter():
    story = Story().publish("a", "b").begin().handle("a").stop()
    story.expect("stalled returned=1 seen=0 buffered=1 in_hand=0 busy=0 held=0")
    assert judged(story, waiting=1, unsettled=0).status is Status.INCONCLUSIVE


def test_a_blocked_loop_and_a_swallowed_message_ask_different_questions():
    def slip(detail):
        story = Story().publish("a", "b").begin().handle("a").take("b")
        return judged(story.expect(detail)).slip

    assert "blocks the thread" in slip("blocked settled=2 seen=1 in_hand=1 busy=0 held=0")
    assert "no living worker" in slip("stalled settled=2 seen=1 in_hand=1 busy=0 held=0")


def test_a_pool_frozen_or_cut_off_by_the_examiner_does_not_stand():
    for fault in ("pause", "stall"):
        story = Story().publish("a", "b").begin().handle("a").fault(fault)
        story.expect("stalled settled=2 seen=1 buffered=1 in_hand=0 busy=0 held=0")
        assert judged(story).status is Status.INCONCLUSIVE
    story = Story().publish("a", "b").begin().handle("a").fault("pause").fault("resume")
    story.expect("stalled settled=2 seen=1 buffered=1 in_hand=0 busy=0 held=0")
    assert judged(story).status is Status.FAIL


def test_drained_although_never_finished_is_lost_even_without_counters():
    story = Story().publish("a", "b").begin().handle("a")
    story.expect("drained settled=2 seen=1 buffered=0 in_hand=0 busy=0 held=0")
    assert "will not come back" in judged(story).observed


def test_an_end_that_nobody_asked_for_leaves_messages_waiting():
    def base():
        return Story().publish("a", "b").begin().handle("a")

    assert "run() returned" in judged(base().returned()).observed
    assert "NotImplementedError" in judged(base().raised("NotImplementedError\ntrace")).observed
    assert "status 3" in judged(base().say(Kind.EXITED, detail="status 3")).observed
    for excused in (base().stop().returned(), base().fault("cancel").raised("x"), base().kill()):
        assert judged(excused).status is Status.PASS


def test_a_source_that_ended_with_all_work_done_is_an_end_too():
    assert judged(Story().publish("a").begin().handle("a").returned()).status is Status.PASS


def test_what_an_earlier_process_left_the_next_may_finish():
    story = Story().publish("a", "b").begin().handle("a").raised("oops").begin().handle("b")
    assert judged(story).status is Status.PASS


def test_time_that_ran_out_is_no_loss():
    story = Story().publish("a", "b").begin().handle("a")
    assert judged(story, truncated=True).status is Status.INCONCLUSIVE
    story.expect("late settled=2 seen=1 buffered=1 in_hand=0 busy=0 held=0").kill()
    assert judged(story).status is Status.INCONCLUSIVE


def test_a_loss_seen_counts_even_if_time_ran_out():
    story = Story().publish("a", "b").begin().take("a").ack("a").start("a")
    assert judged(story, truncated=True).status is Status.FAIL


def test_a_truncated_run_never_passes():
    story = Story().publish("a").begin().handle("a")
    assert judged(story, truncated=True).status is Status.INCONCLUSIVE


def test_a_message_nobody_published_was_invented():
    verdict = judged(Story().publish("a").begin().handle("a").handle("ghost"))
    assert verdict.status is Status.FAIL
    assert "ghost" in verdict.observed
    assert judged(Story().publish("a").begin().take("ghost").handle("a")).status is Status.PASS


def test_the_witness_of_a_standing_pool_is_the_message_that_is_stuck():
    story = Story().publish("a", "b", "c").begin().take("a").start("a").fail("a")
    story.handle("b").say(
        Kind.EXPECTED, detail="stalled settled=3 seen=1 buffered=1 in_hand=1 busy=0 held=0"
    )
    verdict = judged(story, waiting=2, unsettled=0)
    assert verdict.status is Status.FAIL
    assert {event.message for event in verdict.witness} == {"a", ""}
    assert [event.kind for event in verdict.witness][:3] == [Kind.TAKEN, Kind.STARTED, Kind.FAILED]


def test_a_pool_that_stops_itself_leaves_its_messages_waiting():
    story = Story().publish("a", "b").begin().handle("a")
    story.say(Kind.STOP_SET, detail=BY_THE_MODULE).say(Kind.RUN_RETURNED)
    verdict = judged(story, waiting=1, unsettled=0)
    assert verdict.status is Status.FAIL
    assert "nobody had asked it to stop" in verdict.observed
    asked = Story().publish("a", "b").begin().handle("a").say(Kind.STOP_SET).say(Kind.RUN_RETURNED)
    assert judged(asked, waiting=1, unsettled=0).status is Status.PASS


def test_a_message_passed_back_and_forth_and_never_handled():
    story = Story().publish("a", "b").begin().handle("a")
    for _ in range(60):
        story.take("b").requeue("b")
    assert judged(story, waiting=1).status is Status.PASS  # so far it only took its time
    verdict = judged(story.expect("storm settled=2 seen=1"), waiting=1)
    assert verdict.status is Status.FAIL
    assert verdict.observed == "b was taken 60 times and never handled."
    assert "no worker is free" in verdict.slip


def in_a_storm(*kinds: Kind, detail: str = "") -> Story:
    story = Story().publish("b").begin()
    for _ in range(60):
        story.take("b")
        for kind in kinds:
            story.say(kind, "" if kind is Kind.RAISED else "b", detail)
        story.requeue("b")
    return story.expect("storm settled=2 seen=1")


def test_an_exception_of_the_codes_own_is_told_where_it_sends_the_message_back():
    verdict = judged(in_a_storm(Kind.RAISED, detail="DatabaseError: no such column: amont"))
    assert verdict.observed.endswith("The last exception: DatabaseError: no such column: amont.")
    assert "line of your own" in verdict.slip
    assert Kind.RAISED in {event.kind for event in verdict.witness}


def test_where_no_server_can_be_reached_giving_back_is_right():
    gone = in_a_storm(Kind.RAISED, detail="DatabaseGone: connection refused")
    assert judged(gone).status is Status.INCONCLUSIVE


def test_slips_of_a_message_that_is_given_back_for_ever():
    assert "before `handle` is called" in judged(in_a_storm()).slip
    assert "`delay_s`" in judged(in_a_storm(Kind.LEASE_REFUSED)).slip


def test_slips_of_messages_under_a_lease():
    story = Story().publish("a").begin().take("a").say(Kind.LEASE_REFUSED, "a").ack("a").kill()
    assert "whose lease somebody else holds" in judged(story, waiting=0, unsettled=0).slip
    story = Story().publish("a").begin().take("a").say(Kind.REQUEUE, "a", "5")
    story.say(Kind.SETTLED, "a").expect("stalled lease_refused=3 seen=1 buffered=1 in_hand=0")
    assert "delay of 5 s" in judged(story, waiting=1, unsettled=0).slip


def test_a_message_settled_again_after_its_settlement_failed():
    story = Story().publish("a").begin().take("a").start("a").finish("a")
    story.call(Kind.ACK, "a", Kind.SETTLE_FAILED).say(Kind.SETTLED_TWICE, "a", "requeue")
    story = story.publish("b").raised("AlreadySettled: message a was acked or nacked before")
    verdict = judged(story)
    assert verdict.status is Status.FAIL
    assert "catch its SettleFailed" in verdict.slip
    assert Kind.SETTLE_FAILED in {event.kind for event in verdict.witness}


def test_a_function_that_is_not_written_is_named():
    trace = 'File "pool.py", line 9, in one\n    await charge_card()\n  File "pool.py", line 3, in charge_card'
    story = Story().publish("a").begin().take("a").raised(f"NotImplementedError (l 3)\n  {trace}")
    assert judged(story).slip == "Is `charge_card` not written yet?"
