"""From many histories to one result per guarantee: the worst verdict counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from autograder import checks
from autograder.model import (
    Exercise,
    Guarantee,
    History,
    Kind,
    Problem,
    Result,
    Status,
    Verdict,
    Wait,
    unwritten,
)


@dataclass(frozen=True)
class Judged:
    """One history and what each guarantee of its scenario makes of it."""

    history: History
    verdicts: dict[str, Verdict]


def judge(
    exercise: Exercise, declared: Sequence[Guarantee], histories: Iterable[History]
) -> list[Judged]:
    """Judge the histories of one scenario by all that the exercise promises.

    A promise is broken wherever it is seen broken. That it was kept, or could not be judged, counts
    only where the scenario declares it: there the promise was put to the test.
    """
    besides = [checks.find(name) for name in exercise.points]
    besides = [each for each in besides if each not in declared]
    return [Judged(each, _verdicts(each, declared, besides)) for each in histories]


def _verdicts(
    history: History, declared: Sequence[Guarantee], besides: Sequence[Guarantee]
) -> dict[str, Verdict]:
    broken = checks.judge(history, besides).items()
    return checks.judge(history, declared) | {
        name: verdict for name, verdict in broken if verdict.status is Status.FAIL
    }


def results(exercise: Exercise, judged: Sequence[Judged]) -> tuple[Result, ...]:
    """One result for each guarantee that the exercise gives points for, in its order."""
    return tuple(_result(name, points, judged) for name, points in exercise.points.items())


def put_to_the_test(found: Sequence[Result], judged: Sequence[Judged]) -> tuple[Result, ...]:
    """The results of a whole grade, without passes for promises that were kept by doing nothing."""
    if any(each.history.of(Kind.FINISHED) for each in judged):
        return tuple(found)
    return tuple(_untested(each) for each in found)


def _untested(result: Result) -> Result:
    """Whoever never finishes a message keeps many promises by doing nothing: that is no pass."""
    if result.verdict.status is not Status.PASS:
        return result
    nothing = "no handler finished in any run, so this promise was not put to the test"
    return replace(result, verdict=Verdict(Status.INCONCLUSIVE, nothing))


def _result(name: str, points: int, judged: Sequence[Judged]) -> Result:
    guarantee = checks.find(name)
    found = [each for each in judged if name in each.verdicts]
    if not found:
        nothing = Verdict(Status.INCONCLUSIVE, "no run was judged by this guarantee")
        return Result(name, guarantee.sentence, points, nothing, 0)
    worst = max(found, key=lambda each: _severity(each, name))
    verdict, history = worst.verdicts[name], worst.history
    return Result(
        guarantee=name,
        sentence=guarantee.sentence,
        points=points,
        verdict=verdict,
        histories=len(found),
        test=history.test,
        seed=history.seed,
        history=history,
    )


def _severity(judged: Judged, guarantee: str) -> tuple[int, int]:
    """Which verdict speaks for the guarantee; among equals the shortest history, easiest to read.

    Of what is not written yet the first scenario speaks: a file is written from its top.
    A fail outweighs everything. A run that was cut short outweighs a pass: it may have hidden a
    fail. A run in which the rule merely never applied says nothing beside one in which it held.
    """
    verdict, history = judged.verdicts[guarantee], judged.history
    status = verdict.status
    if status is Status.FAIL:
        if any(map(unwritten, verdict.witness)):
            return 3, 0
        weight = 3
    elif status is Status.PASS:
        weight = 1
    else:
        weight = 2 if _cut_short(judged) else 0
    return weight, -len(history.events)


def applies(judged: Sequence[Judged], guarantee: str) -> bool:
    """Whether these runs say anything about a guarantee: it held, was broken, or time ran out."""
    return any(_severity(each, guarantee)[0] > 0 for each in judged if guarantee in each.verdicts)


def _cut_short(judged: Judged) -> bool:
    """Whether this run ended before it was complete, and no fail of its own says why."""
    history = judged.history
    waits = [event.detail for event in history.of(Kind.EXPECTED)]
    if history.truncated or any(wait.startswith(Wait.LATE) for wait in waits):
        return True
    failed = any(each.status is Status.FAIL for each in judged.verdicts.values())
    return not failed and any(not wait.startswith(Wait.MET) for wait in waits)


def problem(judged: Iterable[Judged]) -> Problem | None:
    """Why the submission could not be graded at all, if a history says so."""
    for each in judged:
        for event in each.history.of(Kind.BROKEN):
            head, _, trace = event.detail.partition("\n")
            code, _, sentence = head.partition(": ")
            return Problem(code, sentence, trace)
    return None
