"""Walls that a process puts up around itself, tried from inside."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from autograder.subject import isolation

needs_landlock = pytest.mark.skipif(
    isolation.landlock_version() < 4,
    reason="this kernel's Landlock does not limit ports (or there is none): submissions run `plain`",
)


def inside(script: str, **arguments: object) -> dict[str, str]:
    """Run lines in a process of their own behind walls; each line reports `ok` or its error."""
    program = textwrap.dedent("""
        import json, os, signal, socket, sys
        from autograder.subject import isolation
        arguments = json.loads(sys.argv[1])
        said = {}
        def attempt(name, action):
            try:
                action()
                said[name] = "ok"
            except Exception as error:
                said[name] = type(error).__name__
    """)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            program + textwrap.dedent(script) + "\nprint(json.dumps(said))",
            json.dumps(arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_landlock
def test_only_what_is_allowed_can_be_read_written_and_reached(tmp_path: Path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "seen").write_text("x")
    (tmp_path / "shut").write_text("secret")
    with (
        socket.create_server(("127.0.0.1", 0)) as allowed,
        socket.create_server(("127.0.0.1", 0)) as forbidden,
    ):
        said = inside(
            """
            isolation.restrict([arguments["open"], sys.base_prefix], [], [arguments["port"]])
            attempt("read", lambda: open(arguments["open"] + "/seen").read())
            attempt("write", lambda: open(arguments["open"] + "/new", "w"))
            attempt("secret", lambda: open(arguments["shut"]).read())
            attempt("passwd", lambda: open("/etc/passwd").read())
            attempt("environ", lambda: open(f"/proc/{os.getppid()}/environ").read())
            attempt("broker", lambda: socket.create_connection(("127.0.0.1", arguments["port"])).close())
            attempt("other port", lambda: socket.create_connection(("127.0.0.1", arguments["other"])))
            attempt("listen", lambda: socket.create_server(("127.0.0.1", 0)))
            """,
            open=str(tmp_path / "open"),
            shut=str(tmp_path / "shut"),
            port=allowed.getsockname()[1],
            other=forbidden.getsockname()[1],
        )
    assert said == {
        "read": "ok",
        "write": "PermissionError",
        "secret": "PermissionError",
        "passwd": "PermissionError",
        "environ": "PermissionError",
        "broker": "ok",
        "other port": "PermissionError",
        "listen": "PermissionError",
    }


@pytest.mark.skipif(
    isolation.landlock_version() < 6,
    reason="this kernel's Landlock does not keep signals in; the keeper is outside the group",
)
def test_no_signal_leaves(tmp_path: Path):
    said = inside(
        """
        isolation.restrict([], [], [])
        attempt("parent", lambda: os.kill(os.getppid(), 0))
        attempt("itself", lambda: os.kill(os.getpid(), 0))
        """
    )
    assert said == {"parent": "PermissionError", "itself": "ok"}


def test_memory_is_bounded():
    said = inside(
        """
        isolation.limit_resources(memory_bytes=512 << 20, cpu_s=10, processes=0)
        attempt("a lot", lambda: bytearray(1 << 30))
        attempt("a little", lambda: bytearray(1 << 20))
        """
    )
    assert said == {"a lot": "MemoryError", "a little": "ok"}


def test_files_are_bounded(tmp_path: Path):
    said = inside(
        """
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        isolation.limit_resources(memory_bytes=0, cpu_s=10, processes=0)
        def fill():
            with open(arguments["path"], "wb") as file:
                for _ in range(100):
                    file.write(bytes(1 << 20))
        attempt("fill", fill)
        """,
        path=str(tmp_path / "big"),
    )
    assert said == {"fill": "OSError"}


def test_limits_never_rise_above_what_the_system_grants():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = inside(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        isolation.limit_resources(memory_bytes=0, cpu_s=10, processes=0)
        said["files"] = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        """
    )
    assert said == {"files": 64}
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells through /proc")
def test_threads_of_this_user_count_at_least_our_own():
    assert isolation.threads_of_this_user() >= len(list(Path("/proc/self/task").iterdir()))
