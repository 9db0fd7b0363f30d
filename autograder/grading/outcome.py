"""What a grading has judged so far, and the results that it comes to."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from autograder import __version__
from autograder.exam import Scenario, Zygote
from autograder.grading import verdicts
from autograder.grading.submission import HandedIn, fingerprint
from autograder.model import Exercise, Grade, Problem, Result, Status, Verdict

Progress = Callable[[int, int], None]  # scenarios done, scenarios planned


@dataclass
class Collected:
    """What has been judged so far: all there is when somebody presses Ctrl-C."""

    judged: list[verdicts.Judged] = field(default_factory=list)
    scenarios: int = 0  # with one seed each; one may have several runs
    output: str = ""
    notices: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    complete: bool = False


@dataclass
class Tried:
    """What each seed showed, scenario by scenario, in whatever order they were done."""

    scenarios: list[Scenario]
    _judged: dict[int, dict[str, list[verdicts.Judged]]] = field(default_factory=dict)

    def begin(self, seed: int) -> None:
        """Try a seed, after those that were begun before it; it may come to show nothing."""
        self._judged.setdefault(seed, {})

    def add(self, seed: int, scenario: Scenario, judged: list[verdicts.Judged]) -> None:
        """Keep what one scenario showed with one seed."""
        self._judged[seed][scenario.name] = judged

    def any_failed(self) -> bool:
        """Whether any seed broke a guarantee so far."""
        return any(has_failed(self._of(seed)) for seed in self._judged)

    def counting(self, *, stop_early: bool) -> dict[int, list[verdicts.Judged]]:
        """What counts, seed by seed, each in the order of the scenarios.

        With `stop_early` nothing counts that was begun after the first seed that failed: a slow
        machine then says the same as a fast one.
        """
        counted = {}
        for seed in self._judged:
            counted[seed] = self._of(seed)
            if stop_early and has_failed(counted[seed]):
                break
        return counted

    def _of(self, seed: int) -> list[verdicts.Judged]:
        judged = self._judged[seed]
        return [one for each in self.scenarios for one in judged.get(each.name, [])]


def has_failed(judged: Sequence[verdicts.Judged]) -> bool:
    """Whether any guarantee was seen broken."""
    return any(
        verdict.status is Status.FAIL for each in judged for verdict in each.verdicts.values()
    )


def tests_of(exercise: Exercise) -> Path:
    """The hidden tests; the visible ones in the student edition."""
    return exercise.hidden_tests if exercise.hidden_tests.is_file() else exercise.visible_tests


def results_of(
    exercise: Exercise, scenarios: list[Scenario], collected: Collected, problem: Problem | None
) -> tuple[Result, ...]:
    """Results of what these scenarios can judge; a submission nobody could run kept no promise.

    Visible tests judge a part of the guarantees: the others are no part of their grade.
    """
    declared = {each.name for scenario in scenarios for each in scenario.guarantees}
    found = [
        each for each in verdicts.results(exercise, collected.judged) if each.guarantee in declared
    ]
    if problem is None or collected.judged:
        return verdicts.put_to_the_test(found, collected.judged)
    broken = Verdict(Status.FAIL, problem.sentence)
    return tuple(Result(each.guarantee, each.sentence, each.points, broken, 0) for each in found)


def as_grade(
    submission: HandedIn,
    collected: Collected,
    results: tuple[Result, ...],
    problem: Problem | None,
    zygote: Zygote,
    *,
    engine: str,
    provider: str,
    broker_version: str = "",
    notices: Sequence[str] = (),
    packages: Sequence[str] = (),
) -> Grade:
    """What a grading comes to, in the words of a report; `packages` are those it depended on."""
    return Grade(
        exercise=submission.exercise,
        submission=submission.file,
        submission_sha256=fingerprint(submission.data),
        engine=engine,
        provider=provider,
        broker_version=broker_version,
        isolation=zygote.isolation,
        seeds=tuple(collected.seeds),
        results=results,
        problem=problem,
        notices=notices_of(zygote, *notices, *collected.notices),
        output=collected.output,
        duration_s=time.monotonic() - submission.began,
        started_at=submission.at,
        versions=versions(*packages),
        complete=collected.complete,
    )


def notices_of(zygote: Zygote, *others: str) -> tuple[str, ...]:
    """What a report says once, each sentence once; that there are no walls, too."""
    notices = list(others)
    if zygote.isolation == "plain":
        notices.append(
            "No isolation: this system has no Landlock, or ACKADEMY_ISOLATION=plain is set. The "
            "module could read every file that you can. Grade only code you trust here."
        )
    return tuple(dict.fromkeys(notices))


def versions(*packages: str) -> dict[str, str]:
    """Versions of everything a verdict may depend on: ours, Python's, and these packages'."""
    found = {"ackademy": __version__, "python": platform.python_version()}
    for package in packages:
        found[package] = metadata.version(package)
    return found
