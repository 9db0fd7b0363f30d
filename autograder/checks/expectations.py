"""What scenarios waited for, and how the waiting ended."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from autograder.model import History, Kind, Wait

_FIGURES = {"buffered", "in_hand", "busy", "held"}
_STOOD = {Wait.STALLED, Wait.BLOCKED, Wait.DRAINED}
_HANDS_ON = {"pause": "resume", "stall": "heal"}  # a fault that lasts, and what ends it


@dataclass(frozen=True, slots=True)
class Expectation:
    """One `EXPECTED` event, read: `stalled running=4 seen=1 buffered=36 in_hand=1 busy=1 held=1`."""

    place: int
    process: int
    wait: str  # a `Wait`, or a word that this version does not know
    wanted: Mapping[str, int] = field(default_factory=dict)
    seen: Mapping[str, int] = field(default_factory=dict)  # by condition
    figures: Mapping[str, int] = field(default_factory=dict)

    @property
    def busy(self) -> int:
        """Handlers that were running."""
        return self.figures.get("busy", self.seen.get("running", 0))

    @property
    def held(self) -> int:
        """How many of them the examiner itself held at a gate."""
        return self.figures.get("held", 0)

    @property
    def in_hand(self) -> int:
        """Messages taken and not settled."""
        return self.figures.get("in_hand", 0)

    @property
    def about_the_end(self) -> bool:
        """Whether the scenario waited for run() to come back."""
        return "returned" in self.wanted or "exited" in self.wanted


def read_expectations(history: History) -> list[Expectation]:
    """Everything scenarios waited for, in time order."""
    return [_read(history, place) for place in history.places[Kind.EXPECTED]]


def _read(history: History, place: int) -> Expectation:
    event = history.events[place]
    wait, *words = event.detail.split() or [""]
    wanted: dict[str, int] = {}
    seen: dict[str, int] = {}
    figures: dict[str, int] = {}
    condition = ""
    for word in words:
        name, _, text = word.partition("=")
        value = 1  # a flag: `returned`, `returned=True`
        with suppress(ValueError):
            value = int(text)
        if name in _FIGURES:
            figures[name] = value
        elif name == "seen":
            seen[condition] = value
        else:
            condition = name
            wanted[name] = value
    return Expectation(place, event.process, wait, wanted, seen, figures)


def stood_still(history: History) -> list[Expectation]:
    """Where the subject stood although nothing of the examiner's was in its way but gates."""
    return [
        expectation
        for expectation in read_expectations(history)
        if expectation.wait in _STOOD and not impeded(history, expectation.place)
    ]


def impeded(history: History, place: int) -> bool:
    """Whether the examiner's own hand was on the subject: frozen, or cut off in silence."""
    on: set[str] = set()
    for each in history.where(Kind.FAULT, Kind.BREAK):
        if each >= place:
            break
        event = history.events[each]
        word = "pause" if event.kind is Kind.BREAK else event.detail.partition(" ")[0]
        if word in _HANDS_ON:
            on.add(word)
        elif word == "kill":
            on.discard("pause")
        else:
            on -= {fault for fault, end in _HANDS_ON.items() if end == word}
    return bool(on)
