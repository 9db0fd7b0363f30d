"""The site in a real browser: found, read, searched, without a mouse, in both palettes and widths."""

from __future__ import annotations

from pathlib import Path

import pytest

from autograder.tests.site.conftest import NARROW, WIDE, pages

pytestmark = pytest.mark.browser

LESSON = "lessons/concurrency/worker_pool.html"
LOOKED_AT = [
    "index.html",
    LESSON,
    "lessons/concurrency/keyed_pool.html",
    "lessons/reliability/dead_letter_queue.html",
    "lessons/reliability/graceful_shutdown.html",
    "lessons/reliability/idempotent_handler.html",
    "learn/reading_a_report.html",
    "learn/start.html",
    "reference/commands.html",
]


def test_from_the_door_to_the_exercise(browser, address):
    browser.show(address)
    for link, heading in (
        ("Start in ten minutes", "Start in ten minutes"),
        ("The lesson", "Worker pool"),
        ("the exercise", "Worker pool: the exercise"),
        ("worker_pool.py", "worker_pool.py"),
    ):
        browser.script(
            "const [text] = arguments;"
            "[...document.querySelectorAll('article a')].find(a => a.textContent.trim() === text).click()",
            link,
        )
        browser.wait(
            lambda wanted=heading: (
                (browser.script("return document.querySelector('h1')?.firstChild.textContent") or "")
                .strip() == wanted
            ),
            f"{link!r} leads to {heading!r}",
        )  # fmt: skip


def test_tabs_of_the_header_lead_to_every_part(browser, address):
    browser.show(address)
    names = browser.script(
        "return [...document.querySelectorAll('.md-tabs__link')].map(a => a.textContent.trim())"
    )
    assert names == ["Home", "Learn", "Teach", "Write", "Reference", "Decisions"]


@pytest.mark.parametrize("over", ["http", "file"])
def test_search_finds_a_name_with_an_underscore(browser, address, site, over):
    browser.show(address if over == "http" else (site / "index.html").as_uri())
    field = browser.driver.find_element("css selector", "[data-md-component=search-query]")
    field.click()
    field.send_keys("basic_ack")
    found = browser.wait(
        lambda: browser.script(
            "return [...document.querySelectorAll('.md-search-result__item a')].map(a => a.href)"
        ),
        "results for basic_ack",
    )
    assert any("worker_pool.html" in each or "glossary.html" in each for each in found)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_system_and_its_switch(browser, address, scheme):
    expected = {"light": "default", "dark": "slate"}
    browser.show(address + LESSON, scheme=scheme)
    browser.script("localStorage.clear()")
    browser.show(address + LESSON, scheme=scheme)
    worn = "return document.body.getAttribute('data-md-color-scheme')"
    browser.wait(lambda: browser.script(worn) == expected[scheme], f"palette {scheme}")
    ink = "return getComputedStyle(document.querySelector('.tl')).getPropertyValue('--tl-text').trim()"
    assert browser.script(ink) == {"light": "#1b2330", "dark": "#e6eaf0"}[scheme]
    for _ in range(3):  # system, light, dark, and round again
        before = browser.script(
            "return document.querySelector('form[data-md-component=palette] label:not([hidden])').title"
        )
        browser.script(
            "document.querySelector('form[data-md-component=palette] label:not([hidden])').click()"
        )
        browser.wait(
            lambda said=before: browser.script("return document.querySelector('form[data-md-component=palette] label:not([hidden])').title") != said,
            "the switch moves on",
        )  # fmt: skip
    browser.wait(lambda: browser.script(worn) == expected[scheme], "round again")
    browser.script("localStorage.clear()")


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "390"])
def test_no_page_scrolls_sideways_complains_or_asks_elsewhere(browser, address, site, size):
    shown = 0
    for page in pages(site):
        browser.show(address + page, size)
        ours, page_width = browser.script(
            "return [document.documentElement.clientWidth, document.documentElement.scrollWidth]"
        )
        assert page_width <= ours, f"{page} is {page_width} px wide on {ours}"
        assert browser.complaints() == [], page
        outside = [
            each
            for each in browser.requests()
            if not each.startswith((address, "data:", "about:", "blob:"))
        ]
        assert not outside, page
        shown += 1
    assert shown > 20


def press(browser, *keys):
    from selenium.webdriver.common.action_chains import ActionChains  # noqa: PLC0415 - with the group only

    ActionChains(browser.driver).send_keys(*keys).perform()


def reach(browser, selector, most=200):
    """Press Tab until the focus is on something that matches."""
    for _ in range(most):
        press(browser, "\ue004")
        if browser.script("return document.activeElement.matches(arguments[0])", selector):
            return
    raise AssertionError(f"{most} times Tab do not reach {selector}")


def test_the_keyboard_reaches_folds(browser, address):
    browser.show(address + LESSON)
    reach(browser, "details.question > summary")
    assert not browser.script("return document.activeElement.parentElement.open")
    press(browser, "\ue007")
    assert browser.script("return document.activeElement.parentElement.open")


def test_the_keyboard_reaches_tabs(browser, address):
    browser.show(address + "learn/start.html")
    reach(browser, ".tabbed-set > input")
    chosen = (
        "return [...document.querySelectorAll('.tabbed-set > input')].findIndex(i => i.checked)"
    )
    before = browser.script(chosen)
    press(browser, "\ue014")  # arrow to the right
    assert browser.script(chosen) == before + 1


def test_the_skip_link_is_first(browser, address):
    browser.show(address + LESSON)
    press(browser, "\ue004")
    assert browser.script("return document.activeElement.matches('a.md-skip')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", LOOKED_AT)
def test_axe_finds_nothing_serious(browser, address, page, scheme):
    import axe_core_python  # noqa: PLC0415 - with the group only

    script = Path(axe_core_python.__file__).with_name("axe.min.js")
    browser.show(address + page, scheme=scheme)
    browser.script("document.querySelectorAll('details').forEach(each => { each.open = true })")
    browser.script(script.read_text(encoding="utf-8"))
    browser.driver.set_script_timeout(120)
    found = browser.driver.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run(document, {resultTypes: ['violations']}).then(done, each => done({error: String(each)}))"
    )
    serious = [
        f"{each['id']}: {each['help']}: "
        + "; ".join(f"{' '.join(map(str, node['target']))} {node.get('any', [{}])[:1]}" for node in each["nodes"][:3])
        for each in found["violations"]
        if each["impact"] in {"serious", "critical"}
    ]  # fmt: skip
    assert not serious, "\n".join(serious)
    assert found["passes"], "axe looked at nothing"
