"""Leases: who may do what no transaction covers, and until when.

Who holds a lease is what the examiner finds at the server (`LEASE_SEEN`). In the part of another consumer it
takes and frees leases itself, and ends their time; these are faults with the message's name.
"""

from __future__ import annotations

from autograder.checks.expectations import read_expectations, stood_still
from autograder.checks.lease_book import (
    SLACK_S,
    Look,
    Work,
    begun_meanwhile,
    freed_before,
    looks,
    other_holds,
    releases_of,
    story,
    taken_before,
    takes_of,
    ttl_s,
    work_on,
)
from autograder.checks.ledger import after, before, ids
from autograder.checks.lives import NEVER, read_lives
from autograder.checks.phrases import counted, failure, moment, some, were, witness
from autograder.checks.registry import guarantee
from autograder.model import FOR_EVER, History, Kind, Verdict, Wait, failed, inconclusive, passed

_UNSEEN = "Nobody looked who holds a lease."


@guarantee
def one_holder_at_a_time(history: History) -> Verdict:
    """Work under a lease is done by its holder, and by nobody else.

    Wrong when a handler begins while another one is at work with the same message, in this process or in
    one that was killed and whose lease is not over; when it begins while another consumer holds the lease;
    when it begins though its process was never told that it holds the lease: a take that is not heard of is
    none (https://valkey.io/commands/set/); and when the examiner finds a handler at work and its message's
    lease free.

    Tolerated: a second handler after the lease of the first was over, for then it may be taken. What a
    handler does whose lease ran out while it worked is judged nowhere: no code can prevent it.
    """
    seen = looks(history)
    if not seen:
        return inconclusive(_UNSEEN)
    worked = sorted(ids(history, Kind.STARTED))
    spans = [span for message in worked for span in work_on(history, message)]
    for span in spans:
        place = begun_meanwhile(history, span)
        if place < NEVER:
            return _at_the_same_time(history, span, place)
        holder = other_holds(history, span.message, span.started)
        if holder is not None:
            return _under_another(history, span, holder)
        for look in seen:
            if look.message == span.message and span.covers(look.place) and not look.holder.token:
                return _without(history, span, look)
        if not taken_before(history, span):
            return _never_taken(history, span)
    covered = {
        look.message
        for look in seen
        if look.holder.token > 0
        and any(s.message == look.message and s.covers(look.place) for s in spans)
    }
    waited = {span.message for span in spans if freed_before(history, span)}
    if not covered | waited:
        return inconclusive("No handler was seen at work under a lease, or after somebody else's.")
    return passed(
        f"{counted(len(covered), 'message')} handled under a lease; {len(waited)} only after another "
        "consumer had released it."
    )  # fmt: skip


def _at_the_same_time(history: History, span: Work, place: int) -> Verdict:
    first, second = history.events[span.started], history.events[place]
    if first.process != second.process:
        how = (
            f"in process {second.process}, though the lease of process {first.process} was not over"
        )
        slip = "Is the lease another one in each process, or is it released by whoever has not taken it?"
    else:
        how = "while another handler was at work with it"
        slip = "Is the lease taken in one step, that fails where the key is there, and before the work?"
    return failed(
        f"A handler began with {span.message} at {moment(history, place)}, {how}.",
        witness(history, [*story(history, span.message, place), place]),
        slip,
    )


def _under_another(history: History, span: Work, taken: int) -> Verdict:
    return failed(
        f"A handler began with {span.message} at {moment(history, span.started)}, while another "
        "consumer held its lease.",
        witness(history, [taken, *story(history, span.message, span.started)[-5:], span.started]),
        "Is the key the one that `lease_key` gives, and what `set_if_absent` returns looked at?",
    )


def _without(history: History, span: Work, look: Look) -> Verdict:
    return failed(
        f"The handler of {span.message} was at work at {moment(history, look.place)}, and nobody held "
        "its lease.",
        witness(history, [*story(history, span.message, look.place)[-6:], look.place]),
        "Is the lease taken under the key that `lease_key` gives, and held until the work is over?",
    )


def _never_taken(history: History, span: Work) -> Verdict:
    return failed(
        f"A handler began with {span.message} at {moment(history, span.started)}, and no take of its lease "
        "had come back before.",
        witness(history, [*story(history, span.message, span.started)[-6:], span.started]),
        "Does an answer that did not come count as a lease, where the connection broke?",
    )


@guarantee
def only_the_owner_releases(history: History) -> Verdict:
    """A lease is released by who has taken it, and by nobody else.

    The examiner takes a lease away, as another consumer does when its time is over, while the handler
    works or while its release is on the way to the server. Wrong when the other's lease is gone, replaced,
    or given a life span at the next look: a renewal asks whose it is, too. Wrong, too, when two takes of one
    message's lease have the same token, in one process or in two: whoever comes too late would then
    release the other's.
    """
    found = looks(history)
    if not found:
        return inconclusive(_UNSEEN)
    kept: set[str] = set()
    for look in found:
        taken = other_holds(history, look.message, look.place)
        if taken is None:
            continue
        if look.holder.token >= 0 or look.holder.left_s is not None:
            return _not_left_alone(history, look, taken)
        if _was_tempted(history, look, taken):
            kept.add(look.message)
    for one in found:
        for other in found:
            if 0 < one.holder.token == other.holder.token and one.message == other.message:
                takes = [p for p in takes_of(history, one.message) if one.place < p < other.place]
                if takes:
                    return _same_token(history, one, other, takes)
    if not kept:
        return inconclusive("No lease was lost while somebody still worked or released.")
    return passed(
        f"{counted(len(kept), 'lease')} of another consumer {were(len(kept))} left alone."
    )


def _was_tempted(history: History, look: Look, taken: int) -> bool:
    """Whether work that had begun under the lease ended before this look, or was to renew it by then."""
    begun = [s for s in work_on(history, look.message) if s.started < taken]
    passed_s = history.events[look.place].at - history.events[taken].at
    return (
        any(taken < s.ended < look.place for s in begun)
        or any(taken < place < look.place for place in releases_of(history, look.message))
        or bool(begun and ttl_s(history) and passed_s >= ttl_s(history) / 2)
    )


def _not_left_alone(history: History, look: Look, taken: int) -> Verdict:
    if look.holder.token < 0:
        what = f"somebody had given it a life span, of which {look.holder.left_s:.1f} s were left"
        slip = "Is a lease renewed without a look at who holds it? See `expire_if_equals`."
    elif look.holder.token:
        what = "somebody had taken it over"
        slip = "Is a lease renewed, or taken, without a look at who holds it?"
    else:
        what = "it was free"
        slip = (
            "Is the key deleted without a look at its value, or looked at in one step and deleted in the "
            "next? See `delete_if_equals`."
        )
    return failed(
        f"Another consumer took the lease of {look.message} at {moment(history, taken)}, and at "
        f"{moment(history, look.place)} {what}.",
        witness(
            history,
            [taken, *after(story(history, look.message, look.place), taken)[-5:], look.place],
        ),
        slip,
    )


def _same_token(history: History, one: Look, other: Look, takes: list[int]) -> Verdict:
    return failed(
        f"Two takes of the lease of {one.message} had the same token: who is late releases the other's.",
        witness(history, [one.place, *takes[-2:], other.place]),
        "Is the token made once, counted in each process, or made of what two deliveries share, instead "
        "of anew for each take?",
    )


@guarantee
def leases_expire(history: History) -> Verdict:
    """A lease ends by itself when its life span is over, and not before.

    Wrong when a lease is taken without a life span, if only until a second command adds one: a process that
    dies in between keeps it for ever. Wrong when the examiner finds one that has far less left than
    `ttl_s` since it was taken, for then it ends under the handler, or more than `ttl_s`.
    """
    endless = [p for p in history.places[Kind.LEASE_TAKEN] if history.events[p].detail == FOR_EVER]
    if endless:
        message = history.events[endless[0]].message
        return failed(
            f"{counted(len(endless), 'lease')} {were(len(endless))} taken without a life span: "
            f"{some(history.events[p].message for p in endless)}.",
            witness(history, story(history, message, endless[0] + 1)),
            "Is the life span given in the same step that sets the key?",
        )
    good = 0
    for look in looks(history):
        if look.holder.token <= 0:
            continue
        takes = before(takes_of(history, look.message), look.place)
        span_s = ttl_s(history)
        if not takes or not span_s:
            continue
        left_s = look.holder.left_s
        passed_s = history.events[look.place].at - history.events[takes[-1]].at
        if left_s is None or left_s > span_s + SLACK_S:
            said = FOR_EVER if left_s is None else f"{left_s:.1f} s"
            return _wrong_span(
                history, look, takes[-1], f"{said} left, though `ttl_s` is {span_s:g}"
            )
        if left_s < span_s / 2 - passed_s:
            return _wrong_span(
                history,
                look,
                takes[-1],
                f"{left_s:.1f} s left {passed_s:.3f} s after it was taken, though `ttl_s` is {span_s:g}",
            )
        good += 1
    if not good:
        return inconclusive("Nobody saw a lease that a handler held.")
    return passed(f"{counted(good, 'lease')} seen, each with the life span it was to have.")


def _wrong_span(history: History, look: Look, taken: int, what: str) -> Verdict:
    return failed(
        f"The lease of {look.message} had {what}.",
        witness(history, [taken, look.place]),
        "Is `ttl_s` the life span that you give, in seconds?",
    )


@guarantee
def held_leases_get_a_pause(history: History) -> Verdict:
    """A held lease is asked for again after a pause, not at once.

    Wrong when ten pauses of a process in a row, from the answer that a lease is held to its next question about
    it, come to less than 0.2 s, be it in a loop of its own or because it gives the message back without a
    delay: of the contract's shortest they make half a second. That takes from the server, and from the broker,
    what others need, the holder among them. Measured on the process's own clock and without the time an
    answer takes: a slow machine makes pauses longer.

    Tolerated: a pause of any kind, and two deliveries of one message that wait beside each other.
    """
    hammered = history.places[Kind.LEASE_HAMMERED]
    if not hammered:
        refused = history.places[Kind.LEASE_REFUSED]
        if not refused:
            return inconclusive("Nobody met a lease that was held.")
        return passed(
            f"{counted(len(refused), 'held lease')} met, and asked for again after a pause."
        )
    event = history.events[hammered[0]]
    places = before(story(history, event.message, hammered[0]), hammered[0])
    given_back = any(history.events[place].kind is Kind.REQUEUE for place in places)
    slip = "Does the loop that asks again sleep in between, for 0.05 s or more?"
    if given_back:
        slip = "Is the message given back without `delay_s`? Then it comes again at once."
    return failed(
        f"The lease of {event.message} was held, and was asked for again and again, with {event.detail}.",
        witness(history, [*places[:3], *places[-4:], hammered[0]]),
        slip,
    )


@guarantee
def leases_are_released(history: History) -> Verdict:
    """When the work is over, well or badly, its lease is free at once.

    Wrong when the examiner finds a lease of the consumer's own after its function has come back, or after
    it stood or tried one message for ever, although no handler is at work with that message: whoever
    comes next waits until the life span is over, the next attempt of the same message first of all. Wrong,
    too, when a function that raised has left behind the lease of a handler that failed.

    Not judged: leases that a killed process left behind, and those of other handlers that a raising
    function took along. They end by themselves.
    """
    lives = read_lives(history)
    stands = _stands(history)
    free: set[str] = set()
    for look in looks(history):
        takes = before(takes_of(history, look.message), look.place)
        if not takes:
            continue
        life = lives[history.events[takes[-1]].process]
        work = [s for s in work_on(history, look.message) if s.started < look.place]
        came_back = min(life.returned, stands)
        if work and work[-1].done and history.events[work[-1].ended].kind is Kind.FAILED:
            came_back = min(came_back, life.raised)
        if came_back > min(look.place, life.killed):
            continue
        if not any(s.done for s in work) or any(not s.done and s.covers(look.place) for s in work):
            continue
        if look.holder.token > 0:
            return _kept(history, look, work)
        free.add(look.message)
    if not free:
        return inconclusive("No work under a lease was over when the examiner looked.")
    return passed(f"{counted(len(free), 'lease')} free when the work was over.")


def _stands(history: History) -> int:
    """Where the run ended because nothing, or always the same, happened any more."""
    last = read_expectations(history)[-1:]
    hopeless = last and (last[0].wait == Wait.STORM or last[0] in stood_still(history))
    return last[0].place if hopeless else NEVER


def _kept(history: History, look: Look, work: list[Work]) -> Verdict:
    last = max((span for span in work if span.done), key=lambda span: span.ended)
    end = history.events[last.ended]
    if end.kind is Kind.FINISHED:
        how, slip = "finished", "Is the lease left to end by itself?"
    else:
        how = f"failed ({failure(end.detail)})" if end.kind is Kind.FAILED else "cancelled"
        slip = "Is the lease released only where the handler returns? `finally` is for both."
    return failed(
        f"The lease of {look.message} was still held at {moment(history, look.place)}, though its "
        f"handler had {how} at {moment(history, last.ended)}.",
        witness(history, [last.started, last.ended, look.place]),  # few: all of them are drawn
        slip,
    )
