from __future__ import annotations

import pytest

from autograder.report import commands

REAL = commands.program.__wrapped__


@pytest.mark.parametrize(
    ("under_uv", "found", "said"),
    [
        ("1", "/venv/bin/ackademy", "uv run ackademy"),
        ("", None, "uv run ackademy"),
        ("", "/venv/bin/ackademy", "ackademy"),
    ],
)
def test_the_prefix_is_what_works_in_this_shell(monkeypatch, under_uv, found, said):
    monkeypatch.setenv("UV_RUN_RECURSION_DEPTH", under_uv)
    monkeypatch.setattr(commands.shutil, "which", lambda _name: found)
    assert REAL() == said


def test_only_commands_get_the_prefix(monkeypatch):
    monkeypatch.setattr(commands, "program", lambda: "uv run ackademy")
    for text, said in {
        "ackademy hint x": "uv run ackademy hint x",
        "Next: ackademy list": "Next: uv run ackademy list",
        "ackademy brokers down && ackademy brokers up": (
            "uv run ackademy brokers down && uv run ackademy brokers up"
        ),
        "uv run ackademy list": "uv run ackademy list",
        "uv run --group docs ackademy docs": "uv run --group docs ackademy docs",
        "ackademy 0.1.0": "ackademy 0.1.0",
        "cd /src/ackademy list": "cd /src/ackademy list",
    }.items():
        assert commands.typed(text) == said
