"""What a replay has put into the queue: the message that there was."""

from __future__ import annotations

from autograder.checks.letterbook import STORY, contents
from autograder.checks.phrases import counted, message_places, witness
from autograder.checks.registry import guarantee
from autograder.model import Content, Event, History, Kind, Verdict, failed, inconclusive, passed


@guarantee
def replay_keeps_the_message(history: History) -> Verdict:
    """A replayed message is the one there was, without the story.

    Id, key, body and headers are the same. Judged by what the examiner finds in the queue at the end. What a dead letter had told beside the
    message (headers that begin with `dead-letter-`) is gone, the count of attempts with it: the message
    starts anew. Tolerated: further headers of another name.
    """
    put, published = contents(history, Kind.LETTER_PUT), contents(history, Kind.PUBLISHED)
    found = history.of(Kind.MESSAGE_FOUND)
    if not found:
        return inconclusive("No replayed message was found in the queue.")
    for event in found:
        original = published.get(event.message) or put.get(event.message)
        why = _changed(event, *original) if original else f"nobody knows the id {event.message!r}"
        if why:
            return failed(
                f"{event.message or 'A message'} was replayed as another message: {why}.",
                witness(history, [*message_places(history, event.message)[:7], history.events.index(event)]),
                "Are id, key and headers handed to `publish`, and only the story left out?",
            )  # fmt: skip
    return passed(f"{counted(len(found), 'message')}, as they had been published.")


def _changed(event: Event, key: str, original: Content) -> str:
    content = Content.read(event.detail)
    if content is None or content.body != original.body:
        return "the body is another one"
    if event.key != key:
        return f"the key is {event.key!r} instead of {key!r}"
    for name, value in original.headers.items():
        if not name.startswith(STORY) and content.headers.get(name) != value:
            return f"the header {name!r} is missing or changed"
    story = [name for name in content.headers if name.startswith(STORY)]
    return f"it still says {story[0]!r}" if story else ""
