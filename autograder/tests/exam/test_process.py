"""Folders of examiners: removed when their owner is dead, and never before."""

from __future__ import annotations

import multiprocessing
import tempfile
from pathlib import Path

import psutil
import pytest

from autograder.exam import process
from autograder.messaging.adapter import Lane
from autograder.model import Call, GraderError


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def folder_in(place: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=process.FOLDER, dir=place))


def test_a_folder_that_nobody_owns_any_more_is_removed(place):
    folder = folder_in(place)
    process._own(folder).close()  # its examiner is gone, and the lock with it
    process._sweep()
    assert not folder.exists()


def test_a_folder_with_an_owner_stays(place):
    folder = folder_in(place)
    with process._own(folder):
        process._sweep()
        assert folder.is_dir()


def test_a_lock_is_never_seen_unlocked(place, monkeypatch):
    folder = folder_in(place)
    lock = process.fcntl.flock
    seen = []

    def sweep_first(held, operation):
        if not seen:
            seen.append(True)
            process._sweep()  # another examiner starts between our opening the file and locking it
        lock(held, operation)

    monkeypatch.setattr(process.fcntl, "flock", sweep_first)
    with process._own(folder):
        assert folder.is_dir()


def _examiner(place: str, started, end) -> None:
    tempfile.tempdir = place
    process._sweep()
    folder = Path(tempfile.mkdtemp(prefix=process.FOLDER))
    with process._own(folder):
        started.put(folder.is_dir())
        end.wait(60)
        started.put(folder.is_dir())


def test_many_examiners_may_start_at_once(place):
    context = multiprocessing.get_context("fork")
    started, end = context.Queue(), context.Event()
    examiners = [
        context.Process(target=_examiner, args=(str(place), started, end)) for _ in range(8)
    ]
    for each in examiners:
        each.start()
    assert all(started.get(timeout=60) for _ in examiners)
    end.set()
    assert all(started.get(timeout=60) for _ in examiners)
    for each in examiners:
        each.join(60)


async def test_a_zygote_that_is_gone_is_said_and_leaves_nothing_open(tmp_path):
    module = tmp_path / "module.py"
    module.touch()
    with process.Zygote("memory", isolation_kind="plain") as zygote:
        zygote.wait_ready()
        zygote._process.kill()
        zygote._process.wait()
        lane = Lane("", "", "")
        job = process.Job(module, Call(""), "memory", lane, {}, 0, ())
        open_before = psutil.Process().num_fds()
        with pytest.raises(GraderError, match="zygote is gone"):
            zygote.fork(job, lambda _at, _line: None)
        assert psutil.Process().num_fds() == open_before
