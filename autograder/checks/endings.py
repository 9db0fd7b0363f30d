"""How a process ended that was sent a signal: when, how, and what was torn off on the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autograder.checks.expectations import impeded, stood_still
from autograder.checks.ledger import CALLS, ENDS, FINAL, after, before, of_process, open_at
from autograder.checks.lives import NEVER, Life, read_lives
from autograder.checks.phrases import counted, delivery_places, moment, some, were, witness
from autograder.model import History, Kind, Verdict, failed

MACHINE_S = 2.0
"""What a loaded machine and a real broker's goodbye may add to that; virtual time needs half of it."""

SETTLED = (Kind.SETTLED, Kind.SETTLE_FAILED)
_NAMES = {"terminate": "SIGTERM", "interrupt": "SIGINT"}


def allowed_s(history: History, contract_s: float) -> float:
    """What the contract says, and what a machine may add to it."""
    return contract_s + (MACHINE_S / 2 if history.engine == "sim" else MACHINE_S)


def told_lives(history: History) -> list[Life]:
    """The processes that were sent a signal, and had opened their connection by then."""
    lives = read_lives(history).values()
    return [life for life in lives if life.signals and life.connected < life.signals[0]]


def is_interrupt(history: History, life: Life) -> bool:
    """Whether its first signal was SIGINT."""
    return history.events[life.signals[0]].detail == "interrupt"


def signal_name(history: History, place: int) -> str:
    """What the signal at this place is called."""
    return _NAMES.get(history.events[place].detail, "a signal")


def seconds_between(history: History, since: int, place: int) -> float:
    """From one place to another."""
    return history.events[place].at - history.events[since].at


def seconds_until_end(history: History, life: Life, since: int) -> float | None:
    """Seconds until the process had ended; or for how long at least it had not; None: unknown."""
    end = end_of(history, life)
    if end == NEVER or life.killed <= end or impeded(history, end):
        return None
    return seconds_between(history, since, end)


def end_of(history: History, life: Life) -> int:
    """Where it ended, or was given up on."""
    return min(life.exited, in_vain(history, life, life.signals[0]))


def in_vain(history: History, life: Life, since: int) -> int:
    """Where somebody had waited for its end in vain."""
    return next(
        (
            each.place
            for each in stood_still(history)
            if each.process == life.process
            and since < each.place < life.exited
            and each.about_the_end
        ),
        NEVER,
    )


def ended(history: History, life: Life, since: int) -> str:
    """`ended 3.2 s later`, or that it had not by then."""
    took_s = seconds_between(history, since, end_of(history, life))
    if life.exited < in_vain(history, life, since):
        return f"ended {took_s:.1f} s later"
    return f"had not ended {took_s:.1f} s later"


def last_of_handlers(history: History, life: Life, place: int, number: int) -> list[int]:
    """The latest things that were said of deliveries of this process."""
    places = of_process(
        history, before(history.where(Kind.STARTED, *ENDS, *CALLS), place), life.process
    )
    return places[-number:]


def hanging(history: History, life: Life, signal: int) -> Mapping[int, int]:
    """Delivery -> where it was begun, for handlers at work at the signal that did not end in time."""
    events = history.events
    by_itself = {
        events[place].delivery
        for place in before(history.where(Kind.FINISHED, Kind.FAILED), life.expired)
    }
    begun = open_at(history, signal, Kind.STARTED, ENDS)
    return {delivery: place for delivery, place in begun.items() if delivery not in by_itself}


def torn_off(history: History, life: Life, signal: int) -> list[int]:
    """Where handlers were torn off after the signal: cancelled, or with the process."""
    cancels = after(before(history.places[Kind.CANCELLED], life.exited), signal)
    torn = of_process(history, cancels, life.process)
    if life.exited < life.killed and open_at(history, life.exited, Kind.STARTED, ENDS):
        torn.append(life.exited)
    return torn


def too_early(history: History, life: Life, early: list[int]) -> Verdict:
    """Handlers were torn off while there was time."""
    first, event = life.signals[0], history.events[early[0]]
    after_s = seconds_between(history, first, early[0])
    story = delivery_places(history, event.delivery)[:4] if event.delivery else []
    return failed(
        f"{signal_name(history, first)} came at {moment(history, first)}, and handlers at work were torn "
        f"off {after_s:.2f} s later, although there were {life.deadline_s:g} s to go.",
        witness(history, [*story, *last_of_handlers(history, life, first, 2), first, *early[:2]]),
        "Is it your `deadline_s` that ends the waiting, and nothing before it?",
    )


def settled_unfinished(history: History, life: Life, signal: int) -> Verdict | None:
    """Messages settled for good after the signal, though no handler had come to its own end."""
    found = list(unfinished_calls(history, life, signal))
    if not found:
        return None
    first = history.events[found[0]]
    said = "acked" if first.kind is Kind.ACK else "given up"
    return failed(
        f"{counted(len(found), 'message')} that no handler had finished {were(len(found))} {said} after "
        f"the signal: {some(history.events[place].message for place in found)}.",
        witness(history, [*delivery_places(history, first.delivery)[:6], signal]),
        "Does a cancelled handler look like one that failed for good, or like one that is done?",
    )


def unfinished_calls(history: History, life: Life, signal: int) -> Iterator[int]:
    """Where they were settled: `settled_unfinished` says the rest."""
    events = history.events
    own = {events[p].delivery: p for p in reversed(history.where(Kind.FINISHED, Kind.FAILED))}
    for place in of_process(history, after(history.where(*FINAL), signal), life.process):
        if own.get(events[place].delivery, NEVER) > place:
            yield place


def says_all_is_well(history: History, life: Life, torn: list[int]) -> Verdict | None:
    """Status 0, where work was torn off."""
    if not torn or life.end != "status 0" or life.killed <= life.exited:
        return None
    return failed(
        f"The process ended with status 0 at {moment(history, life.exited)}, although work had been torn "
        f"off at {moment(history, torn[0])}.",
        witness(history, [life.signals[0], *torn[:4], life.exited]),
        "Does anything but the handlers' own ends decide what is returned? Is it `sys.exit(0)`?",
    )


def says_too_little(history: History, life: Life) -> Verdict | None:
    """Another status than 0, where everything begun was finished and settled."""
    if life.end == "status 0" or len(life.signals) > 1:
        return None
    if life.end.startswith("signal"):
        return failed(
            f"The process died by {life.end} at {moment(history, life.exited)}, as one that has no "
            "handler for it: whoever waits for it sees a crash.",
            witness(
                history,
                [*last_of_handlers(history, life, life.exited, 3), life.signals[0], life.exited],
            ),
            "Is there a handler for this signal, and is it in force before the first message is taken?",
        )
    if open_at(history, life.exited, Kind.STARTED, SETTLED):
        return None
    if torn_off(history, life, life.signals[0]):
        return None
    return failed(
        f"The process ended with {life.end} at {moment(history, life.exited)}, although everything that "
        "had been begun was finished and settled.",
        witness(
            history,
            [
                *last_of_handlers(history, life, life.exited, 3),
                life.signals[0],
                life.raised,
                life.exited,
            ],
        ),
        "Is 0 returned when the drain was complete? An exception out of main makes it 1.",
    )
