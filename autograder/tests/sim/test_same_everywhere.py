"""The same seed gives the same history, byte for byte, on every version of Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import autograder
from autograder.tests.sim import histories

MINORS = (11, 12, 13, 14)
OTHERS = ("keyed_pool", "idempotent_handler", "dead_letter_queue", "graceful_shutdown")
ROOT = Path(autograder.__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not histories.exercise().solution_folder.is_dir(), reason="the student edition has no solutions"
)


def interpreters() -> dict[str, Path]:
    """The running one, and one of each other version that is found: on PATH, or kept by pyenv."""
    found = {f"3.{sys.version_info.minor}": Path(sys.executable)}
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in MINORS:
        name = f"python3.{minor}"
        on_path = shutil.which(name)
        candidates = [
            *sorted(kept.glob(f"3.{minor}.*/bin/{name}")),
            *([on_path] if on_path else []),
        ]
        for each in map(Path, candidates):
            if _works(each):
                found.setdefault(f"3.{minor}", each)
    return found


def _works(python: Path) -> bool:
    """Whether it starts: pyenv puts scripts on PATH that lead to a version that is not chosen."""
    return not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode


def with_our_code(python: Path, folder: Path) -> Path:
    """An environment of this interpreter that holds our packages and nothing else."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/python3.*/site-packages")
    (packages / "ackademy.pth").write_text(f"{ROOT}\n")
    return folder / "bin" / "python"


def recorded(python: Path, folder: Path, *arguments: str) -> dict[str, dict[str, str]]:
    """Digests as this interpreter records them."""
    if python != Path(sys.executable):
        python = with_our_code(python, folder / python.name)
    done = subprocess.run(
        [python, "-m", "autograder.tests.sim.histories", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def differences(one: dict[str, dict[str, str]], other: dict[str, dict[str, str]]) -> list[str]:
    return [
        f"{program} in {scenario}"
        for program in one.keys() | other.keys()
        for scenario in one.get(program, {}).keys() | other.get(program, {}).keys()
        if one.get(program, {}).get(scenario) != other.get(program, {}).get(scenario)
    ]


@pytest.mark.parametrize(("version", "python"), interpreters().items(), ids=interpreters())
def test_this_python_records_the_kept_histories(version, python, tmp_path):
    here = recorded(python, tmp_path)
    kept = json.loads(histories.FILE.read_text(encoding="utf-8"))
    assert set(here) == set(histories.programs(histories.exercise()))
    assert not differences(here, kept), (
        f"Python {version} records other histories than those in {histories.FILE.name}. If scenarios, "
        "programs or the simulation changed on purpose: "
        "uv run python -m autograder.tests.sim.histories --write"
    )


@pytest.mark.parametrize("name", OTHERS)
def test_every_python_records_the_same_twice(name, tmp_path):
    """Whatever the reference looks at: clocks, dates, chance."""
    first, *others = interpreters().values()
    here = recorded(first, tmp_path, name)
    assert here["reference"]
    for python in (first, *others):
        assert not differences(here, recorded(python, tmp_path, name)), python
