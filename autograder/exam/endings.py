"""Which ends of a subject's process break a submission: those that nobody asked for."""

from __future__ import annotations

from signal import Signals
from typing import TYPE_CHECKING

from autograder.exam.process import exit_text
from autograder.model import GraderError
from autograder.subject import exits, reporter

if TYPE_CHECKING:
    from autograder.exam.process import Subject
    from autograder.model import Call
    from autograder.subject.tally import Life


def unasked(call: Call, subject: Subject, life: Life) -> str:
    """Why the end of this process breaks the submission; empty if it does not."""
    code = subject.exit_code
    if subject.garbage:
        return (
            f"control: the module wrote to the grader's control connection ({subject.garbage}).\n"
        )
    if code == reporter.EXIT_CONTROL_LOST or (code is None and not life.ended_by_us):
        return "control: the module closed the grader's control connection or killed its keeper.\n"
    return told_by_kernel(call, code, life)


def told_by_kernel(call: Call, code: int | None, life: Life) -> str:
    """The same, of what the kernel says, or the simulation in its place."""
    if life.ended_by_us or life.died_at_work or life.returned:
        return ""
    if call.is_main and life.told:
        return ""  # however it ends now: a guarantee judges that
    if code in {exits.EXIT_NO_BROKER, exits.EXIT_BUG} and not has_begun(call, life):
        return ""  # the exam asks the broker and decides whose fault it is
    if code == -Signals.SIGXCPU:
        return "cpu: the module used more processor time than any solution needs and was stopped.\n"
    if code == -Signals.SIGKILL:
        return "killed: the process was killed from outside, most likely for want of memory.\n"
    return (
        f"exited: the process ended by itself ({exit_text(code)}) in the middle of the run: "
        "os._exit, or a crash.\n"
    )


def refuse_unstarted(call: Call, subject: Subject, life: Life) -> None:
    """Raise `GraderError` if this process ended before it was the module's: what it says then is ours."""
    if subject.exit_code in {exits.EXIT_NO_BROKER, exits.EXIT_BUG} and not has_begun(call, life):
        last = subject.printed.text().strip().splitlines()[-1:]
        raise GraderError(f"The subject could not be started: {' '.join(last)}")


def has_begun(call: Call, life: Life) -> bool:
    """Whether the end of this process is the module's own: before, it is ours."""
    return life.connected if call.is_main else life.called
