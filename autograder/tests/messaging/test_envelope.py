"""Any text survives the wire."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograder.messaging.envelope import as_bytes, as_header, from_bytes, from_header

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_as_a_header(text):
    value = as_header(text)
    assert re.fullmatch(r"[!-~]*", value)
    assert from_header(value) == text


@given(ANY_TEXT)
def test_as_bytes(text):
    assert from_bytes(as_bytes(text)) == text


@pytest.mark.parametrize("plain", ["", "00-4bf92f3577b34da6-01", "50 % of it", "a=b;c=d"])
def test_a_foreign_header_comes_as_it_is(plain):
    assert from_header(plain) == plain


def test_bytes_that_are_no_text_are_shown():
    assert from_bytes(b"\xff\x00a") == "\\xff\x00a"
