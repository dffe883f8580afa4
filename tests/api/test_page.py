"""The page's files as they are served, and what it says in a headless Chromium.

What the page's policy forbids, such as loading from elsewhere, Chromium logs: then
page_driver.visiting fails.
"""

import json
import re
from collections.abc import Iterator

import fake_triton
import grpc
import httpx
import numpy as np
import pytest
from fake_triton import FakeTriton, Holding, refusing
from page_driver import Page, chromium, needs_browser, sample, visiting
from selenium.webdriver.chrome.webdriver import WebDriver
from support import PHOTO, running_gateway, settings_for

from api.errors import kinds

TOKEN = "a-token-of-the-tests-0123456789"  # noqa: S105
AVIF = b"\0\0\0\x18ftypavif\0\0\0\0mif1avif" + bytes(64)


TYPES = {
    "": "text/html; charset=utf-8",
    "page/page.css": "text/css; charset=utf-8",
    "page/page.js": "text/javascript; charset=utf-8",
    "page/sample.jpg": "image/jpeg",
}


def test_files_come_with_their_types_and_are_asked_for_again_only_if_changed(
    client: httpx.Client,
) -> None:
    etags = set()
    for address, media_type in TYPES.items():
        response = client.get(f"/{address}")
        assert response.status_code == 200
        assert response.headers["content-type"] == media_type
        assert response.headers["cache-control"] == "no-cache"
        etag = response.headers["etag"]
        etags.add(etag)
        for known in (etag, f'W/{etag}, "other"', "*"):
            answer = client.get(f"/{address}", headers={"if-none-match": known})
            assert (answer.status_code, answer.content) == (304, b"")
            assert answer.headers["etag"] == etag
        assert client.get(f"/{address}", headers={"if-none-match": '"x"'}).status_code == 200
    assert len(etags) == len(TYPES)
    for path in ("/page/", "/page/none.js", "/page/%2e%2e%2fmain.py", "/page/..%2fcli.py"):
        assert client.get(path).status_code == 404


def test_nothing_is_loaded_or_sent_elsewhere(client: httpx.Client) -> None:
    rules = client.get("/").headers["content-security-policy"].split("; ")
    policy = dict(rule.partition(" ")[::2] for rule in rules)
    assert policy["default-src"] == "'none'"
    for kind in ("script-src", "style-src", "connect-src"):
        assert policy[kind] == "'self'"
    assert policy["img-src"] == "'self' blob:"
    assert policy["form-action"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"


def test_every_text_exists_in_both_languages(client: httpx.Client) -> None:
    english, russian = (client.get(f"/page/{name}.js").text for name in ("english", "russian"))
    # Each is JSON but for its first words.
    english, russian = (json.loads(text[text.index("{") :]) for text in (english, russian))
    assert list(english) == list(russian)
    for key, words in english.items():
        assert words and russian[key]
        assert set(re.findall(r"{\w+}", words)) == set(re.findall(r"{\w+}", russian[key])), key
    for status in {kind.status for kind in kinds()} | {0, 401, 403, 408, 429}:
        assert {f"problem.{status}", f"advice.{status}"} <= english.keys()
    # What the page says before its scripts run is what they say in English.
    for key, words in re.findall(r'data-text="([\w.]+)"[^>]*>([^<]*)<', client.get("/").text):
        assert english[key] == words


@pytest.fixture(scope="module")
def driver() -> Iterator[WebDriver]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def page(driver: WebDriver, client: httpx.Client, fake: FakeTriton) -> Iterator[Page]:
    with visiting(driver, str(client.base_url)) as page:
        yield page


@pytest.fixture
def guarded(driver: WebDriver, fake: FakeTriton) -> Iterator[Page]:
    """The page of a gateway that wants a token and has time."""
    settings = settings_for(fake, tokens=TOKEN, request_timeout_s=20)
    with running_gateway(settings) as client, visiting(driver, str(client.base_url)) as page:
        yield page


def enter_token(page: Page, token: str, remember: bool = False) -> None:
    page.run("document.getElementById('token').value = arguments[0];"
             "document.getElementById('remember').checked = arguments[1]",
             token, remember)  # fmt: skip
    page.click("#token-form [type=submit]")


@needs_browser
def test_photos_that_are_refused(page: Page) -> None:
    page.give("drop", AVIF, "IMG_1.AVIF", "image/avif")
    page.problem("as JPEG")
    page.choose(sample("green_car"))  # more bytes than this gateway takes
    page.problem("too large")
    page.give("paste", PHOTO[: len(PHOTO) // 2], "half.jpg")
    page.problem("damaged")
    # The server's own words are there, marked as English in other languages.
    page.click("[data-language=ru]")
    page.problem("Фото повреждено")
    assert "truncated" in page.text("#problem-words .detail [lang=en]")


@needs_browser
def test_busy_server_is_asked_again_after_the_time_that_it_wants(
    page: Page, fake: FakeTriton
) -> None:
    fake.reply = refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue full")
    page.give("drop", PHOTO, "photo.jpg")
    page.problem("busy")
    button = "return document.querySelector('#problem-actions button').disabled"
    assert page.run(button)
    assert page.text("#problem-actions").startswith("Try again in")
    page.wait_for(lambda: not page.run(button), "the end of the countdown")
    fake.reply = lambda _: fake_triton.outputs()
    page.click("#problem-actions button")
    assert [plate["text"] for plate in page.answer("photo.jpg")["plates"]] == ["B840CK197", ""]
    assert not page.text("#problem-words")


@needs_browser
def test_recognizer_that_is_away_and_a_server_that_is(page: Page, fake: FakeTriton) -> None:
    fake.reply = refusing(grpc.StatusCode.UNAVAILABLE, "no server")
    page.give("drop", PHOTO, "photo.jpg")
    page.problem("not available")
    page.driver.set_network_conditions(offline=True, latency=0, throughput=0)
    try:
        page.give("drop", PHOTO, "photo.jpg")
        page.problem("can't be reached")
    finally:
        page.driver.delete_network_conditions()


@needs_browser
def test_answers_of_another_size_and_of_no_plates(page: Page, fake: FakeTriton) -> None:
    """The fake Triton says 640 x 480 whatever comes."""
    page.give("drop", PHOTO, "photo.jpg")
    page.answer("photo.jpg")
    assert "another size" in page.text("#unshown")
    assert not page.crops()
    assert page.texts() == ["B840CK197", "A1"]
    assert "Not readable" in page.text("#plates .card:last-child .verdict")
    fake.reply = lambda _: fake_triton.outputs(0)
    page.give("drop", PHOTO, "empty.jpg")
    assert page.answer("empty.jpg")["plates"] == []
    assert page.text("#status") == "No plates found."
    assert "60 pixels" in page.text("#plates")


@needs_browser
def test_texts_of_an_answer_never_become_markup(page: Page, fake: FakeTriton) -> None:
    evil = "<img src=x onerror=alert(1)>"
    reply = fake_triton.outputs(1)
    reply["texts"] = np.array([[evil]], object)
    reply["candidates"] = np.array([[evil, "", "", "", ""]], object)
    fake.reply = lambda _: reply
    page.give("drop", PHOTO, f"{evil}.jpg")
    assert page.answer(".jpg")["plates"][0]["text"] == evil
    assert evil in page.text("#status")
    assert page.run("return document.querySelectorAll('#results img').length") == 0


@needs_browser
def test_token_is_asked_for_and_kept_only_where_that_is_wished(guarded: Page) -> None:
    guarded.give("drop", PHOTO, "photo.jpg")
    guarded.problem("access token")
    enter_token(guarded, "a-wrong-token-0123456789-0123456")
    guarded.problem("token")
    enter_token(guarded, TOKEN)
    guarded.answer("photo.jpg")
    assert "$PLATES_TOKEN" in guarded.text("#curl")
    assert TOKEN not in guarded.run("return document.documentElement.outerHTML + location.href")
    assert guarded.run("return sessionStorage.length + localStorage.length") == 0
    enter_token(guarded, TOKEN, remember=True)
    guarded.answer("photo.jpg")
    guarded.open().give("drop", PHOTO, "again.jpg")
    assert guarded.answer("again.jpg")["plates"]


def cancelled_requests(page: Page) -> list[dict[str, object]]:
    """Since the network's events were last asked for."""
    failed = [each for each in page.network_events() if each["method"] == "Network.loadingFailed"]
    return [each for each in failed if each["params"].get("canceled")]


@needs_browser
def test_reading_can_be_cancelled(guarded: Page, fake: FakeTriton) -> None:
    fake.reply = holding = Holding()
    with holding:
        guarded.give("drop", PHOTO, "photo.jpg")
        guarded.problem()
        enter_token(guarded, TOKEN)
        assert holding.arrived.acquire(timeout=20)
        assert guarded.text("#status") == "Reading photo.jpg…"
        guarded.click("#cancel")
        assert guarded.text("#status") == "Cancelled."
        guarded.wait_for(lambda: cancelled_requests(guarded), "the request's end")
    guarded.click("#again")
    assert guarded.answer("photo.jpg")["plates"]
