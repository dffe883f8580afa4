"""The service as people meet it: a real gateway before a real Triton with real weights."""

import io
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import httpx
import numpy as np
import pytest
from photo_files import BAD, encode, encode_with_opencv, exif
from PIL import Image
from support import SAMPLES, STATUS, assert_problem, post_form, post_raw, read_samples

from api.answers import PlatesAnswer
from api.readiness import canary_photo
from plate_models.formats import RUSSIA
from plate_models.images import decode

pytestmark = pytest.mark.live

Box = tuple[float, float, float, float]
SAMPLE_PLATES = read_samples()
# The scene that odd files are made of: one large plate.
SCENE = "green_car.jpg"
(SCENE_PLATE,) = SAMPLE_PLATES[SCENE]


def photo_of(name: str) -> bytes:
    return (SAMPLES / name).read_bytes()


def plates_of(response: httpx.Response) -> dict[str, dict[str, Any]]:
    """The plates that were read, by their texts."""
    assert response.status_code == 200, response.text
    read = [plate for plate in response.json()["plates"] if plate["text"]]
    plates = {plate["text"]: plate for plate in read}
    assert len(plates) == len(read)
    return plates


def assert_scene_is_read(gateway: httpx.Client) -> None:
    assert plates_of(post_raw(gateway, photo_of(SCENE))).keys() == {SCENE_PLATE.text}


def overlap(a: Box, b: Box) -> float:
    def area(box: Box) -> float:
        return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])

    shared = area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))
    return shared / (area(a) + area(b) - shared)


@pytest.mark.parametrize("name", SAMPLE_PLATES)
def test_every_plate_of_the_samples_is_read(gateway: httpx.Client, name: str) -> None:
    found = plates_of(post_raw(gateway, photo_of(name)))
    assert found.keys() == {plate.text for plate in SAMPLE_PLATES[name]}
    for plate in SAMPLE_PLATES[name]:
        assert overlap(found[plate.text]["box"], plate.box) > 0.5


def test_answer_field_by_field(gateway: httpx.Client) -> None:
    answer = post_form(gateway, photo_of(SCENE)).json()
    assert answer == PlatesAnswer.model_validate(answer).model_dump(mode="json")
    assert answer["image"] == {"width": 1280, "height": 720}
    assert answer["model"]["version"] == "1"
    assert re.fullmatch("sha256:[0-9a-f]{64}", answer["model"]["weights"])
    assert re.fullmatch(r"cpu|cuda(:\d+)?", answer["model"]["device"])
    assert answer["timing_ms"]["total"] > 0
    (plate,) = [plate for plate in answer["plates"] if plate["readable"]]
    text = SCENE_PLATE.text
    assert plate["text"] == text
    assert plate["format"] == RUSSIA.judge(text)[0] == "ru.car"
    assert plate["region"] == {"code": "750", "name": "Moscow Oblast"}
    assert plate["text_native"] == text.translate(str.maketrans("ABEKMHOPCTYX", "АВЕКМНОРСТУХ"))
    assert "".join(character["char"] for character in plate["characters"]) == text
    assert plate["candidates"][0] == {"text": text, "score": plate["score"]}
    scores = [candidate["score"] for candidate in plate["candidates"]]
    assert scores == sorted(scores, reverse=True)
    scores += [character["score"] for character in plate["characters"]]
    assert all(0 <= score <= 1 for score in [plate["detection_score"], *scores])
    # The corners go around the plate as one reads it.
    quad = np.array(plate["quad"])
    sides = np.sign(quad - quad.mean(axis=0)).astype(int).tolist()
    assert sides == [[-1, -1], [1, -1], [1, 1], [-1, 1]]
    assert overlap((*quad.min(axis=0), *quad.max(axis=0)), SCENE_PLATE.box) > 0.6


def test_every_route_says_the_same(gateway: httpx.Client) -> None:
    photo = photo_of("two_by_day.jpg")
    own = gateway.post("/v1/plates", files={"image": photo})
    reader = gateway.post("/v1/plate-reader/", files={"upload": photo})
    alpr = gateway.post("/v1/vision/alpr", files={"upload": photo})
    batch = gateway.post("/v1/plates/batch", files=[("image", photo)] * 2)
    assert (reader.status_code, alpr.status_code, batch.status_code) == (201, 200, 200)
    plates = plates_of(own)
    for result in reader.json()["results"]:
        plate = plates[result["plate"].upper()]
        assert result["score"] == result["candidates"][0]["score"] == plate["score"]
        assert result["dscore"] == plate["detection_score"]
        assert list(result["box"].values()) == [round(side) for side in plate["box"]]
        assert result["region"]["code"] == "ru"
    for prediction in alpr.json()["predictions"]:
        plate = plates[prediction["plate"]]
        assert prediction["confidence"] == plate["score"]
        sides = [prediction[side] for side in ("x_min", "y_min", "x_max", "y_max")]
        assert sides == [round(side) for side in plate["box"]]
    assert len(reader.json()["results"]) == alpr.json()["count"] == len(plates) == 2
    for result in batch.json()["results"]:
        assert result["answer"]["plates"] == own.json()["plates"]


@pytest.mark.parametrize("name", BAD)
def test_bad_photos_are_refused_and_the_next_one_is_read(gateway: httpx.Client, name: str) -> None:
    photo, slug = BAD[name]
    document = assert_problem(post_form(gateway, photo), STATUS[slug], slug)
    assert len(document["detail"]) > 20
    assert_scene_is_read(gateway)


def test_file_limit_of_the_design(gateway: httpx.Client) -> None:
    photo = photo_of(SCENE)
    largest = photo + bytes(20 * 2**20 - len(photo))
    for post in (post_raw, post_form):
        assert plates_of(post(gateway, largest)).keys() == {SCENE_PLATE.text}
        assert_problem(post(gateway, largest + b"\0"), 413, "too-many-bytes")


def odd_photos() -> dict[str, bytes]:
    """The scene as other cameras and programs store it."""
    scene = decode(photo_of(SCENE))
    panorama = np.full((720, 3200, 3), 120, np.uint8)
    panorama[:, 1500:2780] = scene
    large = np.full((6000, 8000, 3), 120, np.uint8)
    large[700:5200] = cv2.resize(scene, (8000, 4500), interpolation=cv2.INTER_CUBIC)
    turned = np.ascontiguousarray(scene.transpose(1, 0, 2)[::-1])
    return {
        "cmyk": encode(scene, "JPEG", "CMYK"),
        "16-bit png": encode_with_opencv(scene.astype(np.uint16)[..., ::-1] * 257, ".png"),
        "webp": encode(scene, "WEBP"),
        "gif": encode(scene, "GIF"),
        "panorama": encode(panorama, "JPEG"),
        "8000x6000": encode(large, "JPEG"),
        "turned": encode(turned, "JPEG", exif=exif(6)),
    }


def test_odd_photos_are_read(gateway: httpx.Client) -> None:
    for name, photo in odd_photos().items():
        response = post_raw(gateway, photo)
        assert SCENE_PLATE.text in plates_of(response), name
    # The last one's coordinates are those of the upright photo.
    assert response.json()["image"] == {"width": 1280, "height": 720}
    assert overlap(plates_of(response)[SCENE_PLATE.text]["box"], SCENE_PLATE.box) > 0.5


@pytest.mark.parametrize("name", SAMPLE_PLATES)
def test_redacted_plates_cannot_be_read_again(gateway: httpx.Client, name: str) -> None:
    photo = photo_of(name)
    found = post_raw(gateway, photo).json()["plates"]
    redacted = post_raw(gateway, photo, redact=True, min_width=100_000)
    assert redacted.headers["x-plates-redacted"] == str(len(found)) != "0"
    again = post_raw(gateway, redacted.content).json()["plates"]
    assert not any(plate["readable"] for plate in again)
    guesses = {guess["text"] for plate in again for guess in plate["candidates"]}
    assert not guesses & {plate["text"] for plate in found if plate["text"]}
    pixels = np.asarray(Image.open(io.BytesIO(redacted.content)))
    assert pixels.shape == decode(photo).shape
    for plate in found:
        corners = np.array([*plate["quad"], plate["box"][:2], plate["box"][2:]])
        (x0, y0), (x1, y1) = corners.min(axis=0).astype(int), corners.max(axis=0).astype(int)
        assert cv2.Laplacian(pixels[y0:y1, x0:x1], cv2.CV_64F).std() < 6


def test_parallel_requests_get_their_own_answers(gateway: httpx.Client) -> None:
    names = [*SAMPLE_PLATES] * 2
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda name: post_raw(gateway, photo_of(name)), names))
    for name, answer in zip(names, answers, strict=True):
        assert plates_of(answer).keys() == {plate.text for plate in SAMPLE_PLATES[name]}


def test_health_and_readiness(gateway: httpx.Client) -> None:
    assert gateway.get("/healthz").json() == {"status": "alive"}
    assert gateway.get("/readyz").json() == {"status": "ready"}
    # Without a plate in the canary, readiness would not notice a dead rectifier or recognizer.
    assert post_raw(gateway, canary_photo()).json()["plates"]
