"""Servers that stay: one per engine whoever asks, and what happens to records that lie."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from autograder import brokers
from autograder.brokers import process, records

pytestmark = pytest.mark.nats


def test_two_at_once_start_one():
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: brokers.up(["nats"]), range(2))
    assert first == second
    assert len(brokers.status().servers) == 1
    brokers.down()


def test_it_outlives_the_command_that_started_it(grounds):
    code = "from autograder import brokers; print(brokers.up(['nats'])[0].url)"
    url = subprocess.run(
        [sys.executable, "-c", code], env=grounds.environment, capture_output=True, check=True
    ).stdout.decode()
    with brokers.acquire("nats") as server:
        assert (server.url, server.provider) == (url.strip(), "warm")
    assert brokers.down(["nats"]) == ["nats"]
    assert grounds.traces() == []


def test_one_that_was_killed_is_removed_and_said(grounds):
    [server] = brokers.up(["nats"])
    os.kill(server.pid, signal.SIGKILL)
    process.wait_until(lambda: not process.is_running(server.pid, server.started), timeout_s=10)
    status = brokers.status()
    assert status.servers == ()
    assert f"pid {server.pid}" in status.notices[0]
    assert grounds.traces() == []
    assert brokers.status().notices == ()


def test_one_that_hangs_is_shown_as_such_and_replaced_by_up(monkeypatch):
    [hung] = brokers.up(["nats"])
    os.kill(hung.pid, signal.SIGSTOP)
    try:
        assert [each.healthy for each in brokers.status().servers] == [False]
        monkeypatch.setattr("autograder.brokers.warm.ALIVE_TIMEOUT_S", 0.2)
        [fresh] = brokers.up(["nats"])
    finally:
        records.process.kill(hung.pid, hung.started)
    assert fresh.pid != hung.pid
    assert f"pid {hung.pid}" in fresh.notices[0]
    assert not process.is_running(hung.pid, hung.started)
    assert brokers.is_alive(fresh)
    brokers.down()


def test_another_program_with_the_recorded_pid_is_not_ours_to_end(grounds):
    [server] = brokers.up(["nats"])
    [record] = records.all_records()
    process.kill(server.pid, server.started)
    records.save(record, pid=os.getpid())  # as if the pid had been given out again: to us
    assert brokers.status().servers == ()
    assert grounds.traces() == []  # and we are still here to say so


def test_down_stops_only_what_it_was_asked_to():
    [server] = brokers.up(["nats"])
    assert brokers.down(["kafka"]) == []
    assert brokers.is_alive(server)
    assert brokers.down() == ["nats"]
    assert brokers.down() == []
