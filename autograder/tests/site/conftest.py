"""The built site, served on this machine, and a browser without a window.

`ACKADEMY_SITE` names the folder that `mkdocs build` has written; without it these tests are
skipped, because building executes the lessons. With it a missing browser is a failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

WIDE, NARROW = (1280, 900), (390, 844)


@pytest.fixture(scope="session")
def site():
    named = os.environ.get("ACKADEMY_SITE")
    if not named:
        pytest.skip("set ACKADEMY_SITE to the folder of a built site")
    folder = Path(named).resolve()
    assert (folder / "index.html").is_file(), f"{folder} holds no site: mkdocs build --strict"
    return folder


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def address(site):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join()


class Browser:
    """Chromium and what it noted: requests and console messages."""

    def __init__(self, driver):
        self.driver = driver

    def show(self, url, size=WIDE, scheme="light"):
        """Open a page in a window of this size, on a system that prefers this palette."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        self.driver.get("about:blank")  # the same page with another anchor would not be loaded
        self.requests(), self.complaints()
        self.driver.get(url)

    def script(self, text, *given):
        return self.driver.execute_script(text, *given)

    def requests(self):
        """What was asked of whom since the last call."""
        said = [
            json.loads(each["message"])["message"] for each in self.driver.get_log("performance")
        ]
        return [
            each["params"]["request"]["url"]
            for each in said
            if each["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self):
        """Errors and warnings in the console since the last call."""
        return [
            each["message"]
            for each in self.driver.get_log("browser")
            if each["level"] in {"SEVERE", "WARNING"}
        ]

    def wait(self, condition, what, timeout_s=20):
        from selenium.webdriver.support.ui import WebDriverWait  # noqa: PLC0415 - with the group only

        return WebDriverWait(self.driver, timeout_s).until(lambda _: condition(), what)


@pytest.fixture(scope="session")
def browser(site, tmp_path_factory):
    from selenium import webdriver  # noqa: PLC0415 - with the group only

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert chromium, "Chromium is missing: apt-get install chromium chromium-driver"
    assert driver, "chromedriver is missing: apt-get install chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    with contextlib.closing(opened):
        yield Browser(opened)
    opened.quit()


def pages(site):
    """Every page, as its path below the site."""
    return sorted(file.relative_to(site).as_posix() for file in site.rglob("*.html"))
