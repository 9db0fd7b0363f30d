"""Containers by testcontainers: the contract, on each broker, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
from dataclasses import replace
from functools import partial

import httpx
import pytest

from autograder import brokers
from autograder.brokers import (
    container_engine,
    container_images,
    containers,
    process,
    rabbitmq,
    records,
)
from autograder.brokers.container_images import IMAGES
from autograder.brokers.server import NotReadyError
from autograder.model import GraderError
from autograder.tests.brokers.contract import PATIENCE_S, ProviderContract, grader

pytestmark = pytest.mark.container


@pytest.fixture(autouse=True)
def place(engine_here):
    """The provider's place. Other sessions may use it, too: each test looks at its own containers."""
    yield engine_here
    for name in mine(engine_here):  # of a test that failed
        container_engine.remove(engine_here.endpoint, name)


def mine(engine):
    """The containers that this process holds."""
    label = f"{containers.OWNER_LABEL}={containers._owner()}"
    found = container_engine.containers(engine.endpoint, label)
    return {str(each["Names"][0]).lstrip("/") for each in found}


def is_there(engine, container):
    return bool(container_engine.state(engine.endpoint, container))


def inspect(engine, container):
    return container_engine.request(engine.endpoint, "GET", f"/containers/{container}/json").json()


def has_volume(engine, volume):
    return container_engine.request(engine.endpoint, "GET", f"/volumes/{volume}").status == 200


class Release(str):
    """Equal to each of its versions: the tag of an image names no more than the release."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, version):
        return str(version).startswith(f"{self}.")


class ContainerContract(ProviderContract):
    """What `StartedContract` asks of processes, asked of containers."""

    provider = "container"

    def test_nothing_is_left_after_a_stop(self, place, grounds):
        with self.acquire() as server:
            assert mine(place) == {server.container}
            assert len(grounds.traces()) == 2  # a record and a folder, for the log
            said = inspect(place, server.container)
            volumes = [mount["Name"] for mount in said["Mounts"] if mount["Type"] == "volume"]
            assert all(has_volume(place, volume) for volume in volumes)
            published = said["HostConfig"]["PortBindings"]
            places = {each["HostIp"] for port in published.values() for each in port or []}
            assert places == {"127.0.0.1"}
        assert mine(place) == set()
        assert not any(has_volume(place, volume) for volume in volumes)
        assert grounds.traces() == []
        assert not brokers.is_alive(server)

    def test_two_at_once_have_different_ports(self, place, grounds):
        with self.acquire() as one, self.acquire() as other:
            assert one.url != other.url
            assert one.container != other.container
            assert brokers.is_alive(one)
            assert brokers.is_alive(other)
        assert grounds.traces() == []

    def test_a_container_that_is_killed_is_noticed_and_its_last_words_are_quoted(
        self, place, grounds
    ):
        with self.acquire() as server:
            path = f"/containers/{server.container}/kill"
            container_engine.request(place.endpoint, "POST", path)
            assert process.wait_until(lambda: not brokers.is_alive(server), timeout_s=PATIENCE_S)
            with pytest.raises(GraderError, match="has died") as raised:
                brokers.require_alive(server)
            assert raised.value.exit_code == 3
            assert "Its last words" in raised.value.sentence
        assert grounds.traces() == []

    def test_the_next_start_cleans_up_after_an_owner_killed_with_kill_9(self, place, grounds):
        with grader(grounds, self.engine, self.provider, "untied") as (owner, said):
            owner.kill()
            owner.wait()
        assert is_there(place, said["container"])
        cleaned = records.discard_orphans()  # what every start begins with
        assert [record.container for record in cleaned] == [said["container"]]
        assert not is_there(place, said["container"])
        assert grounds.traces() == []

    def test_an_owner_interrupted_by_ctrl_c_stops_it(self, place, grounds):
        with grader(grounds, self.engine, self.provider, "untied") as (owner, said):
            owner.send_signal(signal.SIGINT)
            owner.wait(PATIENCE_S)
        assert not is_there(place, said["container"])
        assert grounds.traces() == []

    async def test_a_start_that_is_cancelled_leaves_nothing(self, place, grounds):
        async def hold():
            async with self.acquire():
                await asyncio.Event().wait()

        task = asyncio.create_task(hold())
        under_way = partial(process.wait_until, lambda: bool(mine(place)))
        assert await asyncio.to_thread(under_way, timeout_s=PATIENCE_S, every_s=0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert mine(place) == set()
        assert grounds.traces() == []

    def test_it_can_be_kept_warm_and_taken_down(self, place, grounds):
        [kept] = brokers.up([self.engine], self.provider)
        assert brokers.up([self.engine], self.provider) == [kept]
        [standing] = brokers.status().servers
        assert standing.healthy
        assert (standing.provider, standing.container) == (self.provider, kept.container)
        assert standing.memory_bytes > 1_000_000
        containers.sweep(place)  # it has no owner, and that is no reason to remove it
        with brokers.acquire(self.engine) as server:
            assert server == replace(kept, provider="warm")
        assert brokers.down() == [self.engine]
        assert not is_there(place, kept.container)
        assert grounds.traces() == []


@pytest.mark.nats
class TestContainerNats(ContainerContract):
    engine, version = "nats", Release("2")


@pytest.mark.kafka
@pytest.mark.slow
class TestContainerKafka(ContainerContract):
    # the protocol carries no version of the software, so a feature level has to do
    engine, version = "kafka", "4.1"


@pytest.mark.rabbitmq
@pytest.mark.slow
class TestContainerRabbit(ContainerContract):
    engine, version = "rabbitmq", Release("4")

    def test_the_counters_of_its_management_are_where_the_witness_looks_for_them(self, place):
        with self.acquire() as server:
            port = server.address[1] + rabbitmq.MANAGEMENT_OFFSET
            answer = httpx.get(
                f"http://127.0.0.1:{port}/api/overview", auth=("guest", "guest"), timeout=PATIENCE_S
            )
            assert answer.json()["node"]


@pytest.fixture
def nats_image(monkeypatch):
    """Changes the row of NATS."""

    def change(**changes):
        monkeypatch.setattr(
            containers, "IMAGES", {**IMAGES, "nats": replace(IMAGES["nats"], **changes)}
        )

    return change


def answers(url):
    with contextlib.suppress(NotReadyError):
        return bool(IMAGES["nats"].ready(url, PATIENCE_S))
    return False


def start_nats():
    return brokers.acquire("nats", "container").__enter__()


def test_when_records_are_lost_the_labels_tell_whose_a_container_was(place, grounds):
    with grader(grounds, "nats", "container", "untied") as (owner, said):
        shutil.rmtree(grounds.state)
        owner.kill()
        owner.wait()
    assert is_there(place, said["container"])
    with brokers.acquire("nats", "container") as server:
        assert not is_there(place, said["container"])
        containers.sweep(place)
        assert is_there(place, server.container)  # its owner lives
    assert not is_there(place, server.container)


def test_a_warm_container_that_was_stopped_is_removed_and_said(place, grounds):
    [kept] = brokers.up(["nats"], "container")
    container_engine.request(place.endpoint, "POST", f"/containers/{kept.container}/kill")
    assert process.wait_until(lambda: not brokers.is_alive(kept), timeout_s=PATIENCE_S)
    [notice] = brokers.status().notices
    assert kept.container in notice
    assert not is_there(place, kept.container)
    assert grounds.traces() == []


def test_a_container_that_dies_while_starting_is_quoted(place, grounds, nats_image):
    nats_image(command=("--config", "/none.conf"))
    with pytest.raises(GraderError, match="stopped while starting") as raised:
        start_nats()
    assert "exit code" in raised.value.sentence
    assert "/none.conf" in raised.value.sentence
    assert raised.value.next_command
    assert grounds.traces() == []


def test_a_container_that_never_answers_is_given_up_and_says_in_what_it_failed(
    place, grounds, nats_image
):
    def refuse(url, timeout_s):
        process.wait_until(lambda: answers(url), timeout_s=PATIENCE_S)  # so that it has a log
        raise NotReadyError("it speaks in riddles")

    nats_image(ready=refuse, start_timeout_s=1.0)
    with pytest.raises(GraderError, match="not get ready in time: it speaks in riddles") as raised:
        start_nats()
    assert "Its last words" in raised.value.sentence
    assert grounds.traces() == []


def test_a_taken_port_is_tried_again_with_others_and_not_for_ever(place, grounds, nats_image):
    with brokers.acquire("nats", "container") as first:
        taken = first.address[1]
        offered = iter([taken, *process.free_ports(1)])
        nats_image(places=lambda: {0: next(offered)})
        with brokers.acquire("nats", "container") as second:
            assert second.address[1] != taken
        nats_image(places=lambda: {0: taken})
        with pytest.raises(GraderError, match="Every port"):
            start_nats()
    assert grounds.traces() == []


def test_an_image_that_is_neither_here_nor_to_be_had_is_said(place, grounds, nats_image, capfd):
    nats_image(name="localhost:1/ackademy/none:1")
    with pytest.raises(GraderError, match=r"none:1 is not on this machine and cannot be") as raised:
        start_nats()
    assert raised.value.next_command == f"{place.name.lower()} pull localhost:1/ackademy/none:1"
    assert "Fetching the image" in capfd.readouterr().err
    assert grounds.traces() == []


def test_ctrl_c_in_the_middle_of_a_start_leaves_nothing(place, grounds, nats_image):
    def interrupted(url, timeout_s):
        raise KeyboardInterrupt

    nats_image(ready=interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_nats()
    assert mine(place) == set()
    assert grounds.traces() == []


def test_testcontainers_own_cleaner_is_used_by_those_who_ask_for_it(place, grounds, monkeypatch):
    ryuk = "testcontainers/ryuk:0.8.1"
    if not container_engine.has_image(place.endpoint, ryuk):
        pytest.skip(f"the image {ryuk} is not here")
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "false")
    monkeypatch.setenv("RYUK_RECONNECTION_TIMEOUT", "1s")
    before = cleaners(place)
    with grader(grounds, "nats", "container", "untied") as (owner, said):
        [cleaner] = cleaners(place) - before
        owner.kill()
        owner.wait()
    for container in (said["container"], cleaner):
        assert process.wait_until(
            lambda name=container: not is_there(place, name), timeout_s=PATIENCE_S, every_s=0.2
        )
    records.discard_orphans()
    assert grounds.traces() == []


def cleaners(engine):
    found = container_engine.containers(engine.endpoint, "org.testcontainers")
    return {each["Id"] for each in found if "ryuk" in each["Names"][0]}


def test_kafka_is_told_the_port_that_clients_reach_and_what_the_embedded_one_is_told():
    told = container_images.kafka_variables(12345)
    assert told["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://127.0.0.1:12345"
    assert told["KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS"] == "500"
    assert told["CLUSTER_ID"] != container_images.kafka_variables(12345)["CLUSTER_ID"]
    assert json.dumps(told)  # all text
