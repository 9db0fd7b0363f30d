"""What students and the catalogue read."""

from __future__ import annotations

import pytest

from autograder.checks import catalogue, dead_letter_queue, graceful, keyed, pool

ALL = sorted({*pool.__all__, *keyed.__all__, *dead_letter_queue.__all__, *graceful.__all__})


def test_the_catalogue_holds_them_all():
    assert set(ALL) <= set(catalogue())


@pytest.mark.parametrize("name", ALL)
def test_a_sentence_is_one_short_line_and_the_rest_defines_it(name):
    guarantee = catalogue()[name]
    assert guarantee.sentence.endswith(".")
    assert len(guarantee.sentence) <= 67, "a report shows it in one line of 80 columns"
    assert len(guarantee.description.split()) > 30
