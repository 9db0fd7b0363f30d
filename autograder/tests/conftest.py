"""What holds for all tests of the package."""

from __future__ import annotations

import signal

import pytest

# A shell that starts a command in the background has it ignore Ctrl-C, and so all that it starts.
# Tests that send one need to be heard.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_ALONE = {"container": "containers", "browser": "site"}
"""Marks of tests that share what there is once, ports or a built site: pytest-xdist runs them in
one process, one after the other."""


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups at its turn
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests together that cannot run side by side."""
    for item in items:
        for mark, group in _ALONE.items():
            if item.get_closest_marker(mark):
                item.add_marker(pytest.mark.xdist_group(group))
