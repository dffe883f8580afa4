"""The page's tab of cameras in a headless Chromium: live passes, their pictures, a search."""

import cv2
import numpy as np
import pytest
from camera_events import a_pass, store_of
from page_driver import needs_browser, visiting
from support import running_gateway, settings_for

from plates.cameras import state_file
from plates.cameras.http import make_router
from plates.cameras.settings import CamerasFile

FILE = CamerasFile.model_validate({"cameras": [{"name": "gate"}, {"name": "door"}]})
PICTURE = cv2.imencode(".jpg", np.full((48, 188, 3), 200, np.uint8))[1].tobytes()
TOKEN = "a-token-of-the-tests-0123456789"  # noqa: S105
ROWS = """
return [...document.querySelectorAll("#passes tbody tr")].map((row) =>
  [...row.cells].slice(1).map((cell) => cell.innerText.trim()));
"""
PICTURES = """
return [...document.querySelectorAll("#passes img")].map((image) => image.naturalWidth);
"""


@pytest.fixture
def store(tmp_path):
    store = store_of(tmp_path)
    yield store
    store.close()


def rows(page, *expected):
    page.wait_for(lambda: page.run(ROWS) == list(map(list, expected)), f"{expected}")


@needs_browser
def test_passes_appear_as_they_come_and_are_found_again(driver, fake, store, tmp_path):
    evil = "<img src=x onerror=alert(1)>"
    store.add(a_pass(1, text="A001AA77", text_native="А001АА77"), PICTURE, ())
    state_file(tmp_path, "gate").write_text('{"status": "live"}')
    router = make_router(FILE, store, tmp_path)
    with (
        running_gateway(settings_for(fake), router) as client,
        visiting(driver, str(client.base_url)) as page,
    ):
        page.wait_for(lambda: page.run("return !document.getElementById('tabs').hidden"), "tabs")
        page.click("[data-tab=cameras]")
        first = ["gate-1", "А001АА77", "99.8%", "approaching", ""]
        rows(page, first)
        page.wait_for(lambda: page.run(PICTURES) == [188], "the picture")
        assert "live" in page.text("#camera-states") and "door" in page.text("#camera-states")
        match = {"list": evil, "text": "B002BB77", "probability": 0.997}
        store.add(a_pass(2, "updated", text_native="В002ВВ77", match=match), PICTURE, ())
        second = ["gate-1", "В002ВВ77", "99.8%", "approaching, in sight", f"{evil}, 99.7%"]
        rows(page, second, first)
        store.add(a_pass(2, revision=2, text="B002BB77", text_native="В002ВВ77"), PICTURE, ())
        second = ["gate-1", "В002ВВ77", "99.8%", "approaching", ""]
        rows(page, second, first)
        page.run("document.getElementById('search-text').value = 'a0?1*'")
        page.click("#search [type=submit]")
        rows(page, first)
        assert "1 pass is kept" in page.text("#cameras-status")
        page.click("#search [type=reset]")
        rows(page, second, first)
        page.click("[data-tab=photos]")
        assert not page.run("return document.getElementById('cameras').checkVisibility()")
        assert page.run("return document.getElementById('intake').checkVisibility()")


@needs_browser
def test_a_token_is_asked_for(driver, fake, store, tmp_path):
    store.add(a_pass(1), None, ())
    router, settings = make_router(FILE, store, tmp_path), settings_for(fake, tokens=TOKEN)
    with (
        running_gateway(settings, router) as client,
        visiting(driver, str(client.base_url)) as page,
    ):
        page.wait_for(lambda: page.run("return !document.getElementById('tabs').hidden"), "tabs")
        page.click("[data-tab=cameras]")
        shown = "return document.getElementById('cameras-token').checkVisibility()"
        page.wait_for(lambda: page.run(shown), "the question")
        assert page.run(ROWS) == []
        page.run("document.querySelector('#cameras-token input').value = arguments[0]", TOKEN)
        page.click("#cameras-token [type=submit]")
        rows(page, ["gate-1", "Х556ХМ750", "99.8%", "approaching", ""])
        assert not page.run(shown)
