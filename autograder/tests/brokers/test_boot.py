"""What makes embedded Kafka start fast: made once, and never in anybody's way."""

from __future__ import annotations

import errno

import pytest

from autograder import brokers
from autograder.brokers import kafka, kafka_boot, kafka_config, kafka_jars
from autograder.model import GraderError


@pytest.fixture
def unprepared(kafka_installed, tmp_path, monkeypatch):
    """A cache with the jars and nothing else."""
    jars = kafka_jars.jars()
    monkeypatch.setenv("ACKADEMY_CACHE_DIR", str(tmp_path / "cache"))
    folder = kafka_jars.home() / "jars"
    folder.mkdir(parents=True)
    for jar in jars:
        (folder / jar.name).symlink_to(jar)
    assert kafka_jars.installed()


@pytest.mark.kafka
@pytest.mark.slow
def test_it_is_made_once_and_leaves_no_server(unprepared, grounds):
    announced = []
    assert not kafka_boot.prepared()
    home = brokers.install_kafka(preparing=lambda: announced.append("ten seconds"))
    assert kafka_boot.prepared()
    made = {path.name for path in home.iterdir()}
    assert made == {"jars", "bootstrap.checkpoint", "prepare.lock", kafka.start_cache().name}
    assert grounds.traces() == []
    assert kafka_boot.prepare(lambda: announced.append("again"))
    assert announced == ["ten seconds"]
    with brokers.acquire("kafka", "embedded") as server:
        assert brokers.is_alive(server)


@pytest.mark.kafka
@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "full"), GraderError("no"), TimeoutError()]
)
def test_a_machine_that_does_not_let_us_only_starts_slowly(
    unprepared, grounds, monkeypatch, failure
):
    def refuse(*args, **kwargs):
        raise failure

    monkeypatch.setattr(kafka.EmbeddedRecipe, "prepare", refuse)
    assert kafka_boot.prepare() is False
    assert grounds.traces() == []


def test_without_jars_there_is_nothing_to_prepare(monkeypatch, tmp_path):
    monkeypatch.setenv("ACKADEMY_CACHE_DIR", str(tmp_path / "cache"))
    assert kafka_boot.prepare() is False
    assert not (tmp_path / "cache").exists()


def test_an_id_of_kafkas_kind_never_looks_like_an_option():
    ids = {kafka_config.new_id() for _ in range(2000)}
    assert len(ids) == 2000
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)
