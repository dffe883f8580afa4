"""The page and its tab of cameras in a headless Chromium, with a fake Triton.

Chromium logs violations of the page's Content-Security-Policy, such as loading from other
origins; page_driver.visiting fails then.
"""

import time
from contextlib import contextmanager

import cv2
import grpc
import numpy as np
import pytest
from camera_events import a_pass
from fake_triton import Holding, outputs, refusing
from page_driver import ActionChains, Keys, needs_browser, sample, visiting
from support import PHOTO, running_gateway

from plates.cameras import state_file
from plates.cameras.http import make_router
from plates.cameras.settings import CamerasFile

pytestmark = needs_browser

TOKEN = "a-token-of-the-tests-0123456789"  # noqa: S105
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def page(driver, client):
    with visiting(driver, str(client.base_url)) as page:
        yield page


def enter_token(page, token, form="#token-form"):
    page.run("document.querySelector(arguments[0]).value = arguments[1]", f"{form} input", token)
    page.click(f"{form} [type=submit]")


def test_the_page_explains_why_a_photo_is_refused(page, tmp_path):
    page.give("drop", b"\0\0\0\x18ftypavif\0\0\0\0mif1avif" + bytes(64), "IMG.AVIF", "image/avif")
    page.problem("as JPEG")
    page.choose(sample("green_car"))  # larger than this gateway's limit
    page.problem("too large")
    page.give("paste", PHOTO[: len(PHOTO) // 2], "half.jpg")
    page.problem("damaged")
    # The server's English detail stays, marked as English in other languages.
    page.click("[data-language=ru]")
    page.problem("Фото повреждено")
    assert "truncated" in page.text("#problem-words .detail [lang=en]")
    page.click("[data-language=en]")
    edited = tmp_path / "edited.jpg"
    edited.write_bytes(PHOTO)
    page.choose(edited)
    page.answer("edited.jpg")
    edited.write_bytes(PHOTO + PHOTO)
    page.click("#filter [type=submit]")
    page.problem("did not understand")
    # An answer that breaks off, and that of a proxy whose gateway is down.
    for more, words in (("", "can't be reached"), (", {status: 502}", "not available right now")):
        page.run(f"window.fetch = async () => new Response('<'{more})")
        page.give("drop", PHOTO, "photo.jpg")
        page.problem(words)
        assert page.text("#problem-actions").startswith("Try again")
    page.click("#sample")
    page.wait_for(lambda: "can't be reached" in page.text("#no-sample"), "the sample's refusal")


EARLY = """
document.addEventListener("readystatechange", () => {
  const chosen = new DataTransfer();
  chosen.items.add(new File(["nothing"], "early.jpg"));
  document.getElementById("choose").files = chosen.files;
}, { once: true });
"""
THUMB_IN_SIGHT = """
const [strip, thumb] = ["#strip", "#strip li:last-child [aria-current=true]"]
  .map((place) => document.querySelector(place).getBoundingClientRect());
return thumb.right <= strip.right;
"""
# As in WebKit, the events have no relatedTarget: the element the pointer comes from or goes to.
DRAG = """
const dataTransfer = new DataTransfer();
dataTransfer.items.add(new File(["nothing"], "dragged.jpg"));
return ["dragenter main", "dragover main", "dragenter h1", "dragleave main", "dragleave h1"]
  .map((step) => {
    const [name, where] = step.split(" ");
    const event = new DragEvent(name, { bubbles: true, cancelable: true, dataTransfer });
    document.querySelector(where).dispatchEvent(event);
    return document.body.classList.contains("dragging");
  });
"""


def test_a_photo_chosen_before_the_scripts_loaded_is_sent_and_dragging_marks_the_page(driver, page):
    assert page.run(DRAG) == [False, True, True, True, False]
    early = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": EARLY})
    page.open().problem("not an image")
    assert page.text("#caption").strip() == "early.jpg"
    driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", early)


def test_the_page_can_retry_at_a_busy_server_only_after_a_countdown(page, fake):
    button = "return document.querySelector('#problem-actions button').disabled"
    for ask in (lambda: page.give("drop", PHOTO, "photo.jpg"), lambda: page.click("#redact")):
        fake.reply = refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue full")
        ask()
        page.problem("busy")
        assert page.run(button)
        assert page.text("#problem-actions").startswith("Try again in")
        page.wait_for(lambda: not page.run(button), "the end of the countdown")
        fake.reply = lambda _: outputs()
        page.click("#problem-actions button")
        assert [plate["text"] for plate in page.answer("photo.jpg")["plates"]] == ["B840CK197", ""]
        assert not page.text("#problem-words")
    page.wait_for(lambda: "downloaded" in page.text("#status"), "the blurred photo")
    assert not page.text("#problem-words")


def test_the_page_shows_plates_or_says_that_there_are_none(page, fake):
    page.give("drop", PHOTO, "photo.jpg")
    page.answer("photo.jpg")
    assert page.texts() == ["B840CK197", "A1"]
    # Without cameras there is no tab for them.
    assert page.run("return document.getElementById('tabs').hidden")
    assert "Not readable" in page.text("#plates .card:last-child .verdict")
    page.click("#draw")
    drag = ActionChains(page.driver).click_and_hold(page.driver.find_element("id", "frame"))
    drag.move_by_offset(80, 50).send_keys(Keys.ESCAPE).move_by_offset(9, 9).release().perform()
    assert page.text("#status").startswith("2 plates found")
    assert not page.run("return document.querySelectorAll('#drawing .region').length")
    fake.reply = lambda _: outputs(0)
    page.give("drop", PHOTO, "empty.jpg")
    assert page.answer("empty.jpg")["plates"] == []
    assert page.text("#status") == "No plates found."
    assert "60 pixels" in page.text("#plates")
    fake.reply = holding = Holding()
    with holding:
        for _ in range(13):
            page.give("drop", PHOTO, "many.jpg")
        assert page.text("#unread") == "Not read because there were too many at once: 1"
        assert page.run(THUMB_IN_SIGHT), "the current photo is the last of many"


def test_texts_in_an_answer_never_become_markup(page, fake):
    reply = outputs(1)
    reply["texts"] = np.array([[EVIL]], object)
    reply["candidates"] = np.array([[EVIL, "", "", "", ""]], object)
    fake.reply = lambda _: reply
    page.give("drop", PHOTO, f"{EVIL}.jpg")
    assert page.answer(".jpg")["plates"][0]["text"] == EVIL
    assert EVIL in page.text("#status")
    assert page.run("return document.querySelectorAll('#results img').length") == 0


@pytest.mark.settings(tokens=TOKEN, request_timeout_s=20)
def test_the_page_asks_for_a_token_and_stores_it_only_on_request(page):
    for name in ("first.jpg", "photo.jpg"):
        page.give("drop", PHOTO, name)
        page.problem("access token")
    enter_token(page, "a-wrong-token-0123456789-0123456")
    page.problem("token")
    enter_token(page, TOKEN)
    page.answer("photo.jpg")
    assert not page.run("return document.querySelectorAll('.thumb.failed').length")
    assert "$PLATES_TOKEN" in page.text("#curl")
    assert TOKEN not in page.run("return document.documentElement.outerHTML + location.href")
    assert page.run("return sessionStorage.length + localStorage.length") == 0
    page.click("#remember")
    enter_token(page, TOKEN)
    page.answer("photo.jpg")
    page.open().give("drop", PHOTO, "again.jpg")
    assert page.answer("again.jpg")["plates"]


@pytest.mark.settings(tokens=TOKEN, request_timeout_s=20)
def test_reading_can_be_cancelled(page, fake):
    fake.reply = holding = Holding()
    with holding:
        page.give("drop", PHOTO, "photo.jpg")
        page.problem()
        enter_token(page, TOKEN)
        assert holding.arrived.acquire(timeout=20)
        assert page.text("#status") == "Reading photo.jpg…"
        page.click("#cancel")
        assert page.text("#status") == "Cancelled."
        events = page.network_events
        page.wait_for(lambda: any(each["params"].get("canceled") for each in events()), "its end")
    page.click("#again")
    assert page.answer("photo.jpg")["plates"]


FILE = CamerasFile.model_validate({"cameras": [{"name": "gate"}, {"name": "door"}]})
PICTURE = cv2.imencode(".jpg", np.full((48, 188, 3), 200, np.uint8))[1].tobytes()
ROWS = """
return [...document.querySelectorAll("#passes tbody tr")].map((row) =>
  [...row.cells].slice(1).map((cell) => cell.innerText.trim()));
"""
PICTURES = "return [...document.querySelectorAll('#passes img')].map((one) => one.naturalWidth)"
VISIBLE = "return document.getElementById(arguments[0]).checkVisibility()"


@contextmanager
def tab_of_cameras(driver, fake, store, folder, **options):
    with (
        running_gateway(fake, make_router(FILE, store, folder), **options) as client,
        visiting(driver, str(client.base_url)) as page,
    ):
        page.wait_for(lambda: page.run(VISIBLE, "tabs"), "tabs")
        page.click("[data-tab=cameras]")
        yield page


def rows(page, *expected):
    page.wait_for(lambda: page.run(ROWS) == list(map(list, expected)), f"{expected}")


def test_passes_appear_as_they_come_and_can_be_searched(driver, fake, store, tmp_path):
    store.add(a_pass(0, text_native="А000АА77"), None, ())  # has no picture
    store.add(a_pass(1, text="A001AA77", text_native="А001АА77"), PICTURE, ())
    state_file(tmp_path, "gate").write_text('{"status": "live"}')
    with tab_of_cameras(driver, fake, store, tmp_path) as page:
        first = ["gate-1", "А001АА77", "99.8%", "approaching", ""]
        old = ["gate-1", "А000АА77", "99.8%", "approaching", ""]
        rows(page, first, old)
        page.wait_for(lambda: page.run(PICTURES) == [188, 0], "the picture")
        assert "live" in page.text("#camera-states") and "door" in page.text("#camera-states")
        match = {"list": EVIL, "text": "B002BB77", "probability": 0.997}
        store.add(a_pass(2, "updated", text_native="В002ВВ77", match=match), PICTURE, ())
        second = ["gate-1", "В002ВВ77", "99.8%", "approaching, in sight", f"{EVIL}, 99.7%"]
        rows(page, second, first, old)
        store.add(a_pass(2, revision=2, text="B002BB77", text_native="В002ВВ77"), PICTURE, ())
        second = ["gate-1", "В002ВВ77", "99.8%", "approaching", ""]
        rows(page, second, first, old)
        page.wait_for(lambda: page.run(PICTURES) == [188, 188, 0], "its picture")
        page.run("document.getElementById('search-text').value = 'a0?1*'")
        page.click("#search [type=submit]")
        rows(page, first)
        assert "1 pass found" in page.text("#cameras-status")
        tab = driver.current_window_handle
        driver.switch_to.new_window("tab")
        driver.close()
        driver.switch_to.window(tab)
        time.sleep(0.5)
        rows(page, first)  # the search still applies when the tab is visible again
        state_file(tmp_path, "door").write_text('{"status": "silent", "problem": "why"}')
        page.wait_for(lambda: "no picture: why" in page.text("#camera-states"), "its state")
        page.run("document.getElementById('search-until').value = '20260-01-01T00:00'")
        assert not page.run("return document.getElementById('search').checkValidity()")
        page.run("document.getElementById('search-until').value = '2026-01-01T00:00'")
        page.click("#search [type=submit]")
        rows(page)
        page.click("[data-language=ru]")
        page.wait_for(lambda: "Найдено 0" in page.text("#cameras-status"), "Russian")
        page.click("#search [type=reset]")
        rows(page, *([*row[:2], "99,8\xa0%", "приближается", ""] for row in (second, first, old)))
        page.click("[data-language=en]")
        rows(page, second, first, old)
        page.run("document.querySelector('#camera-states li').title = 'kept'")
        page.click("[data-tab=photos]")
        assert not page.run(VISIBLE, "cameras") and page.run(VISIBLE, "intake")
        page.click("[data-tab=cameras]")
        rows(page, second, first, old)
        for _ in range(7):  # more tabs than a browser's connections to one server
            driver.switch_to.new_window("tab")
            page.open()
            page.wait_for(lambda: page.run(VISIBLE, "tabs"), "tabs")
            page.click("[data-tab=cameras]")
            rows(page, second, first, old)
        for other in {*driver.window_handles} - {tab}:
            driver.switch_to.window(other)
            driver.close()
        driver.switch_to.window(tab)
        store.add(a_pass(3, text_native="С003СС77"), None, ())
        rows(page, ["gate-1", "С003СС77", "99.8%", "approaching", ""], second, first, old)
        assert page.run("return document.querySelector('#camera-states li').title") == "kept"
        page.run("document.getElementById('search-text').focus()")
        page.give("paste", PHOTO, "cell.jpg")  # as a spreadsheet does, beside a text
        assert page.run(VISIBLE, "cameras")
        page.give("drop", PHOTO, "photo.jpg")  # a photo dropped on this tab opens the tab of photos
        page.answer("photo.jpg")
        assert not page.run(VISIBLE, "cameras") and page.run(VISIBLE, "work")


SLOW_EVENTS = """
const ask = window.fetch;
window.fetch = (to, how) => new Promise((done) =>
  setTimeout(() => done(ask(to, how)), String(to).endsWith("/events") ? 1000 : 0));
"""


def test_passes_before_the_stream_and_a_silent_server_are_shown(driver, fake, store, tmp_path):
    with tab_of_cameras(driver, fake, store, tmp_path) as page:
        page.run(SLOW_EVENTS)
        page.click("#search [type=reset]")
        time.sleep(0.5)
        store.add(a_pass(1), None, ())
        rows(page, ["gate-1", "Х556ХМ750", "99.8%", "approaching", ""])
        page.run("AbortSignal.timeout = () => AbortSignal.abort(new Error('no answer in time'))")
        page.click("#search [type=reset]")
        page.wait_for(lambda: "Trying again" in page.text("#cameras-status"), "its refusal")
        page.run("window.said = document.getElementById('cameras-status').firstChild")
        time.sleep(4)  # The page tries again, and doesn't write the same words again.
        assert page.run("return window.said.isConnected")
        page.run("window.fetch = async () => new Response('<', {status: 502})")  # a proxy's answer
        page.click("#search [type=submit]")
        page.wait_for(lambda: page.text("#cameras-status") == "The server can't be reached", "end")


def test_the_cameras_need_a_token_and_pictures_have_no_rate_limit(driver, fake, store, tmp_path):
    store.add(a_pass(1), PICTURE, ())
    options = {"tokens": TOKEN, "rate_limit": 0.01, "rate_burst": 1}
    with tab_of_cameras(driver, fake, store, tmp_path, **options) as page:
        for token, answer in (("", "Send one"), ("a-wrong-token", "is none"), ("жетон", "such")):
            if token:
                enter_token(page, token, "#cameras-token")
            page.wait_for(lambda: answer in page.text("#cameras-status"), answer)  # noqa: B023
            assert page.run(VISIBLE, "cameras-token") and page.run(ROWS) == []
        page.click("#search [type=submit]")
        enter_token(page, TOKEN, "#cameras-token")
        rows(page, ["gate-1", "Х556ХМ750", "99.8%", "approaching", ""])
        page.wait_for(lambda: page.run(PICTURES) == [188], "the picture")
        assert not page.run(VISIBLE, "cameras-token") and "1 pass" in page.text("#cameras-status")
