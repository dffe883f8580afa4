"""A headless Chromium, and what tests of the page ask it."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.chrome.webdriver import WebDriver

# For hangs only.
WAIT_S = 20.0


def missing_browser() -> str | None:
    """Why there is no browser, or None."""
    for names in (("chromium", "chromium-browser", "google-chrome"), ("chromedriver",)):
        if not any(map(shutil.which, names)):
            return f"none of {', '.join(names)} is installed"
    return None


def first_found(*names: str) -> str:
    return next(path for path in map(shutil.which, names) if path)


@contextmanager
def chromium(width: int = 1280, height: int = 900, scale: float = 1.0) -> Iterator[WebDriver]:
    """Start a browser without a profile; network requests and its console are recorded."""
    reason = missing_browser()
    if reason:
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = first_found("chromium", "chromium-browser", "google-chrome")
    # The sandbox needs rights that containers lack; /dev/shm is often small there.
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
    for flag in (*flags, "--lang=en-GB", "--hide-scrollbars", "--disable-background-networking"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    # The path is given: without one, selenium would look for a driver to download.
    driver = webdriver.Chrome(options=options, service=Service(first_found("chromedriver")))
    try:
        resize(driver, width, height, scale)
        yield driver
    finally:
        driver.quit()


def resize(driver: WebDriver, width: int, height: int, scale: float = 1.0) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def prefer(driver: WebDriver, **features: str) -> None:
    """Set media features, such as prefers_color_scheme="dark"."""
    wanted = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})


def wait_for(true: Callable[[], Any], what: str) -> Any:
    """Ask until the answer is truthy; bounded only against hangs."""
    end = time.monotonic() + WAIT_S
    while not (value := true()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {WAIT_S:g} s")
        time.sleep(0.03)
    return value
