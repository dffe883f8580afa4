"""A headless Chromium, and a `Page` with the actions and observations of its user."""

import base64
import json
import shutil
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait
from support import SAMPLES

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, _BROWSERS)), None)
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not BROWSER or not DRIVER, reason=f"needs chromedriver and one of {', '.join(_BROWSERS)}"
)
# Only a hang takes so long.
_WAIT_S, _POLL_S = 20.0, 0.03

# Dispatches the events of a dropped or pasted file.
_GIVE = """
const bytes = Uint8Array.from(atob(arguments[0]), (char) => char.charCodeAt(0));
const data = new DataTransfer();
data.items.add(new File([bytes], arguments[1], {type: arguments[2]}));
const options = {bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data};
const kind = arguments[3] === "paste" ? ClipboardEvent : DragEvent;
for (const name of arguments[3] === "paste" ? ["paste"] : ["dragenter", "dragover", "drop"])
  document.activeElement.dispatchEvent(new kind(name, options));
"""
# Width, height and number of different pixel values of each crop: an undrawn crop has only one.
CROPS = """
return [...document.querySelectorAll(".crop")].map((canvas) => {
  const {width, height} = canvas;
  const {data} = canvas.getContext("2d").getImageData(0, 0, width, height);
  return [width, height, new Set(data).size];
});
"""


@pytest.fixture(scope="session")
def driver():
    """A browser without a profile; it records network events and its console."""
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    # In containers the sandbox lacks privileges, and /dev/shm is often small.
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
    for flag in (*flags, "--lang=en-GB", "--hide-scrollbars", "--disable-background-networking"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    # Without a path, selenium would try to download a driver.
    with webdriver.Chrome(options=options, service=Service(DRIVER)) as driver:
        resize(driver, 1280, 900)
        # Otherwise tests would leave photos in the Downloads of the person who runs them.
        driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "deny"})
        yield driver


def resize(driver, width, height, scale=1.0):
    metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@contextmanager
def visiting(driver, url):
    """Open the page as on a first visit; at the end check its requests and the console."""
    page = Page(driver, url.rstrip("/"))
    page.open().run("localStorage.clear(); sessionStorage.clear()")
    page.network_events()
    driver.get_log("browser")
    yield page.open()
    for event in page.network_events():
        if event["method"] == "Network.requestWillBeSent":
            method, address = (event["params"]["request"][key] for key in ("method", "url"))
            assert address.startswith((page.url + "/", f"blob:{page.url}/", "data:")), address
            assert method == "GET" or address.startswith(page.url + "/v1/plates")
    for entry in driver.get_log("browser"):
        # Chromium logs every answer that is not 2xx; any other entry is a fault of the page.
        assert "Failed to load resource" in entry["message"], entry


class Page:
    def __init__(self, driver, url):
        self.driver, self.url = driver, url

    def open(self):
        self.driver.get(self.url + "/")
        return self

    def wait_for(self, condition, what):
        """Poll until the condition is truthy, and return its value."""
        wait = WebDriverWait(self.driver, _WAIT_S, _POLL_S)
        return wait.until(lambda _: condition(), f"{what} did not happen")

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def click(self, selector):
        self.run("document.querySelector(arguments[0]).click()", selector)

    def text(self, selector):
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def choose(self, *photos):
        self.driver.find_element(By.ID, "choose").send_keys("\n".join(map(str, photos)))

    def give(self, way, content, name, kind="image/jpeg"):
        """Give a file to the page; `way` is "drop" or "paste"."""
        self.run(_GIVE, base64.b64encode(content).decode(), name, kind, way)

    def press(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def tab_to(self, selector):
        """Press Tab until an element that matches the selector has the focus."""
        for _ in range(60):
            self.press(Keys.TAB)
            if self.run("return document.activeElement.matches(arguments[0])", selector):
                return
        raise AssertionError(f"the Tab key never reaches {selector}")

    def answer(self, name):
        """Wait until the photo `name` is read, and return the JSON that the page shows."""
        done = "return !document.getElementById('afterwards').hidden"
        self.wait_for(lambda: self.run(done) and name in self.text("#caption"), f"reading {name}")
        return json.loads(self.text("#json"))

    def problem(self, words=""):
        """Wait until the page shows an error message that contains these words."""
        self.wait_for(lambda: (said := self.text("#problem-words")) and words in said, words)

    def texts(self):
        """The texts on the drawn plates, one for each plate."""
        return self.run(
            "return [...document.querySelectorAll('.face')].map((face) =>"
            " [...face.querySelectorAll('.glyph')].map((glyph) => glyph.textContent).join(''))"
        )

    def network_events(self):
        """Chromium's network events since the last call."""
        return [json.loads(row["message"])["message"] for row in self.driver.get_log("performance")]


def sample(name):
    return SAMPLES / f"{name}.jpg"
