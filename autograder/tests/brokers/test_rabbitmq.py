"""A throwaway RabbitMQ node: where its script is found, and that it is alone in the world."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import psutil
import pytest

from autograder import brokers
from autograder.brokers import process, rabbitmq, throwaway
from autograder.brokers.server import Missing, NotReadyError
from autograder.model import GraderError
from autograder.tests.brokers.conftest import script

OWN = "echo $RABBITMQ_ALLOW_INPUT"  # what tells RabbitMQ's own script from a wrapper


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(rabbitmq, "_FOLDERS", ())


def test_the_script_itself_may_be_on_the_path(nothing_installed, tmp_path):
    own = script(tmp_path / "bin" / "rabbitmq-server", OWN)
    assert rabbitmq.start_script() == own


def test_behind_a_packages_wrapper_the_script_is_found(nothing_installed, tmp_path):
    wrapper = script(tmp_path / "lib" / "rabbitmq-script-wrapper", "su rabbitmq")
    own = script(tmp_path / "lib" / "rabbitmq-server", OWN)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "rabbitmq-server").symlink_to(wrapper)
    assert rabbitmq.start_script() == own


def test_a_wrapper_alone_is_no_server(nothing_installed, tmp_path):
    script(tmp_path / "bin" / "rabbitmq-server", "su rabbitmq")
    assert rabbitmq.start_script() is None


@pytest.mark.parametrize(("manager", "command"), [("apt-get", "apt-get install"), ("brew", "brew")])
def test_without_one_the_command_that_installs_it_is_said(
    nothing_installed, tmp_path, manager, command
):
    script(tmp_path / "bin" / manager, "true")
    missing = rabbitmq.local()
    assert isinstance(missing, Missing)
    assert "Erlang" in missing.sentence
    assert command in missing.next_command


def test_the_two_ports_are_free_and_at_the_usual_distance():
    port, management = rabbitmq.two_ports()
    assert management - port == 10_000
    for each in port, management:
        with socket.socket() as free:
            free.bind(("127.0.0.1", each))


def test_settings_for_the_machines_own_node_do_not_reach_ours(tmp_path, monkeypatch):
    for name in "RABBITMQ_NODENAME", "RABBITMQ_MNESIA_DIR", "ERL_EPMD_PORT", "ERL_FLAGS":
        monkeypatch.setenv(name, "theirs")
    command = rabbitmq.RabbitRecipe(Path("rabbitmq-server")).prepare(tmp_path, process.Patience())
    assert "theirs" not in command.environment.values()
    assert command.environment["HOME"] == str(tmp_path)


def answers(recipe, folder):
    try:
        return bool(recipe.ready(folder, recipe.url(folder)))
    except NotReadyError:
        return False


@pytest.mark.rabbitmq
@pytest.mark.slow
class TestNode:
    @pytest.fixture(autouse=True)
    def installed(self, rabbitmq_installed):
        return None

    def test_it_starts_no_port_mapper_even_when_it_looks_for_one(self, tmp_path):
        """What a node does once a minute when it cannot see the mapper, done at once.

        It runs `erl` with a name of its own, which starts a mapper if none is there.
        """
        command = rabbitmq.RabbitRecipe(rabbitmq.start_script()).prepare(
            tmp_path, process.Patience()
        )
        mapper = process.free_ports(1)[0]  # where no mapper is, so that one would have to start
        environment = {**command.environment, "ERL_EPMD_PORT": str(mapper)}
        erl = shutil.which("erl", path=environment["PATH"])
        starter = ["-sname", "epmd-starter", "-noinput", "-s", "erlang", "halt"]
        subprocess.run([erl, *starter], env=environment, check=True, timeout=60)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", mapper))

    def test_nothing_of_it_outlives_it(self):
        with brokers.acquire("rabbitmq", "local") as server:
            family = psutil.Process(server.pid).children(recursive=True)
            assert {each.name() for each in family} >= {"erl_child_setup"}
            os.kill(server.pid, 9)  # as if for want of memory: nobody ends its children for it
            _, alive = psutil.wait_procs(family, timeout=20)
            assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
    def test_a_plain_user_can_run_one(self):
        nobody = 65534
        recipe = rabbitmq.RabbitRecipe(rabbitmq.start_script())
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            command = recipe.prepare(Path(folder), process.Patience())
            for path in (Path(folder), *Path(folder).iterdir()):
                os.chown(path, nobody, nobody)
            node = subprocess.Popen(
                command.arguments, env=command.environment, cwd=folder, user=nobody, group=nobody,
                extra_groups=[], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                assert process.wait_until(lambda: answers(recipe, Path(folder)), timeout_s=60)
            finally:
                process.kill(node.pid, process.start_mark(node.pid) or "")
                node.wait()

    def test_ports_that_are_taken_at_the_last_moment_are_exchanged(self, monkeypatch):
        pairs = [rabbitmq.two_ports() for _ in range(2)]
        offered = iter(pairs)
        monkeypatch.setattr(rabbitmq, "two_ports", lambda: next(offered))
        with socket.create_server(("127.0.0.1", pairs[0][0])):
            server = throwaway.start(rabbitmq.local())
        try:
            assert server.address[1] == pairs[1][0]
        finally:
            throwaway.stop(server)

    def test_a_start_that_fails_says_why(self, monkeypatch):
        monkeypatch.setattr(rabbitmq, "ADVANCED", "no erlang term")
        with pytest.raises(GraderError, match="stopped while starting") as raised:
            throwaway.start(rabbitmq.local())
        assert "failed_to_read_advanced_configuration_file" in raised.value.sentence
