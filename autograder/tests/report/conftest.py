"""Reports as they are where the command is on the PATH, however these tests were started."""

from __future__ import annotations

import pytest

from autograder.report import commands


@pytest.fixture(autouse=True)
def _activated(monkeypatch):
    monkeypatch.setattr(commands, "program", lambda: "ackademy")
