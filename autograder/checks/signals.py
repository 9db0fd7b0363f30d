"""A process and its signals: how soon it ends, by what deadline, and with which exit status."""

from __future__ import annotations

from autograder.checks.endings import (
    SETTLED,
    allowed_s,
    end_of,
    ended,
    hanging,
    in_vain,
    is_interrupt,
    last_of_handlers,
    says_all_is_well,
    says_too_little,
    seconds_until_end,
    settled_unfinished,
    signal_name,
    told_lives,
    too_early,
    torn_off,
)
from autograder.checks.ledger import ENDS, open_at
from autograder.checks.lives import NEVER
from autograder.checks.phrases import counted, moment, were, witness
from autograder.checks.registry import guarantee
from autograder.model import History, Kind, Verdict, failed, inconclusive, passed

IDLE_S = 2.0
"""Seconds in which a process that has nothing to do ends once it is told to: the contract's."""

CLOSING_S = 1.0
"""Seconds from the deadline, or from the second signal, until the process has ended: the same."""


@guarantee
def idle_shutdown_is_prompt(history: History) -> Verdict:
    """With nothing to do, the process ends within 2 s of the signal.

    Judged where a signal met a process with no message in hand. Another 2 s are allowed for a loaded
    machine, 1 s where time is virtual. How it ended is not asked here, only when.
    """
    seen = ""
    for life in told_lives(history):
        first = life.signals[0]
        if open_at(history, first, Kind.TAKEN, SETTLED) or open_at(
            history, first, Kind.STARTED, ENDS
        ):
            continue
        took_s = seconds_until_end(history, life, first)
        if took_s is None:
            continue
        if took_s > allowed_s(history, IDLE_S):
            return failed(
                f"{signal_name(history, first)} at {moment(history, first)} met a process with nothing "
                f"in hand, which {ended(history, life, first)}.",
                witness(
                    history,
                    [*last_of_handlers(history, life, first, 2), first, end_of(history, life)],
                ),
                "Is a flag only looked at when a timeout, or a pause between two looks, is over?",
            )
        seen = f"With nothing in hand, the process ended {took_s:.2f} s after the signal."
    return passed(seen) if seen else inconclusive("No signal was seen to meet an idle process.")


@guarantee
def deadline_is_kept(history: History) -> Verdict:
    """Whatever hangs, it ends by its deadline, and gives no work up.

    Judged where a handler was still at work `deadline_s` after the first signal, or would have been,
    and no second signal came. Wrong when the process ends later than 1 s after the deadline (another
    2 s are allowed for a loaded machine, 1 s where time is virtual); when it tears handlers off
    earlier, which had until then; when it acks or gives up a message that no handler had finished; when its
    exit status then says that all is well.

    Tolerated: giving unfinished messages back with `nack(requeue=True)`, or leaving that to `close()`.
    """
    kept = ""
    for life in told_lives(history):
        first = life.signals[0]
        at_work = hanging(history, life, first)
        if not (life.deadline_s and at_work) or len(life.signals) > 1:
            continue
        torn = torn_off(history, life, first)
        early = [place for place in torn if place < life.expired]
        if early:
            return too_early(history, life, early)
        took_s = seconds_until_end(history, life, first)
        if took_s is not None and took_s > life.deadline_s + allowed_s(history, CLOSING_S):
            return failed(
                f"{counted(len(at_work), 'handler')} {were(len(at_work))} at work when "
                f"{signal_name(history, first)} came at {moment(history, first)}, with {life.deadline_s:g} s "
                f"to go; the process {ended(history, life, first)}.",
                witness(history, [*list(at_work.values())[:3], first, end_of(history, life)]),
                "Is the deadline one for everything together, counted from the signal, and is there one "
                "around every wait?",
            )
        verdict = settled_unfinished(history, life, first) or says_all_is_well(history, life, torn)
        if verdict is not None:
            return verdict
        if took_s is not None and torn:
            kept = f"The process ended {took_s:.2f} s after the signal, with {life.deadline_s:g} s to go."
    return passed(kept) if kept else inconclusive("No handler was seen to hang until a deadline.")


@guarantee
def second_signal_is_faster(history: History) -> Verdict:
    """A second signal ends it within a second, whatever the deadline.

    Wrong when handlers that hang are still waited for, or when a message that no handler had finished
    is acked or given up. Dying by the second signal is right, too: the broker brings back what was in
    hand. Allowances for time as in `deadline_is_kept`.
    """
    seen = ""
    for life in told_lives(history):
        if len(life.signals) < 2:
            continue
        second = life.signals[1]
        at_work = open_at(history, second, Kind.STARTED, ENDS)
        took_s = seconds_until_end(history, life, second)
        if not at_work or took_s is None:
            continue
        if took_s > allowed_s(history, CLOSING_S):
            return failed(
                f"A second signal came at {moment(history, second)}, and the process "
                f"{ended(history, life, second)}.",
                witness(
                    history, [*list(at_work.values())[:2], *life.signals, end_of(history, life)]
                ),
                "Does a second signal reach anything, or does it set what is set already?",
            )
        verdict = settled_unfinished(history, life, life.signals[0])
        if verdict is not None:
            return verdict
        seen = f"After the second signal the process ended within {took_s:.2f} s."
    return passed(seen) if seen else inconclusive("No second signal was seen to meet work in hand.")


@guarantee
def sigint_equals_sigterm(history: History) -> Verdict:
    """Ctrl-C ends the process just as SIGTERM does.

    Judged up to the deadline, or a second signal. Wrong when, after SIGINT, running handlers are
    cancelled, the process dies by the signal, does not end, or ends with another status than a process
    that was sent SIGTERM in the same run (0, if there is none).
    """
    lives = told_lives(history)
    statuses = {
        life.end
        for life in lives
        if not is_interrupt(history, life) and life.exited < min(life.expired, life.killed)
    }
    wanted = statuses.pop() if len(statuses) == 1 else "status 0"
    seen = False
    for life in filter(lambda life: is_interrupt(history, life), lives):
        first = life.signals[0]
        early = [place for place in torn_off(history, life, first) if place < life.expired]
        stood = in_vain(history, life, first)
        in_time = min(stood, life.exited) < min(life.expired, life.killed)
        if early or (in_time and (stood < NEVER or life.end != wanted)):
            how = f"ended with {life.end}" if life.end else "did not end"
            if early:
                how = f"tore off {counted(len(early), 'running handler')} and {how}"
            return failed(
                f"SIGINT came at {moment(history, first)}; the process {how}, where SIGTERM makes it "
                f"end with {wanted}.",
                witness(
                    history,
                    [
                        *last_of_handlers(history, life, first, 3),
                        first,
                        *early[:2],
                        life.raised,
                        min(stood, life.exited),
                    ],
                ),
                "Is there a handler for SIGINT as well? Without one, Ctrl-C becomes KeyboardInterrupt: "
                "`asyncio.run` cancels your main.",
            )
        seen |= in_time
    if not seen:
        return inconclusive("No process was seen to end by SIGINT.")
    return passed(f"After SIGINT the process ended as after SIGTERM, with {wanted}.")


@guarantee
def exit_code_tells(history: History) -> Verdict:
    """The exit status is 0 exactly if everything begun was finished.

    Whoever started the process reads nothing else. Wrong when it ends with 0 although a handler was
    cancelled or still at work; with another status although all that was begun was finished and
    settled; by the first signal itself, which looks like a crash (143 in a shell) and says nothing.
    After a second signal, dying by it is as good as any status but 0.
    """
    judged = 0
    for life in told_lives(history):
        if not life.exited < life.killed:
            continue
        verdict = says_all_is_well(history, life, torn_off(history, life, life.signals[0]))
        verdict = verdict or says_too_little(history, life)
        if verdict is not None:
            return verdict
        judged += 1
    if not judged:
        return inconclusive("No process was seen to end after a signal.")
    said = "The exit status said" if judged == 1 else f"{judged} exit statuses said"
    return passed(f"{said} how it had gone.")
