"""How verdicts speak: counts with their nouns, a few names instead of all, a few events of many."""

from __future__ import annotations

from collections.abc import Iterable

from autograder.model import Event, History

WITNESS = 8  # events: more would hide the one that matters


def counted(number: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def were(number: int) -> str:
    """`was` for one, `were` for more."""
    return "was" if number == 1 else "were"


def failure(detail: str) -> str:
    """How a handler failed, from its event's detail; its own CancelledError is no cancelling."""
    return "raised CancelledError itself" if detail == "cancelled" else detail or "error"


def first_line(text: str, otherwise: str) -> str:
    """The first line of a detail, or what to say if there is none."""
    return text.partition("\n")[0].strip() or otherwise


def some(names: Iterable[str], limit: int = 3) -> str:
    """The first few names, and how many more there are."""
    distinct = list(dict.fromkeys(name or "(no id)" for name in names))
    shown = ", ".join(distinct[:limit])
    more = len(distinct) - limit
    return f"{shown} and {more} more" if more > 0 else shown


def moment(history: History, place: int) -> str:
    """`0.412 s`: when the event at this place happened."""
    return f"{history.events[place].at:.3f} s"


def witness(history: History, places: Iterable[int]) -> tuple[Event, ...]:
    """The events at these places in time order; of too many, the beginning and the end."""
    wanted = sorted({place for place in places if 0 <= place < len(history.events)})
    if len(wanted) > WITNESS:
        wanted = wanted[: WITNESS // 2] + wanted[-WITNESS // 2 :]
    return history.at(wanted)


def delivery_places(history: History, number: int) -> list[int]:
    """Where one delivery's events stand."""
    return [place for place, event in enumerate(history.events) if event.delivery == number]


def message_places(history: History, message: str) -> list[int]:
    """Where one message's events stand, over all its deliveries."""
    return [place for place, event in enumerate(history.events) if event.message == message]
