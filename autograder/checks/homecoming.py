"""How run() comes to its end: promptly, with nothing left behind, and as it was told to."""

from __future__ import annotations

from autograder.checks.expectations import impeded, stood_still
from autograder.checks.ledger import before, of_process
from autograder.checks.lives import NEVER, Life
from autograder.checks.phrases import counted, first_line, moment, some, witness
from autograder.model import History, Kind, Verdict, failed

PROMPT_S = 5.0  # the contract says 1 s; a loaded machine may need more
PROMPT_SIMULATED_S = 1.5  # no load there: what a poll of a second may add, and no more
TRIES_AFTER_STOP = 2  # of one letter: one under way, and one that was about to begin
_ACTIVITY = frozenset(Kind) - {
    Kind.EXPECTED,
    Kind.SOURCE_STOPPED,
    Kind.SOURCE_CLOSED,
    Kind.PUBLISHED,
    Kind.CONFIRMED,
}


def prompt_s(history: History) -> float:
    """How many seconds without any event may pass before run() comes to its end."""
    return PROMPT_SIMULATED_S if history.engine == "sim" else PROMPT_S


def idle_before(history: History, life: Life, told: int, end: int) -> tuple[int, float]:
    """Where the last thing happened before this end, and how many seconds earlier that was.

    While the source closes, the broker is what is waited for; so it is while the examiner's hand
    is on the subject.
    """
    if impeded(history, end):
        return end, 0.0
    places = before(history.places[Kind.SOURCE_CLOSED], end)
    closed = of_process(history, places, life.process)
    last = max([told, *closed[-1:], *last_of(history, life, end)[:1]])  # the latest comes first
    return last, history.events[end].at - history.events[last].at


def last_of(history: History, life: Life, place: int) -> list[int]:
    """The last few events of this process before a place."""
    found: list[int] = []
    for each in range(min(place, len(history.events)) - 1, -1, -1):
        event = history.events[each]
        if event.process == life.process and event.kind in _ACTIVITY:
            found.append(each)
        if len(found) == 4:
            break
    return found


def left_behind(history: History, life: Life, told: int) -> Verdict | None:
    """Tasks that outlived run()."""
    end = min(life.returned, life.raised)
    if end == NEVER or end > life.over or end == life.exited:  # a process takes its tasks with it
        return None
    event = history.events[end]
    text = event.detail
    if event.kind is Kind.RUN_RAISED:  # "CancelledError (worker_pool.py:31); left behind: worker-1"
        text = first_line(text, "").partition("left behind: ")[2]
    tasks = [name for name in text.split(", ") if name.strip()]
    if not tasks:
        return None
    return failed(
        f"run() ended at {moment(history, end)} and left {counted(len(tasks), 'task')} behind: "
        f"{some(tasks)}.",
        witness(history, [*last_of(history, life, end), told, end]),
        "Is every task you create awaited, or cancelled and then awaited?",
    )


def keeps_writing(history: History, life: Life, told: int) -> Verdict | None:
    """Letters that are tried again and again after the stop, though nobody confirms them.

    One more try is nobody's fault: it may have been about to begin when the stop came.
    """
    tries: dict[str, list[int]] = {}
    for place in of_process(history, history.places[Kind.DEAD_LETTER], life.process):
        if max(told, life.stop_in_force) < place < life.over:
            tries.setdefault(history.events[place].message, []).append(place)
    for name, places in tries.items():
        if len(places) > TRIES_AFTER_STOP:
            return failed(
                f"The letter of {name} was tried {len(places)} times after stop was set at "
                f"{moment(history, told)}, and run() went on.",
                witness(history, [told, *places[:4], *places[-2:]]),
                "Is a letter tried again until it is confirmed, whether `stop` is set or not?",
            )
    return None


def cancelled_run(history: History, life: Life) -> Verdict | None:
    """A cancelled run() that does not end, or not as it should."""
    fault = life.cancelled
    for each in stood_still(history):
        if each.process == life.process and fault < each.place < life.over and each.about_the_end:
            return failed(
                f"run() was cancelled at {moment(history, fault)} and had not ended at "
                f"{moment(history, each.place)}, when nothing moved any more; "
                f"{counted(each.busy, 'handler')} at work.",
                witness(history, [fault, *last_of(history, life, each.place), each.place]),
                "Is the CancelledError caught and not raised again, or does a `finally` wait for what "
                "will never come?",
            )
    if life.returned < life.killed and life.returned == life.over:
        return failed(
            f"run() was cancelled at {moment(history, fault)} and returned at "
            f"{moment(history, life.returned)} as if it had not been: CancelledError has to come out.",
            witness(history, [fault, *last_of(history, life, life.returned), life.returned]),
            "Is the CancelledError caught, or taken for a wish to stop, and not raised again?",
        )
    if life.over >= life.killed:
        return None
    return (
        _raised_another(history, life, fault)
        or left_behind(history, life, fault)
        or _cancelled_late(history, life, fault)
    )


def _raised_another(history: History, life: Life, fault: int) -> Verdict | None:
    """Another exception than the CancelledError: the detail begins with its name."""
    if life.raised != life.over:
        return None
    detail = first_line(history.events[life.raised].detail, "an exception")
    name = detail.partition(" (")[0].partition(":")[0]
    if name.endswith("CancelledError"):
        return None
    return failed(
        f"run() was cancelled at {moment(history, fault)} and raised {name}: CancelledError has to "
        "come out.",
        witness(history, [fault, *last_of(history, life, life.raised), life.raised]),
        "Is the CancelledError caught, and another exception raised instead?",
    )


def _cancelled_late(history: History, life: Life, fault: int) -> Verdict | None:
    """An end that took its time, though nothing happened any more."""
    if life.raised != life.over:
        return None
    last, idle_s = idle_before(history, life, fault, life.raised)
    if not idle_s > prompt_s(history):
        return None
    return failed(
        f"run() was cancelled at {moment(history, fault)} and ended {idle_s:.1f} s after the last "
        f"thing that happened ({moment(history, last)}).",
        witness(history, [fault, *last_of(history, life, life.raised), life.raised]),
        "Does a `finally`, or an `except CancelledError`, wait for something?",
    )
