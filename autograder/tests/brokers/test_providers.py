"""Provider by broker, each held to the contract."""

from __future__ import annotations

import subprocess

import pytest

from autograder import brokers
from autograder.brokers import kafka_jars, postgres, rabbitmq
from autograder.tests.brokers.contract import BorrowedContract, StartedContract

NATS_VERSION = "2.15.1"


@pytest.mark.nats
class TestEmbeddedNats(StartedContract):
    engine, provider, version = "nats", "embedded", NATS_VERSION

    @pytest.fixture
    def place(self):
        return None


@pytest.mark.nats
class TestLocalNats(StartedContract):
    engine, provider, version = "nats", "local", NATS_VERSION

    @pytest.fixture
    def place(self, nats_on_path):
        return None


@pytest.mark.nats
class TestWarmNats(BorrowedContract):
    engine, provider, version = "nats", "warm", NATS_VERSION

    @pytest.fixture
    def place(self):
        brokers.up(["nats"])
        yield
        brokers.down()


@pytest.mark.nats
class TestExternalNats(BorrowedContract):
    engine, provider, version = "nats", "external", NATS_VERSION

    @pytest.fixture
    def place(self, monkeypatch):
        with brokers.acquire("nats", "embedded") as server:
            monkeypatch.setenv("ACKADEMY_NATS_URL", server.url)
            yield


@pytest.mark.kafka
@pytest.mark.slow
class TestEmbeddedKafka(StartedContract):
    engine, provider, version = "kafka", "embedded", kafka_jars.version()

    @pytest.fixture
    def place(self, kafka_installed):
        return None


@pytest.mark.kafka
@pytest.mark.slow
class TestLocalKafka(StartedContract):
    engine, provider, version = "kafka", "local", kafka_jars.version()

    @pytest.fixture
    def place(self, kafka_home):
        return None


@pytest.mark.kafka
@pytest.mark.slow
class TestWarmKafka(BorrowedContract):
    engine, provider, version = "kafka", "warm", kafka_jars.version()

    @pytest.fixture
    def place(self, kafka_installed):
        brokers.up(["kafka"])
        yield
        brokers.down()


@pytest.mark.kafka
@pytest.mark.slow
class TestExternalKafka(BorrowedContract):
    # the protocol carries no version of the software, so a feature level has to do
    engine, provider, version = "kafka", "external", kafka_jars.version().rpartition(".")[0]

    @pytest.fixture
    def place(self, monkeypatch, kafka_installed):
        with brokers.acquire("kafka", "embedded") as server:
            monkeypatch.setenv("ACKADEMY_KAFKA_URL", f"kafka://{server.url}")
            yield


@pytest.mark.rabbitmq
@pytest.mark.slow
class TestLocalRabbit(StartedContract):
    engine, provider = "rabbitmq", "local"

    @property
    def version(self):
        """Of what is installed; the folder of its plugins is the only one to say so unasked."""
        plugins = rabbitmq.start_script().resolve().parent.parent / "plugins"
        [rabbit] = plugins.glob("rabbit-*")
        return rabbit.name.removesuffix(".ez").removeprefix("rabbit-")

    @pytest.fixture
    def place(self, rabbitmq_installed):
        return None


@pytest.mark.rabbitmq
@pytest.mark.slow
class TestWarmRabbit(BorrowedContract):
    engine, provider, version = "rabbitmq", "warm", TestLocalRabbit.version

    @pytest.fixture
    def place(self, rabbitmq_installed):
        brokers.up(["rabbitmq"], "local")
        yield
        brokers.down()


@pytest.mark.rabbitmq
@pytest.mark.slow
class TestExternalRabbit(BorrowedContract):
    engine, provider, version = "rabbitmq", "external", TestLocalRabbit.version

    @pytest.fixture
    def place(self, monkeypatch, rabbitmq_installed):
        with brokers.acquire("rabbitmq", "local") as server:
            monkeypatch.setenv("ACKADEMY_RABBITMQ_URL", server.url)
            yield


@pytest.mark.postgres
class TestEmbeddedPostgres(StartedContract):
    engine, provider, version = "postgres", "embedded", "16.14"

    @pytest.fixture
    def place(self):
        return None


@pytest.mark.postgres
class TestLocalPostgres(StartedContract):
    engine, provider = "postgres", "local"

    @property
    def version(self):
        """Of what is installed, as it says itself."""
        command = [str(postgres.path_programs() / "postgres"), "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return said.split()[2]

    @pytest.fixture
    def place(self, postgres_installed):
        return None


@pytest.mark.postgres
class TestWarmPostgres(BorrowedContract):
    engine, provider, version = "postgres", "warm", TestEmbeddedPostgres.version

    @pytest.fixture
    def place(self):
        brokers.up(["postgres"])
        yield
        brokers.down()


@pytest.mark.postgres
class TestExternalPostgres(BorrowedContract):
    engine, provider, version = "postgres", "external", TestEmbeddedPostgres.version

    @pytest.fixture
    def place(self, monkeypatch):
        with brokers.acquire("postgres", "embedded") as server:
            monkeypatch.setenv("ACKADEMY_POSTGRES_URL", server.url)
            yield


@pytest.mark.valkey
class TestEmbeddedValkey(StartedContract):
    engine, provider, version = "valkey", "embedded", "9.1.2"

    @pytest.fixture
    def place(self):
        return None


@pytest.mark.valkey
class TestLocalValkey(StartedContract):
    engine, provider, version = "valkey", "local", TestEmbeddedValkey.version

    @pytest.fixture
    def place(self, valkey_on_path):
        return None


@pytest.mark.valkey
class TestWarmValkey(BorrowedContract):
    engine, provider, version = "valkey", "warm", TestEmbeddedValkey.version

    @pytest.fixture
    def place(self):
        brokers.up(["valkey"])
        yield
        brokers.down()


@pytest.mark.valkey
class TestExternalValkey(BorrowedContract):
    engine, provider, version = "valkey", "external", TestEmbeddedValkey.version

    @pytest.fixture
    def place(self, monkeypatch):
        with brokers.acquire("valkey", "embedded") as server:
            monkeypatch.setenv("ACKADEMY_REDIS_URL", server.url)
            yield
