"""Lines survive the socket, in whatever pieces they arrive, and whatever a student puts into them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograder.subject import wire

TEXT = st.text(st.characters(codec=None), max_size=30)


@given(TEXT, TEXT, st.integers(0, 10**9), st.integers(0, 100), TEXT)
def test_an_event_line_is_what_the_json_module_reads(message, key, delivery, attempt, detail):
    line = wire.encode_event("taken", message, key, delivery, attempt, detail)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == ["taken", message, key, delivery, attempt, detail]


@given(st.lists(st.lists(TEXT, max_size=3), max_size=5), st.integers(1, 7))
def test_lines_arrive_in_pieces(lines, size):
    stream = b"".join(map(wire.encode, lines)) + b'["beginning of'
    buffer, seen = bytearray(), []
    for start in range(0, len(stream), size):
        buffer += stream[start : start + size]
        seen += wire.decode_all(wire.split(buffer))
    assert seen == lines
    assert buffer == b'["beginning of'


def test_what_is_not_json_is_named():
    with pytest.raises(ValueError, match="half a line"):
        wire.decode_all([b'["fine"]', b"half a line"])
