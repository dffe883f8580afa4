"""The page in a headless Chromium, with the real gateway and the real models."""

import json
import shutil
import subprocess

import numpy as np
import pytest
from page_driver import CROPS, needs_browser, resize, sample, visiting
from photo_files import exif
from PIL import Image
from selenium.webdriver.common.keys import Keys
from support import post_raw, read_samples

# Roles that must have an accessible name, as Chromium calls them.
CONTROLS = {
    *("button", "checkbox", "DisclosureTriangle", "form", "image", "link", "list", "navigation"),
    *("region", "spinbutton", "textbox"),
}

pytestmark = [pytest.mark.live, needs_browser]

# The corners of each outline, as shares of the photo's width and height.
QUADS = """
const photo = document.getElementById("image").getBoundingClientRect();
return [...document.querySelectorAll("#drawing .quad")].map((polygon) =>
  [...polygon.points].map((point) => {
    const {x, y} = point.matrixTransform(polygon.getScreenCTM());
    return [(x - photo.x) / photo.width, (y - photo.y) / photo.height];
  }));
"""


@pytest.fixture
def page(driver, gateway_url):
    with visiting(driver, gateway_url) as page:
        yield page


@pytest.mark.parametrize("name", ["two_by_day", "green_car", "square_plates"])
def test_the_page_shows_what_the_service_answers(page, gateway, name):
    photo = sample(name)
    page.choose(photo)
    answer = page.answer(photo.name)
    of_api = post_raw(gateway, photo.read_bytes()).json()
    assert answer["plates"] == of_api["plates"] and answer["model"] == of_api["model"]
    best = [p["text"] or "".join(c["char"] for c in p["characters"]) for p in answer["plates"]]
    assert page.texts() == best
    assert {plate.text for plate in read_samples()[photo.name]} <= set(best)
    crops = page.run(CROPS)
    assert len(crops) == len(best)
    for width, height, values in crops:
        assert min(width, height) >= 90 and values > 40


def test_outlines_lie_on_the_plates_at_every_size(page):
    page.choose(sample("portrait"))
    answer = page.answer("portrait.jpg")
    size = np.array([answer["image"]["width"], answer["image"]["height"]])
    expected = np.array([plate["quad"] for plate in answer["plates"]]) / size
    try:
        for width, scale in ((1280, 1.0), (320, 3.0)):
            resize(page.driver, width, 800, scale)
            assert np.array(page.run(QUADS)) == pytest.approx(expected, abs=0.006)
            # Nothing is wider than the window.
            assert page.run("return document.documentElement.scrollWidth") <= width
    finally:
        resize(page.driver, 1280, 900)


def test_a_rotated_photo_is_shown_upright_and_a_tiff_is_read_without_being_shown(page, tmp_path):
    upright = Image.open(sample("green_car"))
    turned, tiff = tmp_path / "turned.jpg", tmp_path / "photo.tiff"
    # The top row of the stored picture is the right column of the upright one.
    upright.rotate(90, expand=True).save(turned, exif=exif(6), quality=92)
    page.choose(turned)
    assert page.answer("turned.jpg")["image"] == {"width": 1280, "height": 720}
    assert page.texts() == ["X556XM750"]
    width, height, *_ = page.run(CROPS)[0]
    assert width > 3 * height
    upright.save(tiff)
    page.choose(tiff)
    page.answer("photo.tiff")
    assert page.texts() == ["X556XM750"]
    assert "can't show" in page.text("#unshown") and not page.run(CROPS)


def test_the_curl_command_gives_the_same_plates_as_the_page(page, tmp_path):
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    name = 'it\'s; a "photo", $HOME.jpg'
    shutil.copy(sample("two_by_day"), tmp_path / name)
    page.choose(tmp_path / name)
    every = page.answer(name)["plates"]
    page.run("for (const [i, v] of [200, 380, 700, 640].entries())"
             " document.querySelectorAll('.fields input')[i].value = v")  # fmt: skip
    page.click("#filter [type=submit]")
    page.wait_for(lambda: "roi=200,380,700,640" in page.text("#curl"), "reading again")
    some = page.answer(name)["plates"]
    assert [plate["text"] for plate in some] == ["H222XH250"] and len(every) > 1
    line = page.text("#curl")
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, timeout=30)
    assert json.loads(done.stdout)["plates"] == some


def test_the_page_works_with_the_keyboard_alone(page):
    page.tab_to("#choose")
    page.tab_to("#sample")
    page.press(Keys.ENTER)
    page.answer("sample.jpg")
    assert page.run("return document.activeElement.id") == "photo-title"  # #sample is hidden
    page.tab_to("#redact")
    page.tab_to("#options summary")
    page.press(Keys.SPACE)
    page.tab_to("#x0")
    page.tab_to("#min_width")
    page.press("5", "0", Keys.ENTER)
    page.wait_for(lambda: "min_width=50" in page.text("#curl"), "reading again")
    page.answer("sample.jpg")
    page.tab_to(".number")
    assert page.run("return document.querySelectorAll('.outline.lit').length") == 1
    assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.tab_to(".card .copy")
    page.press(Keys.ENTER)
    page.wait_for(lambda: page.text(".card .copy") == page.text("#notice") == "Copied", "copying")


def test_the_language_is_remembered_and_photos_are_kept_until_the_page_is_left(page):
    assert page.run("return document.documentElement.lang") == "en"
    page.click("[data-language=ru]")
    assert page.run("return document.documentElement.lang") == "ru"
    page.open()
    assert page.text("h1").strip() == "Номерные знаки"
    page.choose(sample("green_car"), sample("blue_car"))
    page.answer("green_car.jpg")
    assert page.text("#status") == "Найден 1 номер: X556XM750"
    assert "Х556ХМ750" in page.text(".card dl")  # in Cyrillic
    page.click("[data-language=en]")
    assert page.text("#status") == "1 plate found: X556XM750"
    page.click("#strip li:last-child button")
    page.answer("blue_car.jpg")
    assert page.texts()[0] == "H724AE77"
    page.click("#strip li:first-child button")
    assert page.texts() == ["X556XM750"]


def test_the_photo_with_blurred_plates_can_be_downloaded(page, gateway, tmp_path):
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    photo = sample("green_car")
    page.choose(photo)
    page.answer("green_car.jpg")
    page.click("#redact")
    file = page.wait_for(lambda: next(tmp_path.glob("green_car-blurred.jp*g"), None), "download")
    assert file.read_bytes() == post_raw(gateway, photo.read_bytes(), redact=True).content


def test_every_control_has_an_accessible_name(page):
    page.choose(sample("two_by_day"), sample("taxi_plate"))
    page.answer("two_by_day.jpg")
    page.run("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    page.run("document.getElementById('token-form').hidden = false")
    tree = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    shown = [node for node in tree if not node["ignored"]]
    roles = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in shown]
    assert {role for role, _ in roles} >= {"main", "banner", "contentinfo", "status", "listitem"}
    assert not [role for role, name in roles if role in CONTROLS and not name.strip()]
    # Firefox and WebKit take no name from a label that has a role of its own.
    assert not page.run("return document.querySelector('.scrolled').ariaLabelledByElements[0].role")
