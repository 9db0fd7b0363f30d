"""The catalogue of guarantees, filled by the `guarantee` decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from autograder.model import Guarantee, History, Kind, UsageError, Verdict, failed

_CATALOGUE: dict[str, Guarantee] = {}


def guarantee(check: Callable[[History], Verdict]) -> Guarantee:
    """Register a check under its own name. Use as a decorator."""
    sentence, _, description = inspect.cleandoc(check.__doc__ or "").partition("\n")
    if not sentence:
        raise ValueError(
            f"{check.__name__} needs a docstring: its first line is what students read"
        )
    entry = Guarantee(check.__name__, sentence, description.strip(), check)
    if _CATALOGUE.setdefault(entry.name, entry) is not entry:
        raise ValueError(f"two guarantees are called {entry.name}")
    return entry


def catalogue() -> Mapping[str, Guarantee]:
    """Every guarantee there is, by name."""
    return dict(_CATALOGUE)


def find(name: str) -> Guarantee:
    """The guarantee of this name. Raises `UsageError` with the nearest names if there is none."""
    try:
        return _CATALOGUE[name]
    except KeyError:
        known = ", ".join(sorted(_CATALOGUE))
        raise UsageError(f"There is no guarantee called {name!r}. There are: {known}.") from None


def judge(history: History, guarantees: Iterable[Guarantee]) -> dict[str, Verdict]:
    """Every declared guarantee's verdict on one history.

    A submission that cannot be graded at all (a `BROKEN` event), or that raised before it took a
    single message, has kept no promise: each guarantee fails with that sentence, so that nothing
    seen is never a pass.
    """
    broken = history.of(Kind.BROKEN)
    if broken:
        sentence = broken[0].detail.partition("\n")[0].partition(": ")[2]
        return {each.name: failed(sentence, broken[:1]) for each in guarantees}
    raised = history.of(Kind.RUN_RAISED)
    begun = history.where(Kind.TAKEN, Kind.LETTER_TAKEN, Kind.FAULT)
    if raised and not begun:
        what = raised[0].detail.partition("\n")[0]
        sentence = f"the function raised {what} before it took a single message"
        return {each.name: failed(sentence, raised[:1]) for each in guarantees}
    function = called(history)
    return {each.name: _about(function, each(history)) for each in guarantees}


def called(history: History) -> str:
    """The name of the function that was called: `run`, unless the exercise has it otherwise."""
    return next(
        (each.detail.split()[0] for each in history.of(Kind.RUN_STARTED) if each.detail), "run"
    )


def _about(function: str, verdict: Verdict) -> Verdict:
    """Checks speak of run(): in an exercise whose function has another name, of that one."""
    if function == "run":
        return verdict
    name = f"{function}()"
    return replace(
        verdict,
        observed=verdict.observed.replace("run()", name),
        slip=verdict.slip.replace("run()", name),
    )
