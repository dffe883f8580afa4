"""Redacted photos given back to the recognizer that found their plates."""

import io

import cv2
import httpx
import numpy as np
import pytest
from PIL import Image
from support import SAMPLES, read_samples

from plate_models.images import decode

pytestmark = pytest.mark.live

PLATES = read_samples()


def post(client: httpx.Client, photo: bytes, **parameters: object) -> httpx.Response:
    headers = {"content-type": "image/jpeg"}
    response = client.post("/v1/plates", content=photo, headers=headers, params=parameters)
    assert response.status_code == 200, response.text
    return response


@pytest.mark.parametrize("name", PLATES)
def test_redacted_plates_cannot_be_read_again(gateway: httpx.Client, name: str) -> None:
    photo = (SAMPLES / name).read_bytes()
    found = post(gateway, photo).json()["plates"]
    redacted = post(gateway, photo, redact=True, min_width=100_000)
    assert redacted.headers["x-plates-redacted"] == str(len(found)) != "0"
    again = post(gateway, redacted.content).json()["plates"]
    texts = {plate["text"] for plate in found if plate["text"]}
    assert texts == {plate.text for plate in PLATES[name]}
    assert not any(plate["readable"] for plate in again)
    guesses = {guess["text"] for plate in again for guess in plate["candidates"]}
    assert not guesses & texts
    before = decode(photo).astype(int)
    after = np.asarray(Image.open(io.BytesIO(redacted.content))).astype(int)
    assert after.shape == before.shape
    elsewhere = np.ones(before.shape[:2], bool)
    for plate in found:
        corners = np.array([*plate["quad"], plate["box"][:2], plate["box"][2:]])
        (x0, y0), (x1, y1) = corners.min(axis=0).astype(int), corners.max(axis=0).astype(int)
        inside = after[y0:y1, x0:x1].astype(np.uint8)
        assert cv2.Laplacian(inside, cv2.CV_64F).std() < 6
        around = y1 - y0 + 16
        elsewhere[max(0, y0 - around) : y1 + around, max(0, x0 - around) : x1 + around] = False
    assert np.abs(after - before)[elsewhere].mean() < 3
