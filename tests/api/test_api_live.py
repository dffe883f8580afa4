"""The service as people meet it: a real gateway before a real Triton with real weights."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import cv2
import httpx
import numpy as np
import pytest
from photo_files import BAD, encode, encode_rgba, encode_with_opencv, exif
from support import SAMPLES, STATUS, assert_problem, number, post_form, post_raw, read_samples

from api.answers import PlatesAnswer
from api.readiness import canary_photo
from plate_models.formats import RUSSIA
from plate_models.images import decode

pytestmark = pytest.mark.live

Box = tuple[float, float, float, float]
PLATES = read_samples()
# The scene that odd files are made of: one large plate.
SCENE = "green_car.jpg"
SCENE_TEXT = PLATES[SCENE][0].text


def photo_of(name: str) -> bytes:
    return (SAMPLES / name).read_bytes()


Post = Callable[..., httpx.Response]
both_forms = pytest.mark.parametrize("post", [post_raw, post_form])


def texts_of(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    return [plate["text"] for plate in response.json()["plates"] if plate["text"]]


def overlap(a: Box, b: Box) -> float:
    def area(box: Box) -> float:
        return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])

    shared = area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))
    return shared / (area(a) + area(b) - shared)


@both_forms
@pytest.mark.parametrize("name", PLATES)
def test_every_plate_of_the_samples_is_read(gateway: httpx.Client, post: Post, name: str) -> None:
    response = post(gateway, photo_of(name))
    assert sorted(texts_of(response)) == sorted(plate.text for plate in PLATES[name])
    found = {plate["text"]: plate for plate in response.json()["plates"]}
    for plate in PLATES[name]:
        assert overlap(found[plate.text]["box"], plate.box) > 0.5


def test_answer_field_by_field(gateway: httpx.Client) -> None:
    answer = post_form(gateway, photo_of(SCENE)).json()
    assert answer == PlatesAnswer.model_validate(answer).model_dump(mode="json")
    assert answer.keys() == {"image", "plates", "model", "timing_ms"}
    assert answer["image"] == {"width": 1280, "height": 720}
    assert answer["model"].keys() == {"version", "weights", "device"}
    assert answer["model"]["version"] == "1"
    assert re.fullmatch("sha256:[0-9a-f]{64}", answer["model"]["weights"])
    assert re.fullmatch(r"cpu|cuda(:\d+)?", answer["model"]["device"])
    assert answer["timing_ms"]["total"] > 0
    (plate,) = [plate for plate in answer["plates"] if plate["readable"]]
    assert plate["text"] == SCENE_TEXT
    assert plate["format"] == RUSSIA.judge(SCENE_TEXT)[0] == "ru.car"
    assert plate["region"] == {"code": "750", "name": "Moscow Oblast"}
    assert plate["text_native"] == SCENE_TEXT.translate(
        str.maketrans("ABEKMHOPCTYX", "АВЕКМНОРСТУХ")
    )
    assert "".join(character["char"] for character in plate["characters"]) == SCENE_TEXT
    assert plate["candidates"][0] == {"text": SCENE_TEXT, "score": plate["score"]}
    scores = [candidate["score"] for candidate in plate["candidates"]]
    assert scores == sorted(scores, reverse=True)
    for score in [plate["score"], plate["detection_score"], *scores]:
        assert 0 <= score <= 1
    assert all(0 <= character["score"] <= 1 for character in plate["characters"])


def test_corners_go_around_the_plate_as_one_reads_it(gateway: httpx.Client) -> None:
    (plate,) = [p for p in post_raw(gateway, photo_of(SCENE)).json()["plates"] if p["text"]]
    quad = np.array(plate["quad"])
    middle = quad.mean(axis=0)
    sides = np.sign(quad - middle).astype(int).tolist()
    assert sides == [[-1, -1], [1, -1], [1, 1], [-1, 1]]
    hull = (*quad.min(axis=0), *quad.max(axis=0))
    assert overlap(hull, PLATES[SCENE][0].box) > 0.6


def test_unreadable_plates_keep_their_candidates(gateway: httpx.Client) -> None:
    """A plate blurred until nobody can read it: no text, but what it may be."""
    image = decode(photo_of(SCENE))
    x0, y0, x1, y1 = (round(side) for side in PLATES[SCENE][0].box)
    image[y0:y1, x0:x1] = cv2.GaussianBlur(image[y0:y1, x0:x1], (0, 0), 9)
    answer = post_raw(gateway, encode(image, "JPEG")).json()
    assert SCENE_TEXT not in [plate["text"] for plate in answer["plates"]]
    for plate in answer["plates"]:
        if not plate["readable"]:
            assert plate["text"] == plate["text_native"] == ""
            best = plate["candidates"][0]["text"] if plate["candidates"] else ""
            assert "".join(character["char"] for character in plate["characters"]) == best


@both_forms
def test_plates_are_chosen(gateway: httpx.Client, post: Post) -> None:
    left, right = sorted(PLATES["two_by_day.jpg"], key=lambda plate: plate.box[0])
    photo = photo_of("two_by_day.jpg")
    between = (left.box[2] + right.box[0]) / 2
    assert texts_of(post(gateway, photo, roi=f"0,0,{between},720")) == [left.text]
    assert texts_of(post(gateway, photo, roi=f"{between},0,1280,720")) == [right.text]
    assert texts_of(post(gateway, photo, min_width=1000)) == []


@both_forms
@pytest.mark.parametrize("name", BAD)
def test_bad_photos_are_refused_and_the_next_one_is_read(
    gateway: httpx.Client, post: Post, name: str
) -> None:
    photo, slug = BAD[name]
    document = assert_problem(post(gateway, photo), STATUS[slug], slug)
    assert len(document["detail"]) > 20
    assert texts_of(post(gateway, photo_of(SCENE))) == [SCENE_TEXT]


@both_forms
def test_file_limit_of_the_design(gateway: httpx.Client, post: Post) -> None:
    photo = photo_of(SCENE)
    limit = 20 * 2**20
    assert texts_of(post(gateway, photo + bytes(limit - len(photo)))) == [SCENE_TEXT]
    response = post(gateway, photo + bytes(limit - len(photo) + 1))
    assert_problem(response, 413, "too-many-bytes")
    assert texts_of(post(gateway, photo)) == [SCENE_TEXT]


def odd_photos() -> dict[str, bytes]:
    scene = decode(photo_of(SCENE))
    height, width = scene.shape[:2]
    deep = scene.astype(np.uint16)[..., ::-1] * 257
    opaque = np.dstack([scene, np.full((height, width), 255, np.uint8)])
    portrait = np.full((2000, width, 3), 120, np.uint8)
    portrait[900 : 900 + height] = scene
    panorama = np.full((height, 3200, 3), 120, np.uint8)
    panorama[:, 1500 : 1500 + width] = scene
    large = np.full((6000, 8000, 3), 120, np.uint8)
    large[700:5200] = cv2.resize(scene, (8000, 4500), interpolation=cv2.INTER_CUBIC)
    photos = {
        "greyscale": encode(scene, "JPEG", "L"),
        "cmyk": encode(scene, "JPEG", "CMYK"),
        "progressive": encode(scene, "JPEG", progressive=True),
        "16-bit png": encode_with_opencv(deep, ".png"),
        "16-bit tiff": encode_with_opencv(deep, ".tiff"),
        "rgba png": encode_rgba(opaque, "PNG"),
        "webp": encode(scene, "WEBP"),
        "bmp": encode(scene, "BMP"),
        "gif": encode(scene, "GIF"),
        "portrait": encode(portrait, "JPEG"),
        "panorama": encode(panorama, "JPEG"),
        "8000x6000": encode(large, "JPEG"),
    }
    stored = {
        2: scene[:, ::-1],
        3: scene[::-1, ::-1],
        4: scene[::-1],
        5: scene.transpose(1, 0, 2),
        6: scene.transpose(1, 0, 2)[::-1],
        7: scene.transpose(1, 0, 2)[::-1, ::-1],
        8: scene.transpose(1, 0, 2)[:, ::-1],
    }
    for orientation, pixels in stored.items():
        photos[f"exif orientation {orientation}"] = encode(
            np.ascontiguousarray(pixels), "JPEG", exif=exif(orientation)
        )
    return photos


ODD = odd_photos()


@pytest.mark.parametrize("name", ODD)
def test_odd_photos_are_read(gateway: httpx.Client, name: str) -> None:
    assert SCENE_TEXT in texts_of(post_raw(gateway, ODD[name]))


def test_coordinates_are_those_of_the_upright_photo(gateway: httpx.Client) -> None:
    answer = post_raw(gateway, ODD["exif orientation 6"]).json()
    assert answer["image"] == {"width": 1280, "height": 720}
    (plate,) = [plate for plate in answer["plates"] if plate["text"]]
    assert overlap(plate["box"], PLATES[SCENE][0].box) > 0.5


def test_one_pixel_has_no_plates(gateway: httpx.Client) -> None:
    answer = post_raw(gateway, encode(np.full((1, 1, 3), 200, np.uint8), "PNG")).json()
    assert answer["plates"] == []
    assert answer["image"] == {"width": 1, "height": 1}


def test_parallel_requests_get_their_own_answers(gateway: httpx.Client) -> None:
    names = [*PLATES] * 4
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda name: post_raw(gateway, photo_of(name)), names))
    for name, answer in zip(names, answers, strict=True):
        assert sorted(texts_of(answer)) == sorted(plate.text for plate in PLATES[name])


def test_health_and_readiness(gateway: httpx.Client) -> None:
    assert gateway.get("/healthz").json() == {"status": "alive"}
    assert gateway.get("/readyz").json() == {"status": "ready"}


def test_canary_gives_every_model_work(gateway: httpx.Client) -> None:
    """Without a plate in it, readiness would not notice a dead rectifier or recognizer."""
    assert post_raw(gateway, canary_photo()).json()["plates"]


def test_metrics_count_photos_and_name_no_plate(gateway: httpx.Client) -> None:
    before = number(gateway, "plates_per_photo_count")
    assert texts_of(post_raw(gateway, photo_of(SCENE))) == [SCENE_TEXT]
    assert number(gateway, "plates_per_photo_count") >= before + 1
    assert SCENE_TEXT not in gateway.get("/metrics").text
