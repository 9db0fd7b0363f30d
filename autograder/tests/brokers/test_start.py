"""Starts that go wrong: what is said, and that nothing is left."""

from __future__ import annotations

import errno
import shutil
import signal
import sys
from dataclasses import dataclass, field

import pytest

from autograder import brokers
from autograder.brokers import kafka, kafka_config, process, records, throwaway
from autograder.brokers.server import NotReadyError
from autograder.brokers.throwaway import Command
from autograder.model import GraderError


@dataclass
class Scripted:
    """A recipe that runs a few lines of Python instead of a server."""

    code: str
    engine: str = "nats"
    provider: str = "embedded"
    start_timeout_s: float = 30.0
    attempts: list[str] = field(default_factory=list)

    def prepare(self, folder, patience):
        self.attempts.append(str(folder))
        return Command([sys.executable, "-c", self.code], {})

    def url(self, folder):
        return "nats://127.0.0.1:1"

    def ready(self, folder, url):
        raise NotReadyError("nobody answers")


def test_a_server_that_dies_while_starting_is_quoted(grounds):
    recipe = Scripted("raise SystemExit('FATAL cannot read the moon')")
    with pytest.raises(GraderError, match="stopped while starting") as raised:
        throwaway.start(recipe)
    assert "FATAL cannot read the moon" in raised.value.sentence
    assert raised.value.next_command
    assert grounds.traces() == []


def test_a_server_that_never_answers_is_given_up_and_says_in_what_it_failed(grounds):
    recipe = Scripted("import signal; print('waiting', flush=True); signal.pause()")
    recipe.start_timeout_s = 0.3
    with pytest.raises(GraderError, match="did not get ready in time: nobody answers"):
        throwaway.start(recipe)
    assert grounds.traces() == []


def test_a_program_that_is_not_there_is_quoted(grounds, monkeypatch):
    recipe = Scripted("")
    monkeypatch.setattr(recipe, "prepare", lambda folder, patience: Command(["/no/such"], {}))
    with pytest.raises(GraderError, match="No such file"):
        throwaway.start(recipe)
    assert grounds.traces() == []


def test_a_taken_port_is_tried_again_with_others_and_not_for_ever(grounds):
    recipe = Scripted("raise SystemExit('bind: address already in use')")
    with pytest.raises(GraderError, match="Every port"):
        throwaway.start(recipe)
    assert len(set(recipe.attempts)) == 5
    assert grounds.traces() == []


def test_a_full_disk_is_said_whoever_notices_it(grounds, monkeypatch):
    with pytest.raises(GraderError, match=r"disk with .* is full") as raised:
        throwaway.start(Scripted("raise SystemExit('write: No space left on device')"))
    assert raised.value.next_command == "df -h"

    def full(folder, patience):
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    recipe = Scripted("")
    monkeypatch.setattr(recipe, "prepare", full)
    with pytest.raises(GraderError, match="no room on the disk"):
        throwaway.start(recipe)
    assert grounds.traces() == []


def test_a_log_is_quoted_without_stack_frames_and_errors_first(tmp_path):
    log = tmp_path / "server.log"
    frames = "".join(f"\n\tat org.apache.Some.frame{n}(Some.java:{n})" for n in range(30))
    log.write_text(f"INFO hello\nERROR the cause{frames}\n\t... 12 more\n")
    assert throwaway.quote_log(log).splitlines()[1:] == [
        "Its last words:",
        "  INFO hello",
        "  ERROR the cause",
    ]
    log.write_text("ERROR the cause\n" + "INFO going on\n" * 20)
    assert throwaway.quote_log(log).splitlines()[-1] == "  ERROR the cause"
    assert throwaway.quote_log(tmp_path / "none") == ""


@pytest.mark.nats
def test_ctrl_c_in_the_middle_of_a_stop_does_not_stop_the_stopping(grounds, monkeypatch):
    discard = records.discard

    def interrupted(record):
        signal.raise_signal(signal.SIGINT)
        discard(record)

    with pytest.raises(KeyboardInterrupt), brokers.acquire("nats", "embedded"):
        monkeypatch.setattr(records, "discard", interrupted)
    assert grounds.traces() == []


@pytest.mark.nats
def test_a_server_whose_record_was_deleted_is_stopped_all_the_same(grounds):
    with brokers.acquire("nats", "embedded") as server:
        shutil.rmtree(grounds.state)
    assert not process.is_running(server.pid, server.started)
    assert grounds.traces() == []


@pytest.mark.nats
def test_ctrl_c_in_the_middle_of_a_start_leaves_nothing(grounds, monkeypatch):
    def interrupted(gated):
        raise KeyboardInterrupt

    monkeypatch.setattr(process.Gated, "release", interrupted)
    with pytest.raises(KeyboardInterrupt), brokers.acquire("nats", "embedded"):
        pass
    assert grounds.traces() == []


@pytest.mark.kafka
@pytest.mark.slow
class TestKafka:
    def test_a_port_taken_by_another_broker_is_noticed_and_others_are_tried(
        self, kafka_installed, grounds, monkeypatch
    ):
        with brokers.acquire("kafka", "embedded") as first:
            offered = iter([[first.address[1], process.free_ports(1)[0]]])
            monkeypatch.setattr(
                kafka_config,
                "free_ports",
                lambda count: next(offered, None) or process.free_ports(count),
            )
            with brokers.acquire("kafka", "embedded") as second:
                assert second.url != first.url
                assert brokers.is_alive(second)
            assert next(offered, None) is None
        assert grounds.traces() == []

    def test_a_bad_configuration_is_quoted(self, kafka_installed, grounds, monkeypatch):
        monkeypatch.setattr(
            kafka_config, "_PROPERTIES", kafka_config._PROPERTIES + "num.io.threads=-7\n"
        )
        with pytest.raises(GraderError, match="stopped while starting") as raised:
            brokers.acquire("kafka", "embedded").__enter__()
        assert "num.io.threads" in raised.value.sentence
        assert grounds.traces() == []

    def test_without_a_kept_checkpoint_kafka_formats_the_folder_itself(
        self, kafka_installed, grounds, monkeypatch, tmp_path
    ):
        monkeypatch.setattr(kafka, "bootstrap_checkpoint", lambda: tmp_path / "none")
        with brokers.acquire("kafka", "embedded") as server:
            assert (server.folder / "data" / "bootstrap.checkpoint").exists()
            assert "4.1" in (server.folder / "format.log").read_text()
        assert grounds.traces() == []

    def test_what_steers_other_java_programs_does_not_reach_the_broker(self, monkeypatch):
        for name in ("JAVA_TOOL_OPTIONS", "CLASSPATH", "KAFKA_OPTS"):
            monkeypatch.setenv(name, "-Xbroken")
        assert not {"JAVA_TOOL_OPTIONS", "CLASSPATH", "KAFKA_OPTS"} & set(
            kafka_config.clean_environment()
        )
