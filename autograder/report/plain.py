"""Text of students made harmless: a report shows what was printed and obeys none of it.

Output, tracebacks and exception texts come from a program nobody has read. Escape sequences would
move the cursor of the terminal they are shown on, direction marks would reorder the line around
them, and a NUL ends a string in half the tools that read a report. All of them are shown as
escapes, as in Python source.
"""

from __future__ import annotations

import unicodedata

# Control, format (direction marks, zero width), surrogate, line and paragraph separators.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def plain(text: str, *, lines: bool = False) -> str:
    r"""The text with every character that acts instead of being seen written as an escape.

    `lines=True` keeps line breaks and tabs (a traceback, a program's output); without it both
    become a space (a sentence, a name). Carriage returns are line breaks of Windows or else escapes.
    """
    text = text.replace("\r\n", "\n")
    table: dict[int, str] = {} if lines else {ord("\n"): " ", ord("\t"): " "}
    for character in set(text) - {"\n", "\t"}:
        if unicodedata.category(character) in _INVISIBLE or _is_noncharacter(character):
            table[ord(character)] = _escape(character)
    return text.translate(table) if table else text


def capped(text: str, limit: int) -> str:
    """At most about `limit` characters: a third from the beginning, the rest from the end.

    The end says how a program died, the beginning how it began; what is missing is counted.
    """
    if len(text) <= limit:
        return text
    head, tail = text[: limit // 3], text[len(text) - (limit - limit // 3) :]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[... {left_out:,} characters left out ...]\n{tail}"


def shortened(text: str, limit: int) -> str:
    """A name of at most `limit` characters; names differ at both ends, so the middle goes."""
    if len(text) <= limit:
        return text
    if limit < 5:
        return text[:limit]
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def _escape(character: str) -> str:
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _is_noncharacter(character: str) -> bool:
    """Whether XML and Unicode forbid it in a document: U+FFFE, U+FFFF and their like."""
    code = ord(character)
    return code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
