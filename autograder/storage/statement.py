"""Statements with named values, as the port takes them: checked alike for every database."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from autograder.storage import DatabaseError

# What may hold a colon that is no name: texts, quoted names, comments, casts.
_TOKEN = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|::|:([A-Za-z_]\w*)", re.DOTALL
)
_CONTROL = frozenset({"begin", "start", "commit", "rollback", "end", "abort"})
_SAVEPOINT = re.compile(
    r"savepoint|release|rollback\s+(?:(?:work|transaction)\s+)?to\b", re.IGNORECASE
)


class Statement:
    """One statement, read once.

    `numbered` is its text with `$1`, `$2` for the names in `order`, as PostgreSQL wants it; `named`
    is the text with `:name`, as SQLite does. `verb` is its first word in small letters. `savepoint` says
    whether it sets one, goes back to one or drops one: parts of a transaction, whose end is the block's.
    """

    def __init__(self, sql: str) -> None:
        text = sql.strip().rstrip(";").rstrip()
        order: dict[str, int] = {}

        def number(found: re.Match[str]) -> str:
            name = found[1]
            return f"${order.setdefault(name, len(order) + 1)}" if name else found[0]

        self.named = text
        self.numbered = _TOKEN.sub(number, text)
        self.order = tuple(order)
        bare = _TOKEN.sub(lambda found: "" if found[0][:2] in {"--", "/*"} else found[0], text)
        words = bare.split(None, 1)
        self.verb = words[0].lower() if words else ""
        if not self.verb:
            raise DatabaseError("The statement is empty.")
        self.savepoint = _SAVEPOINT.match(bare.lstrip()) is not None
        if self.verb in _CONTROL and not self.savepoint:
            raise DatabaseError(
                f"{self.verb.upper()} is not for you to send: use `async with db.transaction() as tx`."
            )
        if ";" in _TOKEN.sub("", text):
            raise DatabaseError("One statement at a time: there is a `;` in the middle.")

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        """The values in the order of `order`. Raises `DatabaseError` for a name too few or too many."""
        missing = [name for name in self.order if name not in given]
        if missing:
            raise DatabaseError(f"The statement has :{missing[0]}, and no value for it was given.")
        surplus = [name for name in given if name not in self.order]
        if surplus:
            raise DatabaseError(f"There is a value {surplus[0]}=..., and no :{surplus[0]} for it.")
        return [given[name] for name in self.order]


@functools.lru_cache(maxsize=256)
def read(sql: str) -> Statement:
    """The statement in a text. Raises `DatabaseError` for what cannot be one."""
    return Statement(sql)
