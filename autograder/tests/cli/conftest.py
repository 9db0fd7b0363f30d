"""The command, run in this process against a small course, with its exit code and both streams."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from autograder import cli
from autograder.report import commands
from autograder.tests.authoring import course


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def exercise(tmp_path, monkeypatch):
    """A complete exercise; the working directory is its course."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(commands, "program", lambda: "ackademy")
    return course.write(tmp_path)


@pytest.fixture
def run(capsys, monkeypatch, exercise):
    def run(*words: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["ackademy", *words])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run
