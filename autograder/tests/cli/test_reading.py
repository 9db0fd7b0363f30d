"""Reading: where a lesson's page is, a site that is not built, tools that are not there, a taken port."""

from __future__ import annotations

import os
import socket
import threading
import urllib.request
from contextlib import closing

import pytest

from autograder.cli import reading
from autograder.model import UsageError


@pytest.fixture
def lesson(exercise):
    file = exercise.folder.parents[2] / "lessons" / exercise.path / "lesson.md"
    file.parent.mkdir(parents=True)
    file.write_text("# A lesson\n")
    return file


@pytest.fixture
def page(exercise, lesson):
    file = exercise.folder.parents[2] / "site" / reading.page_of(exercise.path)
    file.parent.mkdir(parents=True)
    file.write_text("<h1>A lesson</h1>")
    os.utime(lesson, (1, 1))
    return file


@pytest.fixture
def built(monkeypatch):
    """What was asked to be built; nothing is."""
    asked = []
    monkeypatch.setattr(reading, "build_site", lambda root, again: asked.append(again))
    return asked


def test_numbers_are_no_part_of_an_address():
    assert (
        reading.page_of("03_concurrency/01_worker_pool") == "lessons/concurrency/worker_pool.html"
    )


def test_a_lesson_is_a_file_to_open(run, exercise, page, built, monkeypatch):
    opened = []
    monkeypatch.setattr(
        reading.lesson, "__kwdefaults__", {"opener": lambda url: opened.append(url) or True}
    )
    ran = run("lesson", exercise.path)
    assert ran.code == 0
    assert ran.out.splitlines() == [str(page), f"Next: ackademy check {exercise.path}"]
    assert opened == [page.as_uri()]
    assert not built
    assert run("lesson", exercise.path, "--no-open").code == 0
    assert len(opened) == 1


def test_a_page_older_than_its_lesson_is_built_again(run, exercise, page, lesson, built):
    os.utime(page, (1, 1))
    os.utime(lesson, (9, 9))
    assert run("lesson", exercise.path, "--no-open").code == 0
    assert built == [f"ackademy lesson {exercise.path}"]


def test_an_exercise_without_a_lesson_says_so(run, exercise):
    ran = run("lesson", exercise.path)
    assert ran.code == 2
    assert "has no lesson yet" in ran.err
    assert f"ackademy list {exercise.path}" in ran.err


def test_a_site_that_is_not_built_is_not_served(run, exercise):
    ran = run("docs", "--no-build")
    assert ran.code == 2
    assert "has not been built yet" in ran.err


def test_missing_tools_are_named_with_the_command_that_brings_them(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "find_spec", lambda name: None if name == "mkdocs" else object())
    with pytest.raises(UsageError, match="not installed here \\(mkdocs\\)") as refused:
        reading.build_site(tmp_path, "ackademy docs --port 8000")
    assert refused.value.next_command == "uv run --group docs ackademy docs --port 8000"


def test_a_taken_port_is_a_matter_of_usage(run, exercise, page):
    (page.parents[2] / "index.html").write_text("<h1>Home</h1>")
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        ran = run("docs", "--no-build", "--port", str(taken.getsockname()[1]))
    assert ran.code == 2
    assert "cannot be used" in ran.err
    assert "ackademy docs --port 0" in ran.err


def test_the_site_is_served(page):
    with reading._server(page.parents[2], 0) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        host, port = server.server_address[:2]
        address = f"http://{host}:{port}/lessons/{page.parent.name}/{page.name}"
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert answer.read() == b"<h1>A lesson</h1>"
        thread.join()
