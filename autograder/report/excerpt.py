"""Which events to draw: the witness and a little of what was around it.

A picture of all of a run hides the event that matters, and the witness alone may not say where
the message came from. So the witness comes first, then faults and stops on the way, then what else
happened to the same deliveries, the direct neighbours, and the predecessor of the same key: as many
as there is room for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise

from autograder.model import Event, History, Kind, Verdict
from autograder.report.timeline import Layout, lay_out

_TURNING_POINTS = frozenset(
    {Kind.FAULT, Kind.EXITED, Kind.STOP_SET, Kind.STOP_IN_FORCE, Kind.RUN_RAISED, Kind.RUN_RETURNED}
)
_PUBLISHING = frozenset({Kind.PUBLISHED, Kind.CONFIRMED})
_CANDIDATES = 200  # looked at, at most: a kept picture needs far fewer
_HANDLING = frozenset({Kind.STARTED, Kind.FINISHED, Kind.FAILED, Kind.CANCELLED})


def draw(verdict: Verdict, history: History | None, *, rows: int) -> Layout | None:
    """The picture of a verdict's witness in at most `rows` rows, or None without a witness."""
    if not verdict.witness:
        return None
    events: Sequence[Event] = history.events if history is not None else ()
    witness = verdict.witness
    if len(witness) > 2 * _CANDIDATES:  # only its ends can be shown
        witness = (*witness[:_CANDIDATES], *witness[-_CANDIDATES:])
    places = _find(witness, events)
    if not places:  # no history, or not from this one: it speaks for itself
        events = sorted(witness, key=lambda event: event.at)
        places = list(range(len(events)))
    shown = set(_both_ends(places, rows))
    for candidate in islice(_around(events, sorted(shown)), _CANDIDATES):
        if _rows(shown | {candidate}) <= rows:
            shown.add(candidate)
    # a lone event left out would cost a row all the same: "1 event left out"
    shown.update([at + 1 for at in shown if at + 1 not in shown and at + 2 in shown])
    return lay_out(events, show=shown, witness=frozenset(places))


def _rows(places: Collection[int]) -> int:
    """Rows it takes to show these events and to say how many are left out between them."""
    return len(places) + sum(one + 1 != other for one, other in pairwise(sorted(places)))


def _both_ends(places: Sequence[int], rows: int) -> list[int]:
    """As many places as fit into `rows` rows: how it began and how it ended."""
    for count in range(min(len(places), rows), 2, -1):
        head = (count + 1) // 2
        chosen = [*places[:head], *places[len(places) - (count - head) :]]
        if _rows(chosen) <= rows:
            return chosen
    return [places[0], places[-1]]


def _find(witness: Sequence[Event], events: Sequence[Event]) -> list[int]:
    """Where the witness lies in the run. Moments are compared first: that is cheap."""
    wanted = set(witness)
    moments = {event.at for event in wanted}
    places = [
        index for index, event in enumerate(events) if event.at in moments and event in wanted
    ]
    return places if len(places) >= len(wanted) else []


def _around(events: Sequence[Event], witness: Sequence[int]) -> Iterator[int]:
    """Places worth showing beside the witness, the most telling first."""
    first, last = witness[0], witness[-1]
    deliveries = {events[place].delivery for place in witness} - {0}
    same = [index for index, event in enumerate(events) if event.delivery in deliveries]
    between = [i for i in range(first, last) if events[i].kind in _TURNING_POINTS]
    handled = [index for index in same if events[index].kind in _HANDLING]
    neighbours = (
        next((at for at in way if events[at].kind not in _PUBLISHING), None)
        for way in (range(first - 1, -1, -1), range(last + 1, len(events)))
    )
    return chain(
        between,
        _nearest(handled, first, last),
        _nearest(same, first, last),
        (place for place in neighbours if place is not None),
        _predecessor(events, witness),
    )


def _nearest(places: Iterable[int], first: int, last: int) -> list[int]:
    """Places inside the witness first, then those close to it."""
    return sorted(places, key=lambda place: max(first - place, place - last, 0))


def _predecessor(events: Sequence[Event], witness: Sequence[int]) -> Iterator[int]:
    """The last handling of another message of the same key before the witness."""
    subject = next((events[place] for place in witness if events[place].key), None)
    if subject is None:
        return
    for index in range(witness[0] - 1, -1, -1):
        event = events[index]
        if (
            event.key == subject.key
            and event.message != subject.message
            and event.kind in _HANDLING
        ):
            yield index
            return
