"""Reading: the site served on this machine, or one lesson's page."""

from __future__ import annotations

import os
import subprocess
import sys
import webbrowser
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autograder import catalog
from autograder.cli.failures import say
from autograder.cli.overview import current_exercise
from autograder.model import UsageError
from autograder.progress import read as read_progress
from autograder.report.commands import typed

SITE = "site"
BUILD = "uv run --group docs mkdocs build --strict"
_TOOLS = ("mkdocs", "material", "jupytext", "nbconvert", "ipykernel", "matplotlib")
Opener = Callable[[str], bool]


def docs(port: int, *, build: bool) -> None:
    """Build the site (what is unchanged is not executed again) and serve it until Ctrl-C.

    Raises `UsageError` if the site's tools are missing, a page is wrong or the port is taken.
    """
    root = catalog.course_root()
    if build:
        build_site(root, f"ackademy docs --port {port}")
    elif not (root / SITE / "index.html").is_file():
        raise UsageError("The site has not been built yet.", next_command="ackademy docs")
    with _server(root / SITE, port) as server:
        host, bound = server.server_address[:2]
        print(f"The site is at http://{host!s}:{bound}/ . Ctrl-C ends it.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:  # the one way to end it: nothing is wrong
            print(file=sys.stderr)


def lesson(name: str | None, *, show: bool, opener: Opener = webbrowser.open) -> None:
    """Say where a lesson's page is, building it if it is missing or old; open it with `show`."""
    root = catalog.course_root()
    exercise = catalog.find(name, root) if name else current_exercise(root, read_progress(root))
    source = root / "lessons" / exercise.path / "lesson.md"
    if not source.is_file():
        raise UsageError(
            f"{exercise.path} has no lesson yet.", next_command=f"ackademy list {exercise.path}"
        )
    page = root / SITE / page_of(exercise.path)
    if not page.is_file() or page.stat().st_mtime < source.stat().st_mtime:
        build_site(root, f"ackademy lesson {exercise.path}")
    print(page)
    if show and not opener(page.as_uri()):
        say("No browser opened; the page is a file, open it with any.")
    print(typed(f"Next: ackademy check {exercise.path}"))


def page_of(path: str) -> str:
    """Where the site has a lesson's page: without the numbers, so that the order may change."""
    return "/".join(["lessons", *(part.partition("_")[2] for part in path.split("/"))]) + ".html"


def build_site(root: Path, again: str) -> None:
    """Build the site strictly. `again` is the command to repeat with the site's tools."""
    if missing := [each for each in _TOOLS if find_spec(each) is None]:
        raise UsageError(
            f"The site's tools are not installed here ({', '.join(missing)}).",
            next_command=f"uv run --group docs {again}",
        )
    say("Building the site. What has changed since last time is executed: that takes a minute.")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", SITE]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=root, env=environment, check=False, stdout=sys.stderr)
    if done.returncode:
        raise UsageError("The site could not be built; see above.", next_command=BUILD)


def _server(folder: Path, port: int) -> ThreadingHTTPServer:
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(_Quiet, directory=str(folder)))
    except OSError as error:
        raise UsageError(
            f"Port {port} cannot be used: {error.strerror or error}.",
            next_command="ackademy docs --port 0",
        ) from None


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files and does not tell of each."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing."""
