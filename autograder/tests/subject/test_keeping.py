"""Who still holds which texts."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque

import pytest

from autograder.subject.keeping import kept

TEXTS = frozenset(f"customer number {n}" for n in range(20))


class Holder:
    def __init__(self, text):
        self.text = text


@pytest.mark.parametrize(
    "hold",
    [
        list,
        tuple,
        set,
        deque,
        Counter,
        dict.fromkeys,
        OrderedDict.fromkeys,
        lambda texts: {text: [] for text in texts},
        lambda texts: dict(enumerate(texts)),
        lambda texts: defaultdict(list, {text: [text] for text in texts}),
        lambda texts: [Holder(text) for text in texts],
        lambda texts: [lambda text=text: text for text in texts],
    ],
)
def test_whatever_holds_them_is_found(hold):
    some = sorted(TEXTS)[:7]
    held = [hold(list(some))]
    del some
    assert kept(TEXTS) == 7
    del held
    assert kept(TEXTS) == 0


def test_nobody_but_the_asker_holds_them():
    assert kept(TEXTS) == 0
