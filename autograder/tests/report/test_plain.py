from __future__ import annotations

import pytest

from autograder.report.plain import capped, plain, shortened


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("a\x00b", "a\\x00b"),
        ("a\rb", "a\\x0db"),
        ("one\r\ntwo", "one two"),
        ("one\ttwo", "one two"),
        ("\u202eevil", "\\u202eevil"),
        ("\ufeff\u200b", "\\ufeff\\u200b"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("\uffff", "\\uffff"),
        ("naïve 日本語 кл\u0301юч 🎉", "naïve 日本語 кл\u0301юч 🎉"),
        ("", ""),
    ],
)
def test_what_acts_is_written_as_an_escape(text, shown):
    assert plain(text) == shown


def test_lines_and_tabs_stay_where_they_are_wanted():
    assert plain("a\r\n\tb\x07", lines=True) == "a\n\tb\\x07"


def test_a_megabyte_is_capped_with_both_ends_and_a_count():
    text = capped("begin" + "x" * 1_000_000 + "end", 900)
    assert text.startswith("begin")
    assert text.endswith("end")
    assert "999,108 characters left out" in text
    assert len(text) < 1000


def test_short_texts_are_not_touched():
    assert capped("abc", 3) == "abc"
    assert shortened("abc", 3) == "abc"


@pytest.mark.parametrize("limit", range(1, 20))
def test_names_keep_both_ends(limit):
    name = shortened("order-4711-of-many", limit)
    assert len(name) <= limit
    if 5 <= limit < 18:
        assert name[0] == "o"
        assert name[-1] == "y"
