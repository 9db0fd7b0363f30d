"""Scenarios: the coroutines of a hidden or visible test file, and what each of them judges."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from autograder.model import GraderError, Guarantee

if TYPE_CHECKING:
    from autograder.exam.exam import Exam

ScenarioFunction = Callable[["Exam"], Awaitable[None]]
F = TypeVar("F", bound=ScenarioFunction)
_ATTRIBUTE = "ackademy_guarantees"
_SIMULATED = "ackademy_simulated_only"


class ScenarioOver(Exception):  # noqa: N818 - the end of a scenario, not a fault
    """What the scenario waited for cannot come: it ends here, and the history so far is judged."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One test: its name, its coroutine, and the guarantees it is able to judge."""

    name: str
    function: ScenarioFunction
    guarantees: tuple[Guarantee, ...]
    simulated_only: str = ""  # why no real broker runs it; empty: all of them do


def simulated_only(why: str) -> Callable[[F], F]:
    """Declare that a scenario runs in the simulation only, and why: it takes too long elsewhere."""

    def mark(function: F) -> F:
        setattr(function, _SIMULATED, why)
        return function

    return mark


def why_simulated_only(function: object) -> str:
    """Why this test function is for the simulation only; empty if it is not."""
    return str(getattr(function, _SIMULATED, ""))


def guarantees(*declared: Guarantee) -> Callable[[F], F]:
    """Declare what a scenario's histories are judged by.

    Raises `TypeError` for anything that is not a guarantee: a scenario that judges nothing is a
    mistake of its author.
    """
    if not declared or not all(isinstance(each, Guarantee) for each in declared):
        raise TypeError("@guarantees needs the guarantees themselves, at least one")

    def mark(function: F) -> F:
        setattr(function, _ATTRIBUTE, declared)
        return function

    return mark


def declared_by(function: object) -> tuple[Guarantee, ...]:
    """The guarantees a test function declares; empty if it is no scenario."""
    found: tuple[Guarantee, ...] = getattr(function, _ATTRIBUTE, ())
    return found


def load_scenarios(path: Path) -> list[Scenario]:
    """The scenarios of a test file of ours, in the order they are written.

    Runs in the examiner. Raises `GraderError` if the file is missing or broken: a student is
    never charged for that.
    """
    if not path.is_file():
        raise GraderError(f"There are no tests at {path}.", next_command="ackademy list")
    spec = importlib.util.spec_from_file_location(f"scenarios_{abs(hash(path))}", path)
    if spec is None or spec.loader is None:
        raise GraderError(f"{path} cannot be loaded.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise GraderError(f"{path} does not load: {error!r}.") from error
    functions = [
        function
        for name, function in inspect.getmembers(module, inspect.iscoroutinefunction)
        if name.startswith("test_") and declared_by(function)
    ]
    functions.sort(key=lambda function: function.__code__.co_firstlineno)
    if not functions:
        raise GraderError(f"{path} holds no scenario with @guarantees.")
    return [
        Scenario(each.__name__, each, declared_by(each), why_simulated_only(each))
        for each in functions
    ]
