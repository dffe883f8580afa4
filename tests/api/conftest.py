"""The browser of all tests of the page."""

import pytest
from page_driver import chromium


@pytest.fixture(scope="session")
def driver():
    with chromium() as driver:
        yield driver
