"""A process that owns its signals, its connection and its exit status: histories written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autograder.checks import judge
from autograder.checks.graceful import (
    buffered_messages_are_returned,
    connection_closed_cleanly,
    deadline_is_kept,
    exit_code_tells,
    idle_shutdown_is_prompt,
    second_signal_is_faster,
    shutdown_drains_in_flight,
    sigint_equals_sigterm,
    stop_means_no_new_work,
)
from autograder.model import History, Kind, Status
from autograder.tests.checks.build import Story

IN_VAIN = "stalled exited=1 seen=0 buffered=0 in_hand=1 busy=1 held=1"
JUDGED = (
    buffered_messages_are_returned,
    connection_closed_cleanly,
    deadline_is_kept,
    exit_code_tells,
    idle_shutdown_is_prompt,
    second_signal_is_faster,
    sigint_equals_sigterm,
)


class Process(Story):
    """A story of processes with a `main`."""

    def begin(self, deadline_s: float = 10):
        self.process += 1
        self.say(Kind.SPAWNED)
        self.say(Kind.RUN_STARTED, detail=f"main workers=2 deadline_s={deadline_s}")
        return self.say(Kind.CONNECTED)

    def told(self, how: str = "terminate"):
        return self.fault(how)

    def close(self):
        return self.say(Kind.DISCONNECTING).say(Kind.DISCONNECTED)

    def exit(self, how: str = "status 0"):
        return self.say(Kind.EXITED, detail=how)

    def end(self, status: int = 0):
        """As a right program ends."""
        return self.close().say(Kind.RUN_RETURNED).exit(f"status {status}")

    def counts(self, waiting: int, unsettled: int = 0, consumers: int = 0):
        figures = f"waiting={waiting} unsettled={unsettled} consumers={consumers}"
        return self.say(Kind.BROKER, detail=figures)


def at_work(deadline_s: float = 10) -> Process:
    """Two messages, one of them in its handler's hands."""
    return Process(2).publish("a", "b").begin(deadline_s).take("a").start("a")


def idle() -> Process:
    return Process(2).publish("a").begin().handle("a")


def verdict(check, story: Story, **changes):
    return check(replace(story.history(), **changes))


def failed_and_said(check, story: Story, *words: str, **changes) -> bool:
    found = verdict(check, story, **changes)
    said = f"{found.observed} {found.slip}"
    return (
        found.status is Status.FAIL and bool(found.witness) and all(word in said for word in words)
    )


def test_a_right_shutdown_keeps_all_that_it_puts_to_the_test():
    story = at_work().told().finish("a").ack("a").end().counts(waiting=1)
    found = {each.name: verdict(each, story).status for each in JUDGED}
    assert found == {
        "buffered_messages_are_returned": Status.PASS,
        "connection_closed_cleanly": Status.PASS,
        "deadline_is_kept": Status.INCONCLUSIVE,
        "exit_code_tells": Status.PASS,
        "idle_shutdown_is_prompt": Status.INCONCLUSIVE,
        "second_signal_is_faster": Status.INCONCLUSIVE,
        "sigint_equals_sigterm": Status.INCONCLUSIVE,
    }
    assert verdict(shutdown_drains_in_flight, story).status is Status.PASS


@pytest.mark.parametrize("check", JUDGED, ids=lambda check: check.name)
@pytest.mark.parametrize(
    "story",
    [
        Process(2),
        at_work(),
        at_work().told(),
        at_work().kill(),
        at_work().told().kill(),
        Story(2).publish("a").begin().handle("a").stop().returned(),  # a pool: it owns nothing
    ],
    ids=["nothing", "at work", "told", "killed", "told and killed", "a pool"],
)
def test_nothing_seen_is_no_verdict(check, story):
    assert verdict(check, story).status is Status.INCONCLUSIVE


class TestIdleShutdownIsPrompt:
    def test_at_once(self):
        assert verdict(idle_shutdown_is_prompt, idle().told().end()).status is Status.PASS

    def test_a_flag_that_is_looked_at_now_and_then(self):
        story = idle().told().wait(4.5).end()
        assert failed_and_said(idle_shutdown_is_prompt, story, "ended 4.5 s later", "flag")

    def test_virtual_time_needs_less_allowance(self):
        story = idle().told().wait(3.5).end()
        assert verdict(idle_shutdown_is_prompt, story).status is Status.PASS
        assert verdict(idle_shutdown_is_prompt, story, engine="sim").status is Status.FAIL

    def test_waited_for_in_vain(self):
        story = (
            idle()
            .told("interrupt")
            .wait(10)
            .expect(IN_VAIN.replace("1 busy=1 held=1", "0 busy=0 held=0"))
        )
        assert failed_and_said(
            idle_shutdown_is_prompt, story, "SIGINT", "had not ended 10.0 s later"
        )

    def test_work_in_hand_may_take_longer(self):
        story = at_work().told().wait(8).finish("a").ack("a").end()
        assert verdict(idle_shutdown_is_prompt, story).status is Status.INCONCLUSIVE


class TestDeadlineIsKept:
    def test_torn_off_at_the_deadline(self):
        story = at_work().told().wait(10).cancelled("a").end(status=1)
        assert verdict(deadline_is_kept, story).status is Status.PASS

    def test_gone_with_the_process(self):
        story = at_work().told().wait(10).end(status=1)
        assert verdict(deadline_is_kept, story).status is Status.PASS

    def test_given_back_when_torn_off(self):
        story = at_work().told().wait(10).cancelled("a").requeue("a").end(status=1)
        assert verdict(deadline_is_kept, story).status is Status.PASS

    def test_too_late(self):
        story = at_work().told().wait(20).cancelled("a").end(status=1)
        assert failed_and_said(deadline_is_kept, story, "with 10 s to go", "ended 20", "together")

    def test_never(self):
        story = at_work().told().wait(20).expect(IN_VAIN)
        assert failed_and_said(deadline_is_kept, story, "had not ended 20.0 s later")

    def test_too_early(self):
        story = at_work().told().wait(1).cancelled("a").end(status=1)
        assert failed_and_said(deadline_is_kept, story, "torn off 1.01 s later", "10 s to go")

    def test_the_process_died_of_the_signal(self):
        assert failed_and_said(
            deadline_is_kept, at_work().told().exit("signal SIGTERM"), "torn off"
        )

    @pytest.mark.parametrize(("call", "said"), [(Kind.ACK, "acked"), (Kind.GIVE_UP, "given up")])
    def test_settled_for_good_although_unfinished(self, call, said):
        story = at_work().told().wait(10).cancelled("a").call(call, "a").end(status=1)
        assert failed_and_said(deadline_is_kept, story, said)

    def test_a_status_that_says_all_is_well(self):
        story = at_work().told().wait(10).cancelled("a").end(status=0)
        assert failed_and_said(deadline_is_kept, story, "status 0")

    def test_a_handler_that_came_to_its_end_is_no_case(self):
        story = at_work().told().wait(5).finish("a").ack("a").end()
        assert verdict(deadline_is_kept, story).status is Status.INCONCLUSIVE

    def test_whose_handlers_end_by_themselves_is_late_all_the_same(self):
        story = at_work(1).told().wait(8).finish("a").ack("a").end()
        assert failed_and_said(deadline_is_kept, story, "ended 8.")

    def test_a_handler_that_ends_just_in_time(self):
        story = at_work(1).told().wait(0.95).finish("a").ack("a").end()
        assert verdict(deadline_is_kept, story).status is Status.INCONCLUSIVE

    def test_a_second_signal_is_another_matter(self):
        story = at_work().told().wait(1).told().cancelled("a").end(status=1)
        assert verdict(deadline_is_kept, story).status is Status.INCONCLUSIVE


class TestSecondSignalIsFaster:
    @pytest.mark.parametrize("end", ["status 1", "signal SIGTERM"])
    def test_at_once(self, end):
        story = at_work().told().told("interrupt").exit(end)
        assert verdict(second_signal_is_faster, story).status is Status.PASS

    def test_nothing_new(self):
        story = at_work().told().told().wait(6).expect(IN_VAIN)
        assert failed_and_said(second_signal_is_faster, story, "had not ended 6.0 s later")

    def test_settled_for_good_although_unfinished(self):
        story = at_work().told().told().cancelled("a").ack("a").end(status=1)
        assert failed_and_said(second_signal_is_faster, story, "acked")

    def test_work_that_had_ended_by_then_proves_nothing(self):
        story = at_work().told().finish("a").ack("a").told().end()
        assert verdict(second_signal_is_faster, story).status is Status.INCONCLUSIVE

    def test_a_signal_to_a_dead_process_is_none(self):
        story = at_work().told().finish("a").ack("a").end().told()
        assert verdict(second_signal_is_faster, story).status is Status.INCONCLUSIVE


class TestSigintEqualsSigterm:
    def test_the_same_end(self):
        story = at_work().told("interrupt").finish("a").ack("a").end()
        assert verdict(sigint_equals_sigterm, story).status is Status.PASS

    def test_keyboard_interrupt(self):
        story = (
            at_work().told("interrupt").cancelled("a").say(Kind.RUN_RAISED, detail="CancelledError")
        )
        story.exit("signal SIGINT")
        assert failed_and_said(sigint_equals_sigterm, story, "tore off 1 running handler", "SIGINT")

    def test_another_status_than_after_sigterm(self):
        story = at_work().told().finish("a").ack("a").end()
        story.begin().take("b").start("b").told("interrupt").finish("b").ack("b").end(status=3)
        assert failed_and_said(sigint_equals_sigterm, story, "status 3", "status 0")

    def test_no_end(self):
        story = at_work().told("interrupt").finish("a").ack("a").wait(6).expect(IN_VAIN)
        assert failed_and_said(sigint_equals_sigterm, story, "did not end")

    def test_what_a_second_signal_or_the_deadline_does_is_not_compared(self):
        for story in (
            at_work().told("interrupt").told().cancelled("a").end(status=1),
            at_work().told("interrupt").wait(10).cancelled("a").end(status=1),
        ):
            assert verdict(sigint_equals_sigterm, story).status is Status.INCONCLUSIVE


class TestExitCodeTells:
    def test_torn_off_and_said(self):
        story = at_work().told().wait(10).cancelled("a").end(status=1)
        assert verdict(exit_code_tells, story).status is Status.PASS

    def test_torn_off_and_not_said(self):
        story = at_work().told().cancelled("a").exit("status 0")
        assert failed_and_said(exit_code_tells, story, "status 0", "sys.exit(0)")

    def test_a_handler_still_at_work_is_torn_off_with_the_process(self):
        assert failed_and_said(exit_code_tells, at_work().told().end(), "status 0")

    def test_drained_and_called_a_failure(self):
        story = at_work().told().finish("a").ack("a").end(status=143)
        assert failed_and_said(exit_code_tells, story, "status 143", "finished and settled")

    def test_death_by_the_first_signal(self):
        assert failed_and_said(exit_code_tells, idle().told().exit("signal SIGTERM"), "crash")

    def test_death_by_the_second_signal(self):
        story = at_work().told().told().exit("signal SIGTERM")
        assert verdict(exit_code_tells, story).status is Status.PASS

    def test_work_done_and_not_settled_in_time_is_no_success(self):
        story = at_work().told().finish("a").say(Kind.ACK, "a").end(status=1)
        assert verdict(exit_code_tells, story).status is Status.PASS


class TestConnectionClosedCleanly:
    def test_left_open(self):
        story = at_work().told().finish("a").ack("a").say(Kind.RUN_RETURNED).exit()
        assert failed_and_said(
            connection_closed_cleanly, story, "with its connection open", "finally"
        )

    def test_in_the_middle_of_closing(self):
        story = at_work().told().finish("a").ack("a").say(Kind.RUN_RETURNED).say(Kind.DISCONNECTING)
        assert failed_and_said(connection_closed_cleanly, story.exit(), "in the middle of close()")

    def test_closed_under_the_handlers(self):
        story = at_work().told().close().finish("a").call(Kind.ACK, "a", Kind.SETTLE_FAILED)
        story.say(Kind.RUN_RETURNED).exit()
        assert failed_and_said(connection_closed_cleanly, story, "could be settled no more")

    def test_cancelled_while_it_closes(self):
        story = at_work().told().wait(10).say(Kind.DISCONNECTING).cancelled("a")
        story.say(Kind.DISCONNECTED).say(Kind.RUN_RETURNED).exit("status 1")
        assert verdict(connection_closed_cleanly, story).status is Status.PASS

    def test_still_counted_by_the_broker(self):
        story = idle().told().end().counts(waiting=0, consumers=1)
        assert failed_and_said(connection_closed_cleanly, story, "still counted it")

    def test_the_next_process_is_a_consumer_of_its_own(self):
        story = idle().told().end().begin().counts(waiting=0, consumers=1)
        assert verdict(connection_closed_cleanly, story).status is Status.PASS

    def test_death_by_signals(self):
        assert failed_and_said(
            connection_closed_cleanly, idle().told().exit("signal SIGTERM"), "handler"
        )

    @pytest.mark.parametrize("how", ["signal SIGTERM", "status 130"])
    def test_death_by_the_second_signal(self, how):
        second = at_work().told().told().exit(how)
        assert verdict(connection_closed_cleanly, second).status is Status.INCONCLUSIVE

    def test_who_comes_back_after_the_second_signal_has_closed(self):
        story = at_work().told().told().cancelled("a").say(Kind.RUN_RETURNED).exit("status 1")
        assert failed_and_said(connection_closed_cleanly, story, "with its connection open")


class TestBufferedMessagesAreReturned:
    def test_out_with_a_dead_process(self):
        story = at_work().told().finish("a").ack("a").exit().counts(waiting=0, unsettled=1)
        assert failed_and_said(
            buffered_messages_are_returned, story, "1 message was still out", "lease"
        )

    def test_partitions_of_a_member_that_did_not_leave(self):
        story = at_work().told().finish("a").ack("a").exit().counts(1, unsettled=-1, consumers=1)
        assert failed_and_said(buffered_messages_are_returned, story, "partitions")

    def test_acked_unread(self):
        story = at_work().told().finish("a").ack("a").take("b").ack("b").end().counts(waiting=0)
        assert failed_and_said(buffered_messages_are_returned, story, "only 0 of them")

    def test_a_log_may_have_more_than_was_left(self):
        story = at_work().told().finish("a").ack("a").end().counts(waiting=2, unsettled=-1)
        assert verdict(buffered_messages_are_returned, story).status is Status.PASS

    def test_nothing_was_left_or_the_broker_cannot_tell(self):
        for story in (
            idle().told().end().counts(waiting=0),
            at_work().told().finish("a").ack("a").end().counts(waiting=-1, unsettled=-1),
        ):
            assert verdict(buffered_messages_are_returned, story).status is Status.INCONCLUSIVE

    def test_what_was_published_later_is_not_asked_for(self):
        story = at_work().told().finish("a").ack("a").end().counts(waiting=1).publish("c")
        assert verdict(buffered_messages_are_returned, story).status is Status.PASS


class TestShutdownDrainsInFlight:
    """What it means for a process of its own, beside what it means for a pool."""

    def test_done_twice(self):
        story = at_work().told().finish("a").ack("a").end().begin().take("a").start("a")
        assert failed_and_said(shutdown_drains_in_flight, story, "delivered again")

    def test_a_message_that_was_published_twice_is_two(self):
        story = at_work().publish("a").told().finish("a").ack("a").end().begin().handle("a", "b")
        assert verdict(shutdown_drains_in_flight, story).status is Status.PASS

    def test_behind_something_unfinished_a_log_repeats_what_was_done(self):
        story = at_work().take("b").start("b").fail("a").requeue("a").told().finish("b").ack("b")
        story.end().begin().handle("a", "b")
        assert verdict(shutdown_drains_in_flight, story).status is Status.PASS

    def test_closing_gives_back_what_nobody_has_begun(self):
        story = at_work().take("b").told().finish("a").ack("a").end()
        assert verdict(shutdown_drains_in_flight, story).status is Status.PASS
        begun = at_work().take("b").start("b").told().finish("a", "b").ack("a").end()
        assert verdict(shutdown_drains_in_flight, begun).status is Status.FAIL

    @pytest.mark.parametrize("end", ["signal SIGTERM", "raises"])
    def test_who_does_not_listen_while_it_connects(self, end):
        story = Process(2).publish("a")
        story.process += 1
        story.say(Kind.SPAWNED).say(Kind.RUN_STARTED, detail="main workers=2 deadline_s=9")
        story.say(Kind.CONNECTING).told()
        if end == "raises":
            story.say(Kind.RUN_RAISED, detail="CancelledError").exit("status 1")
        else:
            story.exit(end)
        assert failed_and_said(shutdown_drains_in_flight, story, "before connect() is called")

    def test_to_exit_before_there_is_a_connection_is_to_return(self):
        story = Process(2).publish("a")
        story.process += 1
        story.say(Kind.SPAWNED).say(Kind.RUN_STARTED, detail="main workers=2 deadline_s=9")
        story.say(Kind.CONNECTING).told().exit("status 0")
        assert verdict(shutdown_drains_in_flight, story).status is Status.PASS

    def test_to_exit_with_the_connection_closed_is_to_return(self):
        story = at_work().told().finish("a").ack("a")
        assert verdict(shutdown_drains_in_flight, story.close().exit()).status is Status.PASS

    def test_to_exit_with_the_connection_open_is_not(self):
        story = at_work().told().finish("a").ack("a").exit()
        assert failed_and_said(shutdown_drains_in_flight, story, "(status 0)", "os._exit")

    def test_the_duty_ends_with_the_deadline_and_with_a_second_signal(self):
        for story in (
            at_work().told().wait(10).cancelled("a").end(status=1),
            at_work().told().told().cancelled("a").end(status=1),
        ):
            assert verdict(shutdown_drains_in_flight, story).status is Status.INCONCLUSIVE
        early = at_work().told().wait(1).cancelled("a").end(status=1)
        assert verdict(shutdown_drains_in_flight, early).status is Status.FAIL

    def test_no_handler(self):
        story = at_work().told().exit("signal SIGTERM")
        assert failed_and_said(
            shutdown_drains_in_flight, story, "before the first message is taken"
        )


def test_takes_count_from_when_the_signal_is_in_force():
    story = at_work().told().take("b").say(Kind.STOP_IN_FORCE)
    story.finish("a").ack("a").requeue("b").end()
    assert verdict(stop_means_no_new_work, story).status is Status.PASS
    late = at_work().told().say(Kind.STOP_IN_FORCE).take("b").finish("a").ack("a").end()
    assert verdict(stop_means_no_new_work, late).status is Status.FAIL


def test_verdicts_speak_of_the_function_that_was_called():
    story = at_work().told().say(Kind.RUN_RAISED, detail="ValueError: no").exit("status 1")
    history: History = story.history()
    found = judge(history, [shutdown_drains_in_flight])["shutdown_drains_in_flight"]
    assert "main() raised ValueError" in found.observed
    assert "run()" not in found.observed + found.slip
