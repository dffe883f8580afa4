"""The browser fixture of all tests of the page."""

from page_driver import driver as driver
