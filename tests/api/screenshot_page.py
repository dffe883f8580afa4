"""Takes the README's picture of the page: python tests/api/screenshot_page.py

Starts `plates serve` with a Triton of its own, shows it a sample in a headless Chromium, and
writes tests/api/page.png.
"""

import io
import tempfile
from pathlib import Path

from browser import chromium, wait_for
from page_driver import Page, sample
from PIL import Image
from support import serving

PICTURE = Path(__file__).parent / "page.png"
SIZE = (1200, 840)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder) / "stderr.log") as served,
        chromium(*SIZE) as driver,
    ):
        page = Page(driver, served.url).open()
        page.choose(sample("green_car"))
        page.answer("green_car.jpg")
        page.click(".candidates summary")
        wait_for(lambda: page.run("return document.getElementById('image').complete"), "drawing")
        shot = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    PICTURE.parent.mkdir(exist_ok=True)
    shot.save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
