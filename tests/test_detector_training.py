"""The detector's training: photos, windows, steps, and what counts as found."""

import csv
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from plate_models import weights
from plate_models.nets.yolov5 import YOLOv5
from plate_models.spec import DETECTOR
from plate_models.training import detection_windows
from plate_models.training.detection_check import DetectionCounts, count_found
from plate_models.training.detection_photos import (
    TrainingPhoto,
    load_empty,
    load_world,
    validation_names,
)
from plate_models.training.detection_windows import Window, WindowSampler, WindowSettings
from plate_models.training.detector import DetectorTraining, Training, collate, train
from plate_models.training.synthetic.scenes import paint_plate

SMALL = WindowSettings(size=128, grids=((1, 1.0),), widths=((30.0, 90.0),), background=0.0)
STRIDES = (8, 16, 32)


def photo_with_plate(seed: int = 0, size_wh: tuple[int, int] = (240, 180)) -> TrainingPhoto:
    """A dark photo with one bright plate."""
    rng = np.random.default_rng(seed)
    image = rng.integers(20, 60, (size_wh[1], size_wh[0], 3)).astype(np.uint8)
    x, y = int(rng.integers(10, size_wh[0] - 90)), int(rng.integers(10, size_wh[1] - 30))
    image[y : y + 20, x : x + 80] = 230
    image[y + 5 : y + 15, x + 8 : x + 72 : 4] = 20
    box = np.array([[x, y, x + 80, y + 20]], np.float32)
    return TrainingPhoto(f"{seed}.png", image, box, np.ones(1, np.int64))


def empty_photo(image: np.ndarray) -> TrainingPhoto:
    return TrainingPhoto("empty", image, np.zeros((0, 4), np.float32), np.zeros(0, np.int64))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder in the layout of the real one."""
    (tmp_path / "world_photos" / "images").mkdir(parents=True)
    (tmp_path / "no_plates").mkdir()
    with (tmp_path / "world_photos" / "plates.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "x0", "y0", "x1", "y1"])
        for seed in range(12):
            photo = photo_with_plate(seed)
            name = f"w_{seed}.jpg"
            cv2.imwrite(str(tmp_path / "world_photos" / "images" / name), photo.image)
            writer.writerow([name, *photo.boxes[0].tolist()])
    for seed in range(4):
        grey = np.full((100, 120, 3), 40 * seed, np.uint8)
        cv2.imwrite(str(tmp_path / "no_plates" / f"{seed}.jpg"), grey)
    return tmp_path


def config_for(data: Path, minutes: float) -> DetectorTraining:
    return DetectorTraining(
        data, data / "run", minutes, batch_size=4, windows=SMALL, report_every=2
    )


# Photos and their split


def test_neighbouring_frames_stay_together():
    frames = [f"ro_dayride_type1_001.mp4_t_{second}.jpg" for second in range(0, 400, 10)]
    held_out = validation_names(frames)
    assert 0 < len(held_out) < len(frames)
    for start in range(0, len(frames), 8):
        assert len(held_out & set(frames[start : start + 8])) in (0, 8)


def test_a_fifth_of_the_photos_is_held_out():
    names = [f"w_{number}.jpg" for number in range(1000)]
    assert 160 < len(validation_names(names)) < 240
    assert validation_names(names) == validation_names(reversed(names))


def test_no_photo_is_on_both_sides(data):
    training, validation = load_world(data)
    assert len(training) + len(validation) == 12
    assert not {p.name for p in training} & {p.name for p in validation}
    negatives = [{p.name for p in load_empty(data, side)} for side in (False, True)]
    assert len(negatives[0] | negatives[1]) == 4
    assert not negatives[0] & negatives[1]


# Windows


@pytest.mark.parametrize("cells", [1, 2])
def test_boxes_move_with_the_pixels(monkeypatch, cells):
    monkeypatch.setattr(detection_windows, "degrade", lambda image, _: image)
    monkeypatch.setattr(detection_windows, "_turn", lambda *_: np.eye(3))
    settings = replace(SMALL, size=192, grids=((cells, 1.0),), painted=0.0)
    sampler = WindowSampler([photo_with_plate(seed) for seed in range(5)], settings=settings)
    for seed in range(20):
        window = sampler.draw(np.random.default_rng(seed))
        bright = (window.image > 150).all(axis=2)
        for x0, y0, x1, y1 in np.concatenate((window.boxes, window.unclear)).tolist():
            rows, columns = slice(max(round(y0) - 3, 0), round(y1) + 3), slice(0, None)
            inside = bright[round(y0) : round(y1), round(x0) : round(x1)]
            assert inside.mean() > 0.3
            bright[rows, columns][:, max(round(x0) - 3, 0) : round(x1) + 3] = False
        assert bright.sum() <= 4 * 9 * 20  # what is left is too narrow a strip to be a plate


def test_turned_boxes_hold_their_plates(monkeypatch):
    monkeypatch.setattr(detection_windows, "degrade", lambda image, _: image)
    sampler = WindowSampler([photo_with_plate(1)], settings=replace(SMALL, painted=0.0))
    for seed in range(20):
        window = sampler.draw(np.random.default_rng(seed))
        rows, columns = (window.image > 150).all(axis=2).nonzero()
        hull = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        for box in window.boxes:
            assert box.tolist() == pytest.approx(hull, abs=6)


def test_plates_get_the_width_that_is_asked_for():
    settings = replace(SMALL, widths=((40.0, 44.0),))
    sampler = WindowSampler([photo_with_plate(2)], settings=settings)
    widths = [
        box[2] - box[0]
        for seed in range(30)
        for box in sampler.draw(np.random.default_rng(seed)).boxes
    ]
    assert len(widths) >= 20
    assert 36 < np.median(widths) < 48


def test_the_same_generator_draws_the_same_window():
    photos = [photo_with_plate(seed) for seed in range(3)]
    first, second = (WindowSampler(photos, settings=SMALL) for _ in range(2))
    first.draw(np.random.default_rng(7))  # whatever was drawn before
    a, b = (s.draw(np.random.default_rng(8)) for s in (first, second))
    assert np.array_equal(a.image, b.image)
    assert np.array_equal(a.boxes, b.boxes)


def test_negatives_have_no_boxes():
    settings = replace(SMALL, negative=1.0)
    negative = empty_photo(np.full((90, 90, 3), 99, np.uint8))
    window = WindowSampler([photo_with_plate()], [negative], settings).draw(
        np.random.default_rng(0)
    )
    assert window.boxes.shape == (0, 4)


# Painted plates


def test_a_painted_plate_lies_in_the_box_and_changes_nothing_else():
    photo = photo_with_plate(3, (320, 240))
    patch = paint_plate(photo.image, photo.boxes[0], np.random.default_rng(0))
    painted = patch.paste(photo.image)
    (x, y), (h, w) = patch.corner_xy, patch.image.shape[:2]
    outside = np.ones(painted.shape[:2], bool)
    outside[y : y + h, x : x + w] = False
    assert np.array_equal(painted[outside], photo.image[outside])
    assert (painted[~outside] != photo.image[~outside]).any()
    x0, y0, x1, y1 = photo.boxes[0].tolist()
    assert abs((patch.box[0] + patch.box[2]) / 2 - (x0 + x1) / 2) < 5
    assert 0.85 * (x1 - x0) < patch.box[2] - patch.box[0] < 1.1 * (x1 - x0)
    assert y0 - 15 < (patch.box[1] + patch.box[3]) / 2 < y1 + 15
    assert len(patch.text) in (8, 9)


def test_a_box_outside_the_photo_is_refused():
    photo = photo_with_plate().image
    with pytest.raises(ValueError, match="inside the photo"):
        paint_plate(photo, np.array([900, 900, 980, 920], np.float32), np.random.default_rng(0))


# Loss


def test_collate_numbers_the_boxes():
    image = np.zeros((32, 32, 3), np.uint8)
    image[0, 0] = (255, 0, 51)
    nothing = np.zeros((0, 4), np.float32)
    one = Window(image, np.array([[1, 2, 3, 4]], np.float32), nothing, np.array([2]))
    none = Window(image, nothing, nothing, np.zeros(0, np.int64))
    planes, targets = collate([none, one])
    assert planes.shape == (2, 3, 32, 32)
    assert planes[0, :, 0, 0].tolist() == pytest.approx([1.0, 0.0, 0.2])
    assert targets.boxes.tolist() == [[1, 1, 2, 3, 4]]
    assert targets.unclear.shape == (0, 5)


def test_training_learns(monkeypatch, data):
    monkeypatch.setattr(detection_windows, "degrade", lambda image, _: image)
    sampler = WindowSampler([photo_with_plate(s) for s in range(4)], (), replace(SMALL, painted=0))
    training = Training(replace(config_for(data, 1e6), peak_rate=0.3), sampler)
    losses = [training.step()["loss"] for _ in range(20)]
    assert training.samples == 20 * 4
    assert np.mean(losses[-5:]) < 0.85 * np.mean(losses[:5])


def test_a_resumed_run_goes_on_where_it_stopped(data):
    sampler = WindowSampler([photo_with_plate(s) for s in range(4)], (), SMALL)
    config = replace(config_for(data, 1e6), peak_rate=0.1)
    stopped = Training(config, sampler)
    for _ in range(2):
        stopped.step()
    stopped.save()
    expected = [stopped.step()["loss"] for _ in range(2)]
    resumed = Training(config, sampler)
    assert resumed.steps == 2
    assert resumed.budget.elapsed_s > 0
    assert [resumed.step()["loss"] for _ in range(2)] == pytest.approx(expected, rel=1e-3)


def test_training_from_photos_to_weights(data):
    path = train(config_for(data, 0.02))
    assert path == data / "run" / "detector.safetensors"
    net = weights.load(YOLOv5(DETECTOR), path)
    trained = torch.load(data / "run" / "checkpoint.pt", weights_only=True)
    assert trained["steps"] > 0
    key = "model.24.m.0.weight"
    assert torch.equal(net.state_dict()[key], trained["averaged"][key])
    assert (data / "run" / "curves.png").stat().st_size > 5000
    # Nothing is left to do: the finished run writes the same weights again.
    again = weights.load(YOLOv5(DETECTOR), train(config_for(data, 0.02)))
    assert torch.equal(again.state_dict()[key], net.state_dict()[key])


# Counting


def test_what_counts_as_found():
    def finds_the_plate(canvas: torch.Tensor) -> torch.Tensor:
        rows = torch.zeros(1, 300, 6)
        bright = (canvas[0, 0] > 150).nonzero()
        if len(bright):
            (y0, x0), (y1, x1) = bright.amin(dim=0), bright.amax(dim=0) + 1
            rows[0, 0] = torch.tensor([x0, y0, x1, y1 + (y1 - y0) * 0.6, 0.9, 0])
        return rows

    dark = empty_photo(np.zeros((60, 80, 3), np.uint8))
    counts = count_found(finds_the_plate, [photo_with_plate(), dark])
    assert counts == DetectionCounts(plates=1, found_50=1, found_70=0, boxes=1, photos=2)
