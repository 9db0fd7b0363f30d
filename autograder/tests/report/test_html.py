from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from autograder.model import GraderError, UsageError, failed
from autograder.report import html
from autograder.tests.report import samples
from autograder.tests.report.test_terminal import ALL

VOID = {"meta", "link", "br", "path", "line", "rect", "polygon"}


class Outline(HTMLParser):
    """Elements, attributes and ids; fails on what does not nest."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.open, self.text = [], [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data


def outline(page):
    parsed = Outline()
    parsed.feed(page)
    parsed.close()
    assert parsed.open == []
    return parsed


@pytest.mark.parametrize("make", ALL)
def test_the_page_is_sound_and_needs_nothing_else(make):
    page = html.page(make())
    parsed = outline(page)
    assert not {"script", "img", "iframe", "object", "base", "form"} & set(parsed.tags)
    for name, value in parsed.attributes:
        assert not name.startswith("on")
        assert name != "src"
        if name == "href":
            assert value.startswith(("data:", "#"))
    assert not re.search(r"@import|url\(", page)
    assert "default-src 'none'" in page
    ids = [value for name, value in parsed.attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_the_page_says_all_that_helps():
    parsed = outline(html.page(samples.mixed()))
    for part in (
        "Worker pool",
        "9 of 20 points",
        "4 of 9 guarantees kept",
        "A message is acknowledged only after its work is done.",
        "1 of 40 messages was acknowledged before its work was done",
        "Is the ack sent before the work is done?",
        "ackademy hint ack_follows_work",
        "ackademy check 03_concurrency/01_worker_pool --seed 2 --engine nats",
        "RabbitMQ is not on this machine",
        "took order-0039",
        "0 waiting, 0 unsettled, 40 settled, 3 redelivered",
        "async with asyncio.TaskGroup() as group:",
        "3.11.7",
    ):
        assert part in re.sub(r"\s+", " ", parsed.text)


def test_each_failure_has_its_picture_and_the_same_as_a_table():
    page = html.page(samples.mixed())
    assert page.count("<svg") == 2 * 4  # wide and narrow
    assert page.count("The same as a table") == 4
    assert page.count('role="img"') == 2 * 4


def test_only_the_first_failure_is_unfolded():
    page = html.page(samples.mixed())
    assert page.count("<details open>") == 1
    assert "<details open>" not in html.page(samples.all_pass())


def test_verdicts_are_words_and_not_only_colours():
    text = outline(html.page(samples.mixed())).text
    assert text.count("PASS") == 4
    assert text.count("FAIL") == 4
    assert text.count("inconclusive") == 1


def test_a_problem_is_told_once():
    text = outline(html.page(samples.broken())).text
    assert text.count("line 12 has an unclosed bracket") == 1
    assert "was never closed" in text
    assert "ackademy hint" not in text


def test_an_interrupted_grade_says_so():
    text = outline(html.page(samples.interrupted())).text
    assert "it decides nothing" in text
    assert "points" not in text
    assert text.count("not judged") == 6


def test_names_between_backquotes_are_code_and_still_escaped():
    verdict = failed("`<b>` is no `name", slip="Is `ack()` called before `await handle(message)`?")
    page = html.page(samples.grade(samples.result("ack_follows_work", verdict)))
    assert "Is <code>ack()</code> called before <code>await handle(message)</code>?" in page
    assert '<p class="observed"><code>&lt;b&gt;</code> is no `name</p>' not in page
    assert "`&lt;b&gt;` is no `name" in page


def test_hostile_texts_are_texts():
    page = html.page(samples.hostile())
    assert "<script" not in page
    assert "{{ 7*7 }}" in page
    for character in "\x1b\x07\x00\x08\u202e\u2066\ufeff\u2028":
        assert character not in page
    assert len(page) < 300_000
    page.encode("utf-8")


def test_the_file_is_written_whole_and_replaces_the_old_one(tmp_path):
    path = tmp_path / "grade.html"
    path.write_text("old")
    path.chmod(0o640)
    html.write(samples.mixed(), path)
    assert path.read_text(encoding="utf-8") == html.page(samples.mixed())
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_the_callers_to_make(tmp_path):
    path = tmp_path / "no" / "grade.html"
    with pytest.raises(UsageError, match="No such file") as caught:
        html.write(samples.mixed(), path)
    assert caught.value.next_command == f"mkdir -p {path.parent}"


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(UsageError, match="Is a directory"):
        html.write(samples.mixed(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_not_the_students_fault(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("autograder.report.files.os.fsync", full)
    path = tmp_path / "grade.html"
    path.write_text("old")
    with pytest.raises(GraderError, match="No space left"):
        html.write(samples.mixed(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    html.write(samples.mixed(), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").is_file()
