"""What is on disk about servers, and what a crash at any moment leaves to the next start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time

import pytest

from autograder.brokers import process, records
from autograder.model import GraderError
from autograder.tests.brokers.contract import PATIENCE_S, grader


@pytest.fixture
def bystander():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        yield other
        other.kill()


def abandoned(**changes):
    """A record whose owner is gone."""
    record = records.new("nats", "embedded")
    return records.save(record, owner_pid=os.getpid(), owner_started="long ago", **changes)


def test_what_an_owner_that_is_gone_left_is_cleaned(grounds, bystander):
    mark = process.start_mark(bystander.pid)
    record = abandoned(pid=bystander.pid, started=mark)
    assert records.discard_orphans() == [record]
    assert bystander.wait(PATIENCE_S) == -9
    assert grounds.traces() == []


def test_a_process_that_only_has_the_same_pid_is_left_alone(grounds, bystander):
    abandoned(pid=bystander.pid, started="another start")
    records.discard_orphans()
    assert bystander.poll() is None
    assert grounds.traces() == []


def test_what_a_living_owner_has_is_left_alone(grounds):
    record = records.new("nats", "embedded")
    assert records.discard_orphans() == []
    assert records.all_records() == [record]
    records.discard(record)


def test_a_record_of_another_machine_is_left_alone():
    record = abandoned(machine="elsewhere")
    assert records.discard_orphans() == []
    records.discard(record)


def test_a_damaged_record_is_removed_and_never_costs_a_folder_that_is_not_ours(grounds, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    abandoned(folder=str(precious))
    (grounds.state / "servers" / "x.json").write_text("{")
    (grounds.state / "servers" / "y.json").write_text("[]")
    records.discard_orphans()
    assert precious.exists()
    assert list((grounds.state / "servers").iterdir()) == []


def test_a_record_of_another_version_is_left_to_that_version(grounds):
    path = grounds.state / "servers" / "z.json"
    records.state_folder()
    path.write_text(json.dumps({"format": 2}))
    assert records.all_records() == []
    assert path.exists()


def test_a_state_folder_that_cannot_be_made_is_said(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ACKADEMY_STATE_DIR", str(tmp_path / "file" / "state"))
    with pytest.raises(GraderError, match="cannot be made") as raised:
        records.state_folder()
    assert "ACKADEMY_STATE_DIR" in raised.value.next_command


def test_a_start_mark_tells_a_process_from_the_next_and_a_zombie_from_a_living_one(bystander):
    mine = process.start_mark(os.getpid())
    assert mine == process.start_mark(os.getpid())
    assert mine != process.start_mark(bystander.pid)
    bystander.kill()
    assert process.wait_until(
        lambda: process.start_mark(bystander.pid) is None, timeout_s=PATIENCE_S
    )  # a zombie until it is waited for


def test_an_owner_that_dies_before_the_pid_is_on_record_takes_the_server_with_it(grounds):
    """The window between fork and record: the server must not have begun."""
    code = """
        import os, pathlib, sys
        from autograder.brokers.process import Gated
        folder = pathlib.Path(sys.argv[1])
        gated = Gated(
            [sys.executable, "-c", "open('began', 'w')"], folder=folder, log=folder / "log",
            environment=os.environ, outlives_owner=True,
        )
        print(gated.pid, gated.mark, flush=True)
        os.kill(os.getpid(), 9)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(grounds.scratch)]
    said = subprocess.run(command, capture_output=True, check=False, text=True).stdout
    pid, mark = said.split()
    assert process.wait_until(lambda: not process.is_running(int(pid), mark), timeout_s=PATIENCE_S)
    assert not (grounds.scratch / "began").exists()


@pytest.mark.nats
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
def test_on_linux_a_server_goes_at_once_when_its_owner_is_killed(grounds):
    with grader(grounds, "nats", "embedded", "tied") as (owner, said):
        owner.kill()
        owner.wait()
    assert process.wait_until(
        lambda: not process.is_running(said["pid"], said["started"]), timeout_s=PATIENCE_S
    )


def test_waiting_ends_when_the_condition_holds_or_the_time_is_up():
    began = time.monotonic()
    assert process.wait_until(lambda: True, timeout_s=0)
    assert not process.wait_until(lambda: False, timeout_s=0.05)
    assert time.monotonic() - began >= 0.05


def test_free_ports_are_all_different():
    ports = process.free_ports(20)
    assert len(set(ports)) == 20
