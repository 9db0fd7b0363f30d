"""`ackademy replay`: one simulated run again, event by event."""

from __future__ import annotations

from autograder import catalog
from autograder.cli import checking
from autograder.cli.checking import EXIT_CODES, Order
from autograder.cli.output import Out
from autograder.grading.simulated import replay as run_again
from autograder.grading.verdicts import Judged
from autograder.model import Event, Status

_WORST_FIRST = (Status.FAIL, Status.INCONCLUSIVE, Status.PASS)


def replay(run: str, order: Order) -> int:
    """Run it again and show everything that happened; the exit code of its worst verdict."""
    root = catalog.course_root()
    exercise = checking.exercise_of(root, order.exercise)
    tests = checking.tests_of(exercise, visible=order.visible)
    judged = run_again(exercise, order.submission or exercise.skeleton, run, tests=tests)
    console = Out()
    for number, each in enumerate(judged, 1):
        _show(console, each, f"run {number} of {len(judged)}, {each.history.workers} workers")
    statuses = {verdict.status for each in judged for verdict in each.verdicts.values()}
    if Status.FAIL not in statuses:
        return EXIT_CODES[Status.PASS]
    console.tell(f"Next: ackademy hint {_first_failing(judged)}")
    return EXIT_CODES[Status.FAIL]


def _first_failing(judged: list[Judged]) -> str:
    failing = (
        name
        for each in judged
        for name, verdict in each.verdicts.items()
        if verdict.status is Status.FAIL
    )
    return next(failing)


def _show(console: Out, judged: Judged, title: str) -> None:
    """Every event of one history, those that broke a rule marked, and what was made of it."""
    culprits = {
        event
        for verdict in judged.verdicts.values()
        if verdict.status is Status.FAIL
        for event in verdict.witness
    }
    console.tell(f"{judged.history.test}: {title}", style="bold")
    for event in judged.history.events:
        console.tell(_line(event, marked=event in culprits))
    ordered = sorted(judged.verdicts.items(), key=lambda item: _WORST_FIRST.index(item[1].status))
    for name, verdict in ordered:
        console.tell(f"{verdict.status:<12} {name}: {verdict.observed}")
    console.tell("")


def _line(event: Event, *, marked: bool) -> str:
    """`> 0.001234  1  started  order-0001-abc123  delivery 3, attempt 1`."""
    about = [event.message, event.detail.partition("\n")[0]]
    if event.delivery:
        about.insert(1, f"delivery {event.delivery}, attempt {event.attempt}")
    sign = ">" if marked else " "
    told = "  ".join(filter(None, about))
    return f"{sign} {event.at:10.6f}  {event.process}  {event.kind:<14} {told}".rstrip()
