"""Tests of a class that says `in_virtual_time` run on a `SimLoop`, their fixtures, too."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from autograder.sim import SimLoop

# failures inside the contract are explained as those inside a test module are
pytest.register_assert_rewrite(
    "autograder.tests.messaging.contract",
    "autograder.tests.messaging.letters_contract",
    "autograder.tests.messaging.stage",
)


def pytest_asyncio_loop_factories(item):
    if getattr(item.cls, "in_virtual_time", False):
        return {"virtual": partial(SimLoop, most_steps=20_000_000)}
    return {"real": asyncio.new_event_loop}
