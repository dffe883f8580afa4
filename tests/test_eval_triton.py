"""Triton's answers beside this process's own, without a Triton."""

import numpy as np

from api.triton import Recognition
from plate_models.pipeline import Plate
from plate_models.recognition.decoding import Reading
from plate_models.training.evaluation.agreement import PhotoAgreement
from plate_models.training.evaluation.labelled import Scoreboard
from plates.cli.eval_triton import ThroughTriton, plates_of

QUADS = [
    [[10, 20], [110, 20], [110, 45], [10, 45]],
    [[10, 60], [60, 60], [60, 95], [10, 95]],
]


def recognition(*texts: str) -> Recognition:
    quads = np.array(QUADS[: len(texts)], np.float32).reshape(-1, 4, 2)
    ones = np.ones(len(texts), np.float32)
    return Recognition(
        boxes=np.concatenate((quads.min(axis=1), quads.max(axis=1)), axis=1),
        texts=list(texts),
        detection_scores=ones * 0.75,
        text_scores=ones * 0.5,
        quads=quads,
        character_scores=np.full((len(texts), 10), np.nan, np.float32),
        formats=["ru.car"] * len(texts),
        candidates=[(text or "B", "C", "") for text in texts],
        candidate_scores=np.tile(np.float32([0.5, 0.25, np.nan]), (len(texts), 1)),
        info={},
    )


def test_an_answer_becomes_the_plates_it_tells_of() -> None:
    image = np.zeros((100, 200, 3), np.uint8)
    image[20:45, 10:110] = 200
    assert plates_of(recognition(), image) == []
    first, second = plates_of(recognition("A", ""), image)
    assert first.box == (10, 20, 110, 45) and first.quad[2] == (110, 45)
    assert (first.lines, second.lines) == (1, 2)
    assert first.reading == Reading("A", 0.5, True, "ru.car", (), (("A", 0.5), ("C", 0.25)))
    assert not second.reading.readable and second.reading.candidates[0] == ("B", 0.5)
    assert first.crop.shape == (48, 188, 3) and (first.crop == 200).all()
    assert (second.crop == 0).all()


def moved(plate: Plate, by: float) -> Plate:
    x0, *rest = plate.box
    return Plate((x0 + by, *rest), *[getattr(plate, name) for name in FIELDS])


FIELDS = ("quad", "detection_score", "lines", "reading", "crop")


def test_every_disagreement_is_listed_and_fails() -> None:
    image = np.zeros((100, 200, 3), np.uint8)
    (plate,) = plates_of(recognition("A"), image)
    (other,) = plates_of(recognition("B"), image)
    agreement = PhotoAgreement()
    agreement.add("same.jpg", [plate], [moved(plate, 0.09)])
    report = ThroughTriton(Scoreboard(), agreement)
    assert report.passed
    agreement.add("moved.jpg", [plate], [moved(plate, 0.2)])
    agreement.add("text.jpg", [plate], [other])
    assert not report.passed
    *_, verdict, first, second = report.lines()
    assert "1 of 3 photos" in verdict
    assert "moved.jpg" in first and "0.20 px" in first and "text.jpg" in second
    assert report.to_dict()["via_triton"]["answers_that_differ"] == 1
