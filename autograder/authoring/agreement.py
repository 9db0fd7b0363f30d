"""Whether the simulation says what real brokers say: the same programs, verdict by verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console  # noqa: TC002 - a type everywhere else too

from autograder.authoring.folders import Finding
from autograder.authoring.submissions import Job, Outcome
from autograder.model import Status

SIMULATION = "sim"


@dataclass(frozen=True)
class Agreement:
    """Verdicts of one real engine beside those of the simulation."""

    engine: str
    compared: int
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Difference:
    """One guarantee of one program that was judged in two ways."""

    program: str
    guarantee: str
    simulated: Status | None  # None: no run was judged by it
    real: Status | None
    why: str = ""  # the reason its author gives; none: nobody expected it

    @property
    def contradicts(self) -> bool:
        """Whether one says pass and the other fail, and nobody has said why."""
        return not self.why and {self.simulated, self.real} == {Status.PASS, Status.FAIL}


def agreements(outcomes: Sequence[Outcome]) -> Iterator[Agreement]:
    """One for each real engine that programs were graded on, if they were simulated, too."""
    engines = dict.fromkeys(each.job.engine for each in outcomes)
    simulated = _by_program(outcomes, SIMULATION)
    expected = {each.job.submission.name: each.job.submission.differs for each in outcomes}
    for engine in engines:
        real = _by_program(outcomes, engine)
        programs = [name for name in real if name in simulated]
        if engine != SIMULATION and programs:
            pairs = [
                Difference(
                    name,
                    guarantee,
                    simulated[name].get(guarantee),
                    real[name].get(guarantee),
                    expected.get(name, {}).get(guarantee, ""),
                )
                for name in programs
                for guarantee in dict.fromkeys((*simulated[name], *real[name]))
            ]
            different = tuple(pair for pair in pairs if pair.simulated is not pair.real)
            yield Agreement(engine, len(pairs), different)


def doubtful(outcomes: Sequence[Outcome]) -> list[Job]:
    """What to grade once more on a broker: programs with a difference that nobody has named.

    A broker's run has its own chance, and a wrong program may break one more promise by it.
    """
    unnamed = {
        (each.engine, one.program)
        for each in agreements(outcomes)
        for one in each.differences
        if one.contradicts
    }
    jobs = [each.job for each in outcomes]
    return [job for job in jobs if (job.engine, job.submission.name) in unnamed]


def judge(outcomes: Sequence[Outcome], again: Sequence[Outcome]) -> Iterator[Finding]:
    """Differences that nobody has named: the simulation says something that is not so, or too little.

    One that is gone when the program is graded `again` was a broker's chance. Where one of the two is
    inconclusive it does not tell, and contradicts nothing.
    """
    for each in agreements(outcomes):
        repeated = _by_program(again, each.engine)
        for one in each.differences:
            second = repeated.get(one.program, {one.guarantee: one.real}).get(one.guarantee)
            if one.contradicts and second is not one.simulated:
                yield Finding(
                    f"{one.program} on {each.engine}",
                    f"{one.guarantee}: {_told(one, each.engine)}",
                    f"Make the simulation right, or name it: Differs: {one.guarantee} (why)",
                )


def _by_program(outcomes: Sequence[Outcome], engine: str) -> dict[str, dict[str, Status]]:
    """The verdicts of every program that has a grade on this engine."""
    return {
        each.job.submission.name: each.verdicts
        for each in outcomes
        if each.job.engine == engine and each.grade is not None
    }


def draw(outcomes: Sequence[Outcome], console: Console) -> None:
    """How far they agree, and every verdict in which they do not."""
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    for each in agreements(outcomes):
        same = each.compared - len(each.differences)
        say(f"\nsimulation and {each.engine}: {same} of {each.compared} verdicts are the same")
        for one in each.differences:
            say(f"    {one.program} {one.guarantee}: {_told(one, each.engine)}")
            say(
                f"        {one.why or ('nobody has said why' if one.contradicts else 'one does not tell')}"
            )


def _told(one: Difference, engine: str) -> str:
    return f"{_word(one.simulated)} in the simulation, {_word(one.real)} on {engine}"


def _word(status: Status | None) -> str:
    return str(status or "not judged")


def as_table(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """The same as plain JSON data."""
    return [
        {
            "engine": each.engine,
            "compared": each.compared,
            "differences": [vars(one) for one in each.differences],
        }
        for each in agreements(outcomes)
    ]
