"""The rendered benchmark: the same for everybody, labelled right, and none of training's."""

import io
import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from plate_models.engines.nets import Nets, load_nets
from plate_models.images import decode
from plate_models.pipeline import Plate
from plate_models.recognition.decoding import Reading
from plate_models.training.benchmark import (
    BenchmarkPhoto,
    BenchmarkPlate,
    photo_named,
    render_photo,
    render_photos,
)
from plate_models.training.benchmark.optics import Lens
from plate_models.training.evaluation.rendered import (
    RenderedReport,
    corner_error,
    count_questions,
    load_rendered,
    score_rendered,
)
from plate_models.training.evaluation.results import Answer, Box
from plate_models.training.synthetic.ink import draw_ink
from plate_models.training.synthetic.kinds import KINDS, Layout, kind_named
from plates.cli import main as cli

PHOTOS = 2
TRAINING = ("crops", "photo", "plates", "scenes", "wear")


@pytest.fixture(scope="module")
def photos() -> list[BenchmarkPhoto]:
    return [render_photo(kind, index) for kind in KINDS for index in range(PHOTOS)]


@pytest.fixture(scope="module")
def nets() -> Nets:
    return load_nets()


def test_photos_follow_from_their_names(photos: list[BenchmarkPhoto]) -> None:
    assert len({photo.file for photo in photos}) == len(photos)
    assert render_photo("ru.car", 0, seed=1).file not in {photo.file for photo in photos}
    by_name = {photo.name: photo for photo in photos}
    again = list(render_photos([("ru.car", 1), ("ru.motorcycle", 0)], workers=1))
    assert [photo.name for photo in again] == ["ru.car-0001", "ru.motorcycle-0000"]
    for photo in again:
        assert photo.file == by_name[photo.name].file == photo_named(photo.name).file
        np.testing.assert_array_equal(load_rendered(photo.name), decode(photo.file))
    with pytest.raises(ValueError, match=r"expected a kind of plate out of ru\.car"):
        render_photo("ru.bicycle", 0)


def test_no_photos_are_no_work() -> None:
    assert list(render_photos([], workers=0)) == []
    assert any("0/0" in line for line in RenderedReport(0).lines())
    assert RenderedReport(0).to_dict()["plates"] == []


def test_photos_and_plates_are_of_the_sizes_promised(photos: list[BenchmarkPhoto]) -> None:
    for photo in photos:
        size = Image.open(io.BytesIO(photo.file)).size
        assert size in ((960, 540), (1280, 720))
        assert len(photo.plates) in (1, 2)
        for plate in photo.plates:
            assert photo.name.startswith(plate.kind)
            x0, y0, x1, y1 = plate.box
            assert x0 >= 0 and y0 >= 0 and x1 <= size[0] and y1 <= size[1]
            assert (45 if plate.lines == 2 else 70) <= plate.width <= 400


def search(
    photo: BenchmarkPhoto, plate: BenchmarkPlate, text: str, layout: Layout
) -> tuple[float, np.ndarray]:
    """Look for a text within a label's quad: the likeness, and how many mm it is off."""
    width, height = (round(side) for side in layout.size_mm)
    front = np.array([(0, 0), (width, 0), (width, height), (0, height)], np.float32) - 0.5
    view = cv2.getPerspectiveTransform(plate.quad - np.float32(0.5), front)
    grey = cv2.cvtColor(decode(photo.file), cv2.COLOR_RGB2GRAY)
    seen = cv2.warpPerspective(grey, view, (width, height)).astype(np.float32)
    kind, rim = kind_named(plate.kind), 8  # the rim says nothing of a text
    drawn = draw_ink(text, kind, layout, np.random.default_rng(0), 1.0, 0.0, -0.6)
    inner = drawn[rim:-rim, rim:-rim].astype(np.float32)
    sign = 1 if kind.ground.light_ink else -1
    _, best, _, place = cv2.minMaxLoc(cv2.matchTemplate(sign * seen, inner, cv2.TM_CCOEFF_NORMED))
    return best, np.array(place) - rim


def test_the_text_of_each_label_is_drawn_within_its_quad(photos: list[BenchmarkPhoto]) -> None:
    def likeness(photo: BenchmarkPhoto, plate: BenchmarkPlate, text: str) -> float:
        layouts = kind_named(plate.kind).layouts_of(text)
        return max(search(photo, plate, text, layout)[0] for layout in layouts)

    plates = [(photo, plate) for photo in photos for plate in photo.plates]
    likest = []
    for photo, plate in plates:
        others = {p.text for _, p in plates if p.kind == plate.kind} - {plate.text}
        best = likeness(photo, plate, plate.text)
        assert best > max(likeness(photo, plate, text) for text in others), (photo.name, plate.text)
        likest.append(best)
    assert np.median(likest) > 0.6


def test_characters_stand_where_the_quad_says() -> None:
    """Type 1 has one layout for each length: a quad that is off shows as a shifted text."""
    offsets = []
    for index in range(8):
        photo = render_photo("ru.car", index)
        for plate in photo.plates:
            (layout,) = kind_named("ru.car").layouts_of(plate.text)
            offsets.append(search(photo, plate, plate.text, layout)[1])
    assert np.abs(np.mean(offsets, axis=0)).max() <= 1
    assert np.abs(offsets).mean() <= 1.5


@pytest.mark.parametrize("bend", [-0.05, 0.16])
def test_a_lens_puts_points_where_its_formula_says(bend: float) -> None:
    place = np.array([[160.0, 120.0]])
    picture = np.zeros((540, 960, 3), np.float32)
    picture[119:121, 159:161] = 1
    lens = Lens((960, 540), bend, 0.0, 0.0, 0.0, (0.0, 0.0), 0.0)
    seen = lens.see(picture)[..., 1]
    y, x = np.indices(seen.shape) + 0.5
    found = np.array([(x * seen).sum(), (y * seen).sum()]) / seen.sum()
    np.testing.assert_allclose(found, lens.bend_points(place)[0], atol=0.1)


def test_nothing_of_the_benchmark_knows_what_training_renders() -> None:
    code = "import sys, plate_models.training.benchmark; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "plate_models.training.synthetic.ink" in loaded
    assert not loaded & {f"plate_models.training.synthetic.{name}" for name in TRAINING}
    assert "torch" not in loaded


def read_as(
    monkeypatch: pytest.MonkeyPatch, *plates: tuple[BenchmarkPlate, np.ndarray, str, int]
) -> None:
    """Let the pipeline answer so: a label's quad moved by (x, y) pixels, a text, lines."""

    def found(nets: Nets, image: torch.Tensor) -> list[Plate]:
        return [
            Plate(
                tuple((np.array(label.box) + np.tile(shift, 2)).tolist()),
                tuple(map(tuple, (label.quad + shift).tolist())),
                0.9,
                lines,
                Reading(text, 0.9, bool(text), label.kind, (), ((text or "X", 0.9),)),
                np.zeros((48, 188, 3), np.uint8),
            )
            for label, shift, text, lines in plates
        ]

    def boxes(photo: str, image: object, boxes: list[Box], *_: object) -> list[Answer]:
        return [Answer(photo, box, "", "", 0.0, "unknown", 1, 1.0, 1.0) for box in boxes]

    monkeypatch.setattr(Nets, "read", found)
    monkeypatch.setattr("plate_models.training.evaluation.rendered.read_boxes", boxes)


def one(photos: list[BenchmarkPhoto], kind: str) -> BenchmarkPhoto:
    """A photo of a kind with one plate."""
    return next(p for p in photos if p.name.startswith(kind + "-") and len(p.plates) == 1)


def answers_to(report: RenderedReport) -> dict[str, int]:
    return {count.name: count.hits for count in count_questions(report.plates)}


def test_right_answers_count_in_every_column(
    photos: list[BenchmarkPhoto], nets: Nets, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo = one(photos, "ru.motorcycle")
    label = photo.plates[0]
    read_as(monkeypatch, (label, np.array([0.02 * label.width, 0]), label.text, 2))
    report = RenderedReport(1, *score_rendered(photo, nets))
    assert answers_to(report) == dict.fromkeys(answers_to(report), 1)
    error = corner_error(report.plates)
    assert error and error.mean == pytest.approx(0.02, abs=1e-5)
    assert not report.false_texts.hits


def test_each_fault_shows_in_its_column(
    photos: list[BenchmarkPhoto], nets: Nets, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo = one(photos, "ru.car")
    label, still = photo.plates[0], np.zeros(2)
    read_as(monkeypatch)
    lost = RenderedReport(1, *score_rendered(photo, nets))
    assert answers_to(lost) == {**dict.fromkeys(answers_to(lost), 0), "no wrong": 1}
    assert corner_error(lost.plates) is None
    assert "nothing found" in "\n".join(lost.lines())
    read_as(monkeypatch, (label, still, "A000AA00", 2))
    wrong = answers_to(RenderedReport(1, *score_rendered(photo, nets)))
    assert wrong == {**dict.fromkeys(wrong, 0), "found": 1, "format": 1}
    read_as(monkeypatch, (label, still, label.text, 1), (label, np.array([2e3, 0]), "A000AA00", 1))
    elsewhere = RenderedReport(1, *score_rendered(photo, nets))
    assert answers_to(elsewhere)["read"] == 1
    assert elsewhere.false_texts.hits == 1


def test_eval_scores_the_benchmark_without_any_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PLATES_DATA", raising=False)
    files = ["--json", str(tmp_path / "kept.json"), "--sheet", str(tmp_path / "sheet.png")]
    assert cli.main(["eval", "--rendered", "--per-type", "1", "--workers", "0", *files]) == 0
    shown = capsys.readouterr().out
    kept = json.loads((tmp_path / "kept.json").read_text(encoding="utf-8"))["rendered"]
    assert set(kept["kinds"]) == {*KINDS, "all"}
    assert all(f"\n{kind} " in shown for kind in kept["kinds"])
    counts = {count["name"]: count for count in kept["kinds"]["all"]["counts"]}
    assert counts["found"]["total"] == len(kept["plates"]) >= len(KINDS)
    assert min(counts["found"]["hits"], counts["read"]["hits"]) >= len(KINDS) - 1
    with Image.open(tmp_path / "sheet-rendered.png") as sheet:
        assert sheet.width > 1000
