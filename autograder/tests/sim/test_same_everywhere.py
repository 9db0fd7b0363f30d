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


@pytest.mark.parametrize(("version", "python"), interpreters().items(), ids=interpreters())
def test_this_python_records_the_kept_histories(version, python, tmp_path):
    if python != Path(sys.executable):
        python = with_our_code(python, tmp_path / "environment")
    done = subprocess.run(
        [python, "-m", "autograder.tests.sim.histories"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    kept = json.loads(histories.FILE.read_text(encoding="utf-8"))
    here = json.loads(done.stdout)
    assert set(here) == set(histories.programs(histories.exercise()))
    differ = [
        f"{program} in {scenario}"
        for program in here.keys() | kept.keys()
        for scenario in here.get(program, {}).keys() | kept.get(program, {}).keys()
        if here.get(program, {}).get(scenario) != kept.get(program, {}).get(scenario)
    ]
    assert not differ, (
        f"Python {version} records other histories than those in {histories.FILE.name}. If scenarios, "
        "programs or the simulation changed on purpose: "
        "uv run python -m autograder.tests.sim.histories --write"
    )
