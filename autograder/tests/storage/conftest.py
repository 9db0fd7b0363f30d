"""Tests of a class that says `in_virtual_time` run on a `SimLoop`, their fixtures, too."""

from __future__ import annotations

import asyncio

import pytest

from autograder.sim import SimLoop

# failures inside the contracts are explained as those inside a test module are
pytest.register_assert_rewrite(
    "autograder.tests.storage.database_contract", "autograder.tests.storage.lease_contract"
)


def pytest_asyncio_loop_factories(item):
    if getattr(item.cls, "in_virtual_time", False):
        return {"virtual": SimLoop}
    return {"real": asyncio.new_event_loop}
