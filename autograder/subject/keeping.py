"""What a process still holds on to: exact where its memory as a whole would only hint at it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from collections.abc import Set as AbstractSet


def kept(texts: AbstractSet[str]) -> int:
    """How many of these texts something still refers to, after a collection, beside `texts` itself.

    Looks at every object the collector knows, and at the dictionaries and tuples it does not bother to
    know. What was imported before the fork is frozen and not looked at. A copy in another form
    (bytes, a number) is not found.
    """
    gc.collect()
    found: set[str] = set()
    for each in gc.get_objects():
        if each is not texts and each is not found:
            found.update(part for part in _texts_in(each) if part in texts)
    return len(found)


def _texts_in(thing: object) -> Iterator[str]:
    for part in _parts(thing):
        if type(part) is str:
            yield part
        elif type(part) in {dict, tuple} and not gc.is_tracked(part):  # texts and numbers alone
            yield from (each for each in _parts(part) if type(each) is str)


def _parts(thing: object) -> list[object]:
    """What a thing refers to. A dictionary does not show the collector keys that are texts."""
    parts = gc.get_referents(thing)
    if isinstance(thing, dict):
        parts += dict.keys(thing)  # its own method: a subclass may have another
    return parts
