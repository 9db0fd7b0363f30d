"""What a dead letter tells, beside the message that it is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from autograder.checks.letterbook import (
    ATTEMPTS,
    ERROR,
    ERRORS,
    FIRST,
    LAST,
    REASON,
    Case,
    between,
    cases_of,
    contents,
    max_attempts,
)
from autograder.checks.phrases import counted, message_places, were, witness
from autograder.checks.registry import guarantee
from autograder.model import Content, Event, History, Kind, Verdict, failed, inconclusive, passed

APART_S = 0.01  # two failures so far apart have different times, whatever clock is read


@guarantee
def dead_letter_tells_its_story(history: History) -> Verdict:
    """A dead letter says why, of what kind, how often and when it failed.

    It is the message, with that beside it. Judged by what the examiner finds among the dead letters at the end. A letter has the id, key, body
    and headers of its message, and five headers more: `dead-letter-reason` (the exception's text),
    `dead-letter-error` (its type), `dead-letter-attempts`, `dead-letter-first-failed-at` and
    `dead-letter-last-failed-at` (ISO 8601 with a time zone).

    Tolerated: further headers; the module in a type's name; no reason where the exception has none; of
    a message that comes after its last attempt any reason and type, for the process may be a new one.
    Of two failures 10 ms apart or more in one process, the first is told to be earlier; those before an
    earlier letter of the same message, confirmed or not, need not be remembered.
    """
    if history.broker.dead_letters < 0:
        return inconclusive("Nobody has looked at the dead letters.")
    published = contents(history, Kind.PUBLISHED)
    found = [e for e in history.of(Kind.LETTER_FOUND) if e.message in published]
    put = contents(history, Kind.LETTER_PUT)
    strangers = [
        e for e in history.of(Kind.LETTER_FOUND) if e.message not in published and e.message not in put
    ]  # fmt: skip
    if strangers:
        return _untold(history, strangers, f"no message has the id {strangers[0].message!r}")
    wrong = [(letter, why) for letter in found if (why := _what_is_wrong(history, letter))]
    if wrong:
        return _untold(history, [letter for letter, _ in wrong], wrong[0][1])
    if not found:
        return inconclusive("No dead letter of the consumer's was found.")
    return passed(f"{counted(len(found), 'dead letter')}, each with its story.")


def _untold(history: History, letters: Sequence[Event], why: str) -> Verdict:
    letter = letters[0]
    story = [p for p in message_places(history, letter.message) if history.events[p] is not letter]
    places = [*story[-6:], history.events.index(letter)]
    return failed(
        f"{counted(len(letters), 'dead letter')} {were(len(letters))} wrong: of {letter.message or 'one'}, "
        f"{why}.",
        witness(history, places),
        "Does the letter have everything that somebody needs who finds it a week later?",
    )  # fmt: skip


def _what_is_wrong(history: History, letter: Event) -> str:
    """What this letter does not tell, or tells wrongly; nothing if it is right."""
    key, message = contents(history, Kind.PUBLISHED)[letter.message]
    content = Content.read(letter.detail)
    if content is None:
        return "nothing can be read"
    if content.body != message.body:
        return "the body is another one"
    if letter.key != key:
        return f"the key is {letter.key!r} instead of {key!r}"
    for name, value in message.headers.items():
        if content.headers.get(name) != value:
            return f"the header {name!r} of the message is missing or changed"
    for name in (ERROR, ATTEMPTS, FIRST, LAST):
        if not content.headers.get(name):
            return _lacking(content, name)
    why = ""
    for case in cases_of(history, letter.message):
        why = _differs(history, case, content)
        if not why:
            break
    return why


def _lacking(content: Content, name: str) -> str:
    """Which of the two: who has written a header, empty, would look for it in vain."""
    return (
        f"the header {name!r} is empty"
        if name in content.headers
        else f"there is no header {name!r}"
    )


def _differs(history: History, case: Case, content: Content) -> str:
    """What a letter says otherwise than this call of `publish` had to."""
    headers = content.headers
    most = max_attempts(history, case.event.process)
    right = {str(number) for number in (case.attempt, *range(most, case.attempt))}
    if (
        case.failure is None
    ):  # not handled this time: whether that was an attempt may be told either way
        right |= {str(number) for number in range(case.attempt)}
    if headers[ATTEMPTS] not in right:
        return f"{ATTEMPTS!r} is {headers[ATTEMPTS]!r} instead of {case.attempt}"
    reason = headers.get(REASON, "")
    if case.failure is not None:
        errors = ERRORS.get(case.failure.detail, frozenset())
        if headers[ERROR].rpartition(".")[2] not in errors:
            return f"{ERROR!r} is {headers[ERROR]!r} instead of {' or '.join(sorted(errors))}"
        if case.failure.detail != "cancelled" and case.event.message not in reason:
            return f"{REASON!r} is {reason!r}, not the text of the exception"
    elif not reason:
        return _lacking(content, REASON)
    return _wrong_times(history, case, headers[FIRST], headers[LAST])


def _wrong_times(history: History, case: Case, first: str, last: str) -> str:
    times = []
    for name, text in ((FIRST, first), (LAST, last)):
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            return f"{name!r} is no time of ISO 8601: {text!r}"
        if time.tzinfo is None:
            return f"{name!r} does not say in which time zone: {text!r}"
        times.append(time)
    if times[0] > times[1]:
        return "it failed first after it failed last"
    message, process = case.event.message, case.event.process
    letters = between(history, message, 0, case.place, Kind.DEAD_LETTER, process=process)
    since = letters[-1] if letters else 0  # what was told may be forgotten
    failures = [
        history.events[place].at
        for place in between(history, message, since, case.place, Kind.FAILED, process=process)
    ]
    if failures and failures[-1] - failures[0] >= APART_S and times[0] == times[1]:
        return "the first failure has the time of the last"
    return ""
