from __future__ import annotations

import pytest

from autograder.checks.pool import one_failure_is_one_failure
from autograder.model import Kind, Status
from autograder.tests.checks.build import Story, names


def judged(story: Story, **options):
    return one_failure_is_one_failure(story.history(**options))


def busy(*running: str, workers: int = 2) -> Story:
    return Story(workers).publish(*names(9)).begin().take(*running).start(*running)


def test_all_workers_busy_again_is_a_pass():
    story = busy("m1", "m2").fail("m1").requeue("m1").take("m3").start("m3")
    assert judged(story).status is Status.PASS


def test_as_many_failures_as_workers_and_then_more_work_is_a_pass():
    story = busy("m1").fail("m1").requeue("m1").take("m2").start("m2").fail("m2").requeue("m2")
    assert judged(story).status is Status.INCONCLUSIVE
    assert judged(story.take("m3").start("m3")).status is Status.PASS


def test_one_delivery_that_fails_twice_costs_one_slot_at_most():
    story = busy("m1").fail("m1").call(Kind.REQUEUE, "m1", Kind.SETTLE_FAILED)
    assert judged(story.take("m2").start("m2")).status is Status.INCONCLUSIVE


def test_no_failure_proves_nothing():
    assert judged(busy("m1", "m2").finish("m1")).status is Status.INCONCLUSIVE


def test_others_cancelled_by_a_failure():
    verdict = judged(busy("m1", "m2").fail("m1", "error").cancelled("m2"))
    assert verdict.status is Status.FAIL
    assert "m1 failed (error)" in verdict.observed
    assert "1 other handler was cancelled: m2" in verdict.observed
    assert "TaskGroup" in verdict.slip
    assert {event.kind for event in verdict.witness} >= {Kind.FAILED, Kind.CANCELLED}


def test_a_timeout_of_the_pools_own_is_told_apart():
    verdict = judged(busy("m1", "m2").cancelled("m2"))
    assert verdict.status is Status.FAIL
    assert "timeout" in verdict.slip


@pytest.mark.parametrize("end", ["stop", "cancel", "kill", "return"])
def test_cancelled_because_somebody_asked_for_the_end(end):
    story = busy("m1", "m2").fail("m1").requeue("m1")
    if end == "stop":
        story.stop()
    elif end == "return":
        story.say(Kind.RUN_RETURNED)
    else:
        story.fault(end)
    verdict = judged(story.cancelled("m2"))
    assert "cancelled" not in verdict.observed


def test_run_ended_by_the_failure():
    verdict = judged(busy("m1").fail("m1").raised("Transient: no database\nTraceback"))
    assert verdict.status is Status.FAIL
    assert "run() raised Transient: no database" in verdict.observed
    assert "Traceback" not in verdict.observed
    assert judged(busy("m1").fail("m1").returned()).status is Status.FAIL


def test_run_ended_by_a_settlement_that_failed():
    story = busy("m1").finish("m1").call(Kind.ACK, "m1", Kind.SETTLE_FAILED).raised("SettleFailed")
    verdict = judged(story)
    assert verdict.status is Status.FAIL
    assert "SettleFailed" in verdict.slip


def test_raising_without_a_failure_is_another_checks_matter():
    assert judged(busy("m1").finish("m1").raised("KeyError")).status is Status.INCONCLUSIVE


def test_raising_after_a_stop_is_another_checks_matter():
    assert judged(busy("m1").fail("m1").stop().raised("KeyError")).status is Status.INCONCLUSIVE


def test_a_source_that_ends_after_all_work_is_done_is_fine():
    story = Story(1).publish("a", "b").begin().take("a").start("a").fail("a").requeue("a")
    assert judged(story.handle("a", "b").returned()).status is Status.PASS


def test_a_pool_that_stands_with_a_worker_less():
    story = busy("m1", "m2").fail("m1").requeue("m1").say(Kind.HELD, "m2")
    verdict = judged(story.expect("stalled running=2 seen=1 buffered=7 in_hand=1 busy=1 held=1"))
    assert verdict.status is Status.FAIL
    assert "After 1 failure, 1 of 2 workers" in verdict.observed
    assert "only when the handler succeeds" in verdict.slip


def test_workers_that_died_with_their_messages():
    story = busy("m1", "m2").fail("m1").fail("m2").take("m3")
    verdict = judged(story.expect("stalled settled=9 seen=0 buffered=0 in_hand=3 busy=0 held=0"))
    assert verdict.status is Status.FAIL
    assert "1 message it could have begun" in verdict.observed
    assert "except" in verdict.slip


def test_failures_in_hand_with_nothing_left_to_begin_are_no_lost_slots():
    story = busy("m1", "m2").fail("m1").fail("m2")
    verdict = judged(story.expect("stalled settled=9 seen=0 buffered=0 in_hand=2 busy=0 held=0"))
    assert verdict.status is Status.INCONCLUSIVE


def test_a_pool_that_never_used_more_has_not_shrunk():
    """One after the other, with failures: that is `pool_is_used`, not this."""
    story = Story(workers=4).publish(*names(9)).begin()
    story.take("m1").start("m1").fail("m1").requeue("m1").take("m2").start("m2").say(
        Kind.HELD, "m2"
    )
    story.expect("stalled running=4 seen=1 buffered=7 in_hand=1 busy=1 held=1")
    assert judged(story).status is Status.INCONCLUSIVE


def test_poison_that_fails_at_once_is_counted_out():
    """Never beside others, but exactly as many workers are missing as failed."""
    story = Story(workers=3).publish(*names(9)).begin()
    story.take("m1").start("m1").fail("m1").take("m2", "m3").start("m2", "m3").say(Kind.HELD, "m3")
    story.expect("stalled running=3 seen=2 buffered=6 in_hand=3 busy=2 held=2")
    assert judged(story).status is Status.FAIL


def keyed(*failing: str) -> Story:
    """Four workers; `a` to `c` have failed and are done with, then two are held at a gate."""
    orders = [f"{key}:1" for key in "abcdefghi"]
    story = Story(4).publish(*orders).begin().take(*orders[:6])
    for name in failing:
        story.start(name).fail(name, "permanent").give_up(name)
    return story.start("d:1", "e:1").say(Kind.HELD, "d:1").say(Kind.HELD, "e:1")


def test_beside_a_gate_keys_may_wait_for_their_lane():
    story = keyed("a:1", "b:1").take("g:1", "h:1")
    story.expect("stalled taken=10 seen=8 buffered=1 in_hand=6 busy=2 held=2")
    assert judged(story).status is Status.INCONCLUSIVE


def test_keys_excuse_nobody_who_is_not_held_up():
    story = keyed("a:1", "b:1").finish("d:1", "e:1").ack("d:1", "e:1")
    story.expect("stalled settled=9 seen=4 buffered=3 in_hand=2 busy=0 held=0")
    assert judged(story).status is Status.FAIL


def test_room_that_is_not_given_back():
    story = keyed("a:1", "b:1")
    verdict = judged(story.expect("stalled taken=10 seen=6 buffered=3 in_hand=4 busy=2 held=2"))
    assert verdict.status is Status.FAIL
    assert (
        "6 messages had been in hand at once; after 2 failures the pool stood with 4"
        in verdict.observed
    )
    assert "however a message ends" in verdict.slip


@pytest.mark.parametrize(
    "right",
    [
        "stalled taken=10 seen=8 buffered=1 in_hand=6 busy=2 held=2",  # as many as before
        "stalled taken=10 seen=6 buffered=0 in_hand=4 busy=2 held=2",  # there was nothing to take
        "stalled taken=10 seen=6 buffered=3 in_hand=4 busy=3 held=2",  # somebody is at work
        "late taken=10 seen=6 buffered=3 in_hand=4 busy=2 held=2",
    ],
)
def test_less_in_hand_has_other_reasons(right):
    assert judged(keyed("a:1", "b:1").expect(right)).status is Status.INCONCLUSIVE


def test_all_busy_after_the_last_failure_lost_no_slot():
    """A pool that waits for a full batch stands for another reason than its failures."""
    story = busy("m1").fail("m1").requeue("m1").take("m2", "m3").start("m2", "m3")
    story.finish("m2", "m3").ack("m2", "m3").take("m4")
    story.expect("stalled finished=9 seen=2 buffered=0 in_hand=1 busy=0 held=0")
    assert judged(story).status is Status.PASS


def test_in_a_new_process_old_failures_explain_nothing():
    story = busy("m1", "m2").fail("m1").requeue("m1").kill().begin().take("m3").start("m3")
    story.expect("stalled running=2 seen=1 buffered=7 in_hand=1 busy=1 held=1")
    assert judged(story).status is Status.INCONCLUSIVE


def test_time_that_ran_out_is_no_verdict():
    story = busy("m1", "m2").fail("m1").requeue("m1").take("m3").start("m3")
    assert judged(story, truncated=True).status is Status.INCONCLUSIVE
    story.expect("late settled=9 seen=0 buffered=1 in_hand=2 busy=2 held=0")
    assert judged(story).status is Status.INCONCLUSIVE


def test_the_likeliest_slip_follows_from_what_failed():
    def slip(*kinds: str) -> str:
        story = Story(2).publish("a", "b", "c", "d").begin()
        for name, kind in zip("ab", kinds, strict=True):
            story.take(name).start(name).fail(name, kind).requeue(name)
        stood = "stalled finished=4 seen=0 buffered=4 in_hand=0 busy=0 held=0"
        return judged(story.expect(stood)).slip

    assert "slot" in slip("error", "transient")
    assert "own CancelledError" in slip("cancelled", "cancelled")
    assert "slot" in slip("cancelled", "error")  # the last one to fail did not end by that


def test_a_settlement_whose_error_left_run_is_not_the_handlers_fault():
    story = busy("m1").fail("m1", "permanent").raised("SettleFailed: the connection is gone")
    assert "SettleFailed caught" in judged(story).slip
