"""The whole service: a real gateway, a real Triton and the real weights."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from support import SAMPLES, SCENE, SCENE_TEXT, assert_problem, post_form, post_raw, read_samples

pytestmark = pytest.mark.live

SAMPLE_PLATES = read_samples()


def texts_of(response):
    assert response.status_code == 200, response.text
    return sorted(plate["text"] for plate in response.json()["plates"] if plate["text"])


def test_every_plate_of_the_samples_is_read_while_other_photos_are_read(gateway):
    names = [*SAMPLE_PLATES] * 2
    photos = [(SAMPLES / name).read_bytes() for name in names]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda photo: post_raw(gateway, photo), photos))
    for name, answer in zip(names, answers, strict=True):
        assert texts_of(answer) == sorted(plate.text for plate in SAMPLE_PLATES[name])


def test_photos_of_20_mib_are_read_and_larger_ones_refused(gateway):
    photo = SCENE.read_bytes()
    largest = photo + bytes(20 * 2**20 - len(photo))
    for post in (post_raw, post_form):
        assert texts_of(post(gateway, largest)) == [SCENE_TEXT]
        assert_problem(post(gateway, largest + b"\0"), 413, "too-many-bytes")


@pytest.mark.parametrize("name", SAMPLE_PLATES)
def test_redacted_plates_cannot_be_read_again(gateway, name):
    photo = (SAMPLES / name).read_bytes()
    found = post_raw(gateway, photo).json()["plates"]
    redacted = post_raw(gateway, photo, redact=True, min_width=100_000)
    assert redacted.headers["x-plates-redacted"] == str(len(found)) != "0"
    again = post_raw(gateway, redacted.content).json()["plates"]
    assert not any(plate["readable"] for plate in again)
    guesses = {guess["text"] for plate in again for guess in plate["candidates"]}
    assert not guesses & {plate["text"] for plate in found if plate["text"]}
