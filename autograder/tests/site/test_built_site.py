"""The built site, read as files: every link and anchor leads somewhere, nothing leads outside unasked."""

from __future__ import annotations

import posixpath
import re
import zipfile
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from autograder.tests.site.conftest import pages

pytestmark = pytest.mark.browser

# What a page loads by itself; a link that a person may follow is another matter.
LOADING = {
    ("script", "src"),
    ("img", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
}
ASSETS = {"stylesheet", "icon", "preload", "shortcut icon", "manifest"}


class Read(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.headings, self.unlabelled = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        for name in ("src", "href"):
            if (tag, name) in LOADING and given.get(name) and tag != "link":
                self.loaded.append(given[name])
        if tag == "link" and given.get("rel") in ASSETS:
            self.loaded.append(given["href"])
        if tag == "img" and "alt" not in given:
            self.unlabelled.append(given.get("src"))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))


@pytest.fixture(scope="module")
def read(site):
    return {page: Read((site / page).read_text(encoding="utf-8")) for page in pages(site)}


def resolved(page, link):
    parts = urlsplit(link)
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path)))
    return (page if not parts.path else target), unquote(parts.fragment)


def test_every_link_and_anchor_leads_somewhere(site, read):
    dead, checked = [], 0
    for page, content in read.items():
        for link in content.links:
            if urlsplit(link).scheme or page == "404.html":
                continue
            target, anchor = resolved(page, link)
            target = "index.html" if target == "." else target
            checked += 1
            known = (site / target).is_file()
            if not known or (anchor and target in read and anchor not in read[target].ids):
                dead.append(f"{page}: {link}")
    assert checked > 500
    assert not dead


def test_no_page_loads_anything_from_elsewhere(site, read):
    for page, content in read.items():
        outside = [each for each in content.loaded if urlsplit(each).scheme not in {"", "data"}]
        assert not outside, page
        if page == "404.html":  # a web server shows it anywhere, so it names its files from the top
            continue
        for each in content.loaded:
            if each.startswith("data:"):
                continue
            target, _ = resolved(page, each)
            assert (site / target).is_file(), f"{page} loads {each}"
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*['\"]?https?:", sheet.read_text()), sheet


def test_pictures_have_words_and_headings_their_order(read):
    for page, content in read.items():
        assert not content.unlabelled, page
        if page.startswith("source/"):
            continue
        assert content.headings.count(1) == 1 or page == "404.html", page
        for above, below in zip(content.headings, content.headings[1:], strict=False):
            assert below <= above + 1, f"{page}: h{below} under h{above}"


def test_every_page_says_what_it_was_executed_with(site):
    executed = 0
    for page in pages(site):
        if page in {"404.html", "learn/report.html"}:
            continue
        text = (site / page).read_text(encoding="utf-8")
        assert 'class="ack-executed"' in text, page
        executed += "Executed 20" in text
    assert executed >= 2


def test_the_archive_is_the_whole_site(site):
    with zipfile.ZipFile(site / "ackademy-offline.zip") as archive:
        packed = {name.removeprefix("ackademy/") for name in archive.namelist()}
    files = {file.relative_to(site).as_posix() for file in site.rglob("*") if file.is_file()}
    assert packed == files - {"ackademy-offline.zip"}
    assert "search/search_index.js" in packed


def test_a_lesson_offers_its_notebook_with_outputs(site):
    notebooks = list((site / "lessons").rglob("*.ipynb"))
    assert notebooks
    for each in notebooks:
        text = each.read_text(encoding="utf-8")
        assert '"outputs": [' in text
        assert "orders a second" in text or '"text"' in text
        assert not re.search(r"127\.0\.0\.1:\d|order-\d{4}-[0-9a-f]{6}", text)
