"""The browser of all tests of the page."""

from page_driver import driver as driver
