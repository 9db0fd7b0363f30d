"""Shutdown: nothing new after stop, and what is in hand is brought to its end."""

from __future__ import annotations

from collections.abc import Sequence

from autograder.checks.expectations import Expectation, stood_still
from autograder.checks.homecoming import (
    cancelled_run,
    idle_before,
    keeps_writing,
    last_of,
    left_behind,
    prompt_s,
)
from autograder.checks.ledger import (
    ENDS,
    FINAL,
    LONGEST_DELAY_S,
    after,
    before,
    delay_s,
    first_place,
    ids,
    of_process,
)
from autograder.checks.lives import NEVER, Life, read_lives
from autograder.checks.pauses import slept_through_the_stop
from autograder.checks.phrases import (
    counted,
    delivery_places,
    first_line,
    moment,
    some,
    were,
    witness,
)
from autograder.checks.registry import guarantee
from autograder.checks.twice import done_twice
from autograder.model import History, Kind, Verdict, Wait, failed, inconclusive, passed

_NOT_LISTENING = "Are the handlers for both signals installed before connect() is called?"


@guarantee
def stop_means_no_new_work(history: History) -> Verdict:
    """Once told to stop, it takes no further message.

    Takes count from `STOP_IN_FORCE` on, some loop turns after the event was set: one that completes
    in the very turn of the stop is nobody's fault. Starting a handler for a message that had been
    taken before is not new work. If `stop` is set before run() is called, nothing may be taken at
    all. Counted per process: the next one, after a restart, works again. A pass needs a
    temptation: a message that had not been taken when the stop came.
    """
    lives = read_lives(history)
    stopped = [life for life in lives.values() if life.stop_in_force < NEVER]
    for life in stopped:
        late = _taken_after(history, life)
        if late:
            return _new_work(history, life, late)
    if not stopped:
        return inconclusive("No stop was seen in force.")
    if all(life.over == NEVER for life in stopped):
        return inconclusive("Time ran out before the stopped pool came to its end.")
    if not any(_had_more(history, life) for life in stopped):
        return inconclusive(
            "Every message had been taken before the stop: nothing was left to take."
        )
    return passed("Messages were waiting, and none was taken once the stop had been noticed.")


def _taken_after(history: History, life: Life) -> list[int]:
    later = after(history.places[Kind.TAKEN], life.stop_in_force)
    return of_process(history, later, life.process)


def _had_more(history: History, life: Life) -> bool:
    """Whether a message could have been taken after this stop: never taken, or given back."""
    events, stop = history.events, life.stop_in_force
    given_back = after(before(history.places[Kind.REQUEUE], life.over), stop)
    if of_process(history, given_back, life.process):
        return True
    taken = of_process(history, before(history.places[Kind.TAKEN], stop), life.process)
    left = ids(history, Kind.CONFIRMED) - {events[place].message for place in taken}
    finished = before(history.places[Kind.FINISHED], stop) if left else ()
    return not left <= {events[place].message for place in finished}


def _new_work(history: History, life: Life, late: Sequence[int]) -> Verdict:
    takes = before(history.places[Kind.TAKEN], life.stop_in_force)
    before_stop = of_process(history, takes, life.process)
    if not before_stop:
        slip = "Is `stop` looked at before the first message is taken?"
    elif len(late) <= history.workers:
        slip = "Does each worker take one more message before it looks at `stop`?"
    else:
        slip = "Is the loop over the source told to end, or does it drain the whole backlog?"
    names = some(history.events[place].message for place in late)
    return failed(
        f"{counted(len(late), 'message')} {were(len(late))} taken after stop was in "
        f"force at {moment(history, life.stop_in_force)}: {names}.",
        witness(history, [*before_stop[-1:], life.stop_set, life.stop_in_force, *late[:5]]),
        slip,
    )


@guarantee
def shutdown_drains_in_flight(history: History) -> Verdict:
    """Told to stop, it ends what it has in hand, or gives it back.

    So it does when the source ends by itself, which is wrong only if run() does not return then, or
    raises. Wrong when, after the stop, a running handler is cancelled; when a message taken before is
    neither settled nor given back by the time run() returns, or is settled for good without having
    been handled; when a handler is begun again with a delivery that has failed (the stop ends the
    pause between two tries), or a letter is tried over and over; when run() raises, or does not return, or returns only after more than 5 s in
    which nothing happened (the contract says 1 s, and 1.5 s are allowed where time is virtual); when
    it leaves tasks behind; when the process ends without run() having returned, or by a signal; when
    a message is given back with a longer delay than the second that the contract allows; when a
    process that closes its own connection had finished everything it had begun, and something of it is
    delivered again to the next one.

    Tolerated: giving back what was taken (`nack(requeue=True)`), as long as handlers end by
    themselves (see `ack_follows_work` for what may be said when); a settlement that fails because
    the connection is gone; a permanent failure that is given up. A kill ends the duty. While the
    examiner holds a handler at a gate, nobody has to return. Where the function has a deadline of its
    own, or gets a second signal, the duty ends there. Cancelling run() leaves a smaller duty,
    gates or not: to come to an end just as promptly, by letting the CancelledError out, and to leave
    no task behind.
    """
    lives = read_lives(history)
    done = asked = 0
    for life in lives.values():
        told = life.stop_set if life.stop_set < NEVER else life.terminated
        if told < min(life.over, life.cancelled):
            asked += 1
            for look in _LOOKS_AT_STOP:
                verdict = look(history, life, told)
                if verdict is not None:
                    return verdict
            done += _came_back(life)
        if life.ended < min(told, life.cancelled, life.over):
            asked += 1
            verdict = _after_the_end(history, life)
            if verdict is not None:
                return verdict
            done += _came_back(life)
        if life.cancelled < life.over:
            asked += 1
            verdict = cancelled_run(history, life)
            if verdict is not None:
                return verdict
            done += min(life.returned, life.raised) == life.over < NEVER
    if done:
        return passed("What was in hand was brought to its end, and run() came back.")
    if asked:
        return inconclusive("The run was over before run() had come back.")
    return inconclusive("No stop was seen while the pool was at work.")


def _after_the_end(history: History, life: Life) -> Verdict | None:
    """A run() that goes on, or breaks, when its source has ended."""
    for each in stood_still(history):
        if each.process == life.process and life.ended < each.place < life.over:
            return failed(
                f"The source came to its end at {moment(history, life.ended)} and run() had not "
                f"returned at {moment(history, each.place)}, when nothing moved any more.",
                witness(history, [*last_of(history, life, each.place), life.ended, each.place]),
                "Does something go on waiting for `stop`, or for a message, when the source has ended?",
            )
    if life.raised == life.over < min(life.killed, life.stop_set):
        return failed(
            f"run() raised {first_line(history.events[life.raised].detail, 'an exception')} when "
            f"the source had come to its end at {moment(history, life.ended)}.",
            witness(history, [*last_of(history, life, life.raised), life.ended, life.raised]),
            "Does StopAsyncIteration, or a cancelled task, come out of run()?",
        )
    return None


def _duty_ends(life: Life) -> int:
    """Where this process's duty to drain ended: with the end, or a fault that excuses the rest."""
    return min(life.cancelled, life.killed, life.expired, life.returned, life.raised, life.exited)


def _came_back(life: Life) -> bool:
    """Whether run() returned while this duty lasted."""
    return life.returned < NEVER and life.returned == _duty_ends(life)


def _cancelled(history: History, life: Life, told: int) -> Verdict | None:
    cancels = after(before(history.places[Kind.CANCELLED], _duty_ends(life)), told)
    places = of_process(history, cancels, life.process)
    if not places:
        return None
    first = history.events[places[0]]
    story = delivery_places(history, first.delivery)
    acked = any(history.events[place].kind in FINAL for place in story)
    return failed(
        f"{counted(len(places), 'running handler')} {were(len(places))} cancelled after "
        f"stop was set at {moment(history, told)}: "
        f"{some(history.events[place].message for place in places)}.",
        witness(history, [*story[:6], told, *places[1:3]]),
        "Does the stop cancel the workers, and their messages get settled all the same?"
        if acked
        else "Does the stop cancel the tasks that handle, instead of only those that take?",
    )


def _ended_badly(history: History, life: Life, told: int) -> Verdict | None:
    if min(life.cancelled, life.killed, life.expired) <= min(life.raised, life.exited):
        return None
    if life.raised < life.returned:
        event = history.events[life.raised]
        return failed(
            f"run() raised {first_line(event.detail, 'an exception')} at {event.at:.3f} s, "
            f"after stop was set at {moment(history, told)}; it should have returned.",
            witness(history, [*last_of(history, life, life.raised), told, life.raised]),
            _NOT_LISTENING
            if _was_connecting(life)
            else "Does a cancelled or failed task's exception come out of the last await in run()?",
        )
    if life.exited == NEVER:
        return None
    event = history.events[life.exited]
    if event.detail.startswith("signal"):
        return failed(
            f"The process died by {event.detail} at {event.at:.3f} s instead of returning from run().",
            witness(history, [*last_of(history, life, life.exited), told, life.exited]),
            _slip_of_death(life),
        )
    if life.exited < life.returned:
        return failed(
            f"The process ended ({event.detail or 'no status'}) at {event.at:.3f} s before run() had returned.",
            witness(history, [*last_of(history, life, life.exited), told, life.exited]),
            "Does something end the process: sys.exit, os._exit?",
        )
    return None


def _slip_of_death(life: Life) -> str:
    if _was_connecting(life):
        return _NOT_LISTENING
    if life.signals and life.connected < NEVER:
        return "Is there a handler for this signal, and is it in force before the first message is taken?"
    return "Does your code change what SIGTERM does, or send signals?"


def _was_connecting(life: Life) -> bool:
    """Whether connect() had been called when the signal came, and had not returned."""
    return life.connecting < life.terminated < life.connected


def _stands(history: History, life: Life, told: int) -> Verdict | None:
    for each in stood_still(history):
        if told < each.place < _duty_ends(life) and each.process == life.process and not each.held:
            if each.wait == Wait.DRAINED and not each.about_the_end:
                continue
            return failed(
                f"run() had not returned at {moment(history, each.place)}, though stop was set at "
                f"{moment(history, told)} and nothing moved any more; "
                f"{counted(each.in_hand, 'message')} in hand.",
                witness(history, [*last_of(history, life, each.place), told, each.place]),
                _slip_of_standing(each),
            )
    return None


def _slip_of_standing(each: Expectation) -> str:
    if each.wait == Wait.BLOCKED:
        return "Is there a call that blocks the thread, so that the loop cannot go on?"
    if each.in_hand:
        return "Does join() wait for messages whose workers were cancelled or have ended?"
    return "Does something still wait for a message (a take, queue.get()) that will never come?"


def _unsettled(history: History, life: Life, told: int) -> Verdict | None:
    """Messages still in hand when run() returned."""
    if not _came_back(life):
        return None
    events, end, process = history.events, life.returned, life.process
    settled = {
        events[place].delivery
        for kind in (Kind.SETTLED, Kind.SETTLE_FAILED)
        for place in before(history.places[kind], end)
    }
    takes = before(history.places[Kind.TAKEN], end)
    left = [
        place
        for place in of_process(history, takes, process)
        if events[place].delivery not in settled
    ]
    if life.disconnected < end:  # which has given back what nobody had begun
        begun = {events[place].delivery for place in before(history.places[Kind.STARTED], end)}
        left = [place for place in left if events[place].delivery in begun]
    if not left:
        return None
    first = events[left[0]].delivery
    story = [place for place in delivery_places(history, first) if place <= end]
    kinds = {events[place].kind for place in story}
    return failed(
        f"run() returned at {moment(history, end)} with {counted(len(left), 'message')} in hand that "
        f"{were(len(left))} neither settled nor given back: "
        f"{some(events[place].message for place in left)}.",
        witness(history, [*story[:5], told, end]),
        _slip_of_unsettled(kinds),
    )


def _slip_of_unsettled(kinds: set[Kind]) -> str:
    if Kind.STARTED not in kinds:
        return "What becomes of messages that were taken and still waited for a worker at the stop?"
    if kinds & set(ENDS):
        return "Does run() wait until the settlements have returned too?"
    return "Does run() wait for the handlers that are running when stop is set?"


def _unhandled(history: History, life: Life, told: int) -> Verdict | None:
    """Messages settled for good after the stop, though no handler had ended for them."""
    calls = after(before(history.where(*FINAL), _duty_ends(life)), told)
    late = of_process(history, calls, life.process)
    if not late:
        return None
    ended = {kind: first_place(history, kind) for kind in ENDS}
    found = [
        place
        for place in late
        if all(ended[kind].get(history.events[place].delivery, NEVER) > place for kind in ENDS)
    ]
    if not found:
        return None
    first = history.events[found[0]]
    return failed(
        f"{counted(len(found), 'message')} in hand {were(len(found))} settled for good "
        f"after stop was set at {moment(history, told)}, though no handler had finished with "
        f"{'it' if len(found) == 1 else 'them'}: {some(history.events[p].message for p in found)}.",
        witness(history, [*delivery_places(history, first.delivery)[:7], told]),
        "At the stop, are messages acked or given up instead of given back with nack(requeue=True)?",
    )


def _tried_again(history: History, life: Life, told: int) -> Verdict | None:
    """Handlers begun after the stop with deliveries that had failed."""
    failures = first_place(history, Kind.FAILED)
    starts = after(history.places[Kind.STARTED], max(told, life.stop_in_force))
    again = [
        place
        for place in of_process(history, starts, life.process)
        if failures.get(history.events[place].delivery, NEVER) < place
    ]
    if not again:
        return None
    first = history.events[again[0]]
    story = before(delivery_places(history, first.delivery), again[0] + 1)
    return failed(
        f"{first.message} had failed and was tried again at {moment(history, again[0])}, though stop "
        f"was set at {moment(history, told)}.",
        witness(history, [*story[:2], *story[-4:], told]),
        "Does a stop end the pause between two tries, and is the message given back then?",
    )


def _put_off(history: History, life: Life, told: int) -> Verdict | None:
    """Messages that were given back after the stop, but not for anybody to take them soon."""
    calls = after(before(history.places[Kind.REQUEUE], _duty_ends(life)), told)
    late = [
        place
        for place in of_process(history, calls, life.process)
        if delay_s(history.events[place]) > LONGEST_DELAY_S
    ]
    if not late:
        return None
    first = history.events[late[0]]
    return failed(
        f"{counted(len(late), 'message')} {were(len(late))} given back after stop was set at "
        f"{moment(history, told)} with a delay of {first.detail} s, and {LONGEST_DELAY_S:g} s is "
        f"allowed: {some(history.events[place].message for place in late)}.",
        witness(history, [*delivery_places(history, first.delivery)[:7], told]),
        "Does the next process have to wait for what this one gives back at the stop?",
    )


def _slow(history: History, life: Life, told: int) -> Verdict | None:
    if not _came_back(life):
        return None
    last, idle_s = idle_before(history, life, told, life.returned)
    if not idle_s > prompt_s(history):
        return None
    return failed(
        f"run() returned {idle_s:.1f} s after the last thing that happened "
        f"({moment(history, last)}), with nothing left to do.",
        witness(history, [*last_of(history, life, life.returned), told, life.returned]),
        "Is `stop` only looked at when a timeout of a take, or a sleep, is over?",
    )


_LOOKS_AT_STOP = (
    _cancelled,
    _ended_badly,
    _stands,
    _unsettled,
    _unhandled,
    _put_off,
    _tried_again,
    slept_through_the_stop,
    keeps_writing,
    done_twice,
    left_behind,
    _slow,
)
