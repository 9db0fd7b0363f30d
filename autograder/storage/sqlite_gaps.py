"""Which of SQLite's complaints say that the statement is wrong, and which that it is not SQLite.

A name that a table has not is the writer's mistake on every database. A name that PostgreSQL brings along,
and SQLite does not, is none: somebody else has to say whether the statement is right.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_NOT_SQLITE = re.compile(
    r"syntax error|no such function|unrecognized token|incomplete input|unknown datatype"
    r"|wrong number of arguments to function|row value misused|no such collation|no such module"
    r"|not currently supported|unknown database"
)
_UNKNOWN = re.compile(r"no such (column|table): (.+)")

# https://www.postgresql.org/docs/current/ddl-system-columns.html, and the functions that are called
# without brackets: https://www.postgresql.org/docs/current/functions-info.html, functions-datetime.html
_COLUMNS = frozenset(
    {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}
    | {"current_catalog", "current_role", "current_schema", "current_user", "session_user"}
    | {"system_user", "user", "localtime", "localtimestamp"}
)


def is_gap(complaint: str, sql: str, tables: Collection[str]) -> bool:
    """Whether PostgreSQL may understand what SQLite complains of; `tables` are those there are."""
    if _NOT_SQLITE.search(complaint):
        return True
    found = _UNKNOWN.search(complaint)
    if found is None:
        return False
    what, name = found[1], found[2].strip().lower()
    text = sql.lower()
    word = re.escape(name)
    if what == "table":  # a catalogue, a schema, a function of rows, a text after IN
        return (
            name.startswith("pg_")
            or "." in name
            or re.search(rf"\b{word}\s*\(|'{word}'", text) is not None
        )
    if name.rpartition(".")[2] in _COLUMNS or name.count(".") > 1:
        return True
    if "." in name:
        return False
    whole_row = rf"\b(?:from|join|update|into)\s+[\w\".]+\s+(?:as\s+)?{word}\b"
    typed = rf"\b{word}\s*[\['(]"  # array[...], interval '...'
    return name in tables or any(re.search(each, text) for each in (whole_row, typed))
