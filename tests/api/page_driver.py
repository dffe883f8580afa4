"""What people do on the page and see there, for tests."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from browser import wait_for
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from support import SAMPLES

# Hands a file over as the browser would after a drop or a paste.
_GIVE = """
const bytes = Uint8Array.from(atob(arguments[0]), (char) => char.charCodeAt(0));
const data = new DataTransfer();
data.items.add(new File([bytes], arguments[1], {type: arguments[2]}));
const options = {bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data};
const kind = arguments[3] === "paste" ? ClipboardEvent : DragEvent;
for (const name of arguments[3] === "paste" ? ["paste"] : ["dragenter", "dragover", "drop"])
  document.querySelector("main").dispatchEvent(new kind(name, options));
"""
# A picture counts as drawn if its pixels differ from one another.
_CROPS = """
return [...document.querySelectorAll(".crop")].map((canvas) => {
  const {width, height} = canvas;
  const copy = new OffscreenCanvas(width, height).getContext("2d", {willReadFrequently: true});
  copy.drawImage(canvas, 0, 0);
  const greens = copy.getImageData(0, 0, width, height).data.filter((_, i) => i % 4 === 1).sort();
  return [width, height, greens[0], greens.at(-1)];
});
"""
# Corners as they are on the screen, from what is drawn and from where the photo is.
_QUADS = """
const box = document.getElementById("image").getBoundingClientRect();
return [...document.querySelectorAll("#drawing .quad")].map((polygon) => {
  const toScreen = polygon.getScreenCTM();
  return [...polygon.points].map((point) => {
    const shown = point.matrixTransform(toScreen);
    return [shown.x - box.x, shown.y - box.y];
  });
}).concat([[box.width, box.height]]);
"""


@contextmanager
def visiting(page: "Page") -> Iterator["Page"]:
    """Open the page as on a first visit; afterwards, see that nothing went wrong unseen."""
    page.open().run("localStorage.clear(); sessionStorage.clear()")
    page.requests()
    page.driver.get_log("browser")
    yield page.open()
    for method, address in page.requests():
        assert address.startswith((page.url + "/", f"blob:{page.url}/")), address
        assert method == "GET" or address.startswith(page.url + "/v1/plates")
    for entry in page.driver.get_log("browser"):
        # Chromium logs every answer that is not 2xx; what else it logs is a fault of ours.
        assert "Failed to load resource" in entry["message"], entry


class Page:
    """The page in a browser.

    Attributes:
        driver: The browser.
        url: Where the gateway is.
    """

    def __init__(self, driver: WebDriver, url: str) -> None:
        self.driver, self.url = driver, url

    def open(self) -> "Page":
        self.driver.get(self.url + "/")
        wait_for(lambda: self.run("return document.readyState") == "complete", "loading")
        return self

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def click(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).click()", selector)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def choose(self, *photos: Path) -> None:
        self.driver.find_element(By.ID, "choose").send_keys("\n".join(map(str, photos)))

    def give(self, way: str, content: bytes, name: str, kind: str = "image/jpeg") -> None:
        """Drop or paste a file."""
        self.run(_GIVE, base64.b64encode(content).decode(), name, kind, way)

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def tab_to(self, selector: str) -> None:
        """Go on with the tabulator until an element that fits has the focus."""
        for _ in range(60):
            self.press(Keys.TAB)
            if self.run("return document.activeElement.matches(arguments[0])", selector):
                return
        raise AssertionError(f"the tabulator never comes to {selector}")

    def answer(self, name: str) -> dict[str, Any]:
        """Wait until a photo was read, and return the JSON that is shown."""
        done = "return !document.getElementById('afterwards').hidden"
        wait_for(lambda: self.run(done) and name in self.text("#caption"), f"reading {name}")
        return json.loads(self.text("#json"))

    def problem(self) -> str:
        """Wait for a message, and return its words."""
        return str(wait_for(lambda: self.text("#problem-words"), "a message"))

    def texts(self) -> list[str]:
        """What stands on the plates' faces, letter by letter."""
        return self.run(
            "return [...document.querySelectorAll('.face')].map((face) =>"
            " [...face.querySelectorAll('.glyph')].map((glyph) => glyph.textContent).join(''))"
        )

    def crops(self) -> list[tuple[int, int, int, int]]:
        """Width, height, darkest and lightest green of each plate's picture."""
        return [tuple(crop) for crop in self.run(_CROPS)]

    def quads(self) -> tuple[list[list[list[float]]], list[float]]:
        """Corners in CSS pixels from the photo's corner; the photo's size in them."""
        *quads, size = self.run(_QUADS)
        return quads, size

    def requests(self) -> list[tuple[str, str]]:
        """Method and address of everything that was asked for since the last call."""
        entries = (json.loads(row["message"]) for row in self.driver.get_log("performance"))
        sent = (entry["message"] for entry in entries)
        return [
            (message["params"]["request"]["method"], message["params"]["request"]["url"])
            for message in sent
            if message["method"] == "Network.requestWillBeSent"
        ]

    def gave_up(self) -> bool:
        """Whether a request was cancelled since the network was last asked about."""
        rows = (json.loads(row["message"]) for row in self.driver.get_log("performance"))
        return any(
            row["message"]["method"] == "Network.loadingFailed"
            and row["message"]["params"].get("canceled")
            for row in rows
        )

    def nodes(self) -> list[tuple[str, str]]:
        """Role and name of everything that assistive technology is told of."""
        tree = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        shown = [node for node in tree if not node["ignored"]]
        return [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in shown]


def sample(name: str) -> Path:
    return SAMPLES / f"{name}.jpg"
