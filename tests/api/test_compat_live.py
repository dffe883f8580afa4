"""The foreign forms before the real recognizer: the same plates, in other words."""

import httpx
import pytest
from support import SAMPLES, read_samples

pytestmark = pytest.mark.live

PLATES = read_samples()
NAME = "two_by_day.jpg"
TEXTS = sorted(plate.text for plate in PLATES[NAME])


def test_every_form_says_the_same(gateway: httpx.Client) -> None:
    photo = (SAMPLES / NAME).read_bytes()
    own = gateway.post("/v1/plates", files={"image": photo}).json()
    reader = gateway.post("/v1/plate-reader/", files={"upload": photo})
    alpr = gateway.post("/v1/vision/alpr", files={"upload": photo})
    batch = gateway.post("/v1/plates/batch", files=[("image", photo)] * 2)
    assert (reader.status_code, alpr.status_code, batch.status_code) == (201, 200, 200)
    plates = {plate["text"]: plate for plate in own["plates"] if plate["text"]}
    assert sorted(plates) == TEXTS
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
    assert len(reader.json()["results"]) == alpr.json()["count"] == len(TEXTS)
    for result in batch.json()["results"]:
        assert result["answer"]["plates"] == own["plates"]
