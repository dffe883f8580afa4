"""The detector's training: the loss, the windows, and the steps."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from plate_models import weights
from plate_models.nets.yolov5 import YOLOv5
from plate_models.spec import DETECTOR
from plate_models.training import detection_data
from plate_models.training.detection_data import (
    TrainingPhoto,
    WindowSampler,
    WindowSettings,
    load_empty,
    load_world,
)
from plate_models.training.detection_loss import DetectionLoss, Targets, assign
from plate_models.training.detector import DetectorTraining, Training, train
from plate_models.training.labels import validation_names

STRIDES = (8, 16, 32)


def perfect_heads(box: torch.Tensor, loss: DetectionLoss) -> list[torch.Tensor]:
    """Raw heads that decode to the box wherever the assignment asks for it."""
    heads = []
    for level, stride in enumerate(STRIDES):
        head = torch.full((1, 3, 128 // stride, 128 // stride, 7), -9.0)
        found = assign(box, loss.anchors[level], stride, (128 // stride,) * 2)
        share = torch.sqrt(found.box[:, 2:] / loss.anchors[level][found.anchor]) / 2
        raw = torch.full((len(share), 7), 9.0)
        raw[:, 0:2] = torch.logit((found.box[:, :2] + 0.5) / 2, eps=1e-4)
        raw[:, 2:4] = torch.logit(share, eps=1e-4)
        raw[:, 6] = -9.0
        head[found.image, found.anchor, found.row, found.column] = raw
        heads.append(head)
    return heads


NOTHING, BOX = torch.zeros(0, 5), torch.tensor([[0.0, 40.0, 50.0, 90.0, 66.0]])


@pytest.fixture(scope="module")
def loss() -> DetectionLoss:
    head = YOLOv5().head
    return DetectionLoss(head.anchors, head.strides)


def targets(boxes: torch.Tensor = BOX, unclear: torch.Tensor = NOTHING, lines: int = 1) -> Targets:
    return Targets(boxes, unclear, torch.full((len(boxes),), lines))


def test_perfect_predictions_cost_nothing_and_unclear_places_are_not_judged(loss):
    heads = perfect_heads(BOX, loss)
    total, parts = loss(heads, targets())
    assert total < 0.01
    moved = perfect_heads(BOX + torch.tensor([0.0, 6.0, 0.0, 6.0, 0.0]), loss)
    worse, worse_parts = loss(moved, targets())
    assert worse > 5 * total and worse_parts["box"] > 10 * parts["box"]
    blamed, _ = loss(heads, targets(NOTHING))
    excused, _ = loss(heads, targets(NOTHING, BOX + torch.tensor([0, -16, -16, 16, 16])))
    assert excused < 0.01 < blamed


@pytest.mark.parametrize(("lines", "right", "wrong"), [(1, 5, 6), (2, 6, 5)])
def test_the_class_is_the_number_of_lines(loss, lines, right, wrong):
    def gradients(wanted: Targets) -> torch.Tensor:
        heads = [head.requires_grad_() for head in perfect_heads(BOX, loss)]
        loss(heads, wanted)[0].backward()
        return torch.cat([head.grad.reshape(-1, 7) for head in heads])

    learnt = gradients(targets(lines=lines))
    assert learnt[:, right].min() < 0 <= learnt[:, right].max()  # goes up
    assert learnt[:, wrong].max() > 0 >= learnt[:, wrong].min()  # goes down
    assert not gradients(targets(lines=0))[:, 5:].any(), "nobody counted the lines"
    assert gradients(targets(NOTHING)).isfinite().all(), "no plate at all"


SMALL = WindowSettings(size=128, grids=((1, 1.0),), widths=((30.0, 90.0),), background=0.0)


def photo_with_plate(seed: int = 0, size_wh: tuple[int, int] = (240, 180)) -> TrainingPhoto:
    """A dark photo with one bright plate."""
    rng = np.random.default_rng(seed)
    image = rng.integers(20, 60, (size_wh[1], size_wh[0], 3)).astype(np.uint8)
    x, y = int(rng.integers(10, size_wh[0] - 90)), int(rng.integers(10, size_wh[1] - 30))
    image[y : y + 20, x : x + 80] = 230
    image[y + 5 : y + 15, x + 8 : x + 72 : 4] = 20
    box = np.array([[x, y, x + 80, y + 20]], np.float32)
    return TrainingPhoto(f"{seed}.png", image, box, np.ones(1, np.int64))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder in the layout of the real one."""
    (tmp_path / "world_photos" / "images").mkdir(parents=True)
    (tmp_path / "no_plates").mkdir()
    rows = ["image,x0,y0,x1,y1"]
    for seed in range(12):
        photo, name = photo_with_plate(seed), f"w_{seed}.jpg"
        cv2.imwrite(str(tmp_path / "world_photos" / "images" / name), photo.image)
        rows.append(",".join(map(str, [name, *photo.boxes[0].tolist()])))
    (tmp_path / "world_photos" / "plates.csv").write_text("\n".join(rows))
    for seed in range(8):
        grey = np.full((100, 120, 3), 30 * seed, np.uint8)
        cv2.imwrite(str(tmp_path / "no_plates" / f"{seed * 37}.jpg"), grey)
    return tmp_path


# Windows


@pytest.mark.parametrize(("cells", "turned"), [(1, False), (2, False), (1, True)])
def test_boxes_move_with_the_pixels(monkeypatch, cells, turned):
    monkeypatch.setattr(detection_data, "degrade", lambda image, _: image)
    if not turned:
        monkeypatch.setattr(detection_data, "_turn", lambda *_: np.eye(3))
    settings = replace(SMALL, size=192, grids=((cells, 1.0),), painted=0.0)
    sampler = WindowSampler([photo_with_plate(seed) for seed in range(5)], settings=settings)
    near = 6 if turned else 3
    for seed in range(20):
        window = sampler.draw(np.random.default_rng(seed))
        bright = (window.image > 150).all(axis=2)
        for box in np.concatenate((window.boxes, window.unclear)).round().astype(int).tolist():
            left, top = (max(side - near, 0) for side in box[:2])
            part = bright[top : box[3] + near, left : box[2] + near]
            rows, columns = part.nonzero()
            hull = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
            assert np.abs(np.add(hull, (left, top) * 2) - box).max() <= near
            part[:] = False
        assert bright.sum() <= 4 * 9 * 20  # what is left is too narrow a strip to be a plate


def test_windows_follow_from_their_generator_and_negatives_have_no_boxes() -> None:
    photos = [photo_with_plate(seed) for seed in range(3)]
    first, second = (WindowSampler(photos, settings=SMALL) for _ in range(2))
    first.draw(np.random.default_rng(7))  # whatever was drawn before
    a, b = (s.draw(np.random.default_rng(8)) for s in (first, second))
    assert np.array_equal(a.image, b.image) and np.array_equal(a.boxes, b.boxes)
    grey = np.full((90, 90, 3), 99, np.uint8)
    negative = TrainingPhoto("empty", grey, np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    sampler = WindowSampler(photos, [negative], replace(SMALL, negative=1.0))
    assert sampler.draw(np.random.default_rng(0)).boxes.shape == (0, 4)


# Steps


def test_training_learns_and_a_resumed_run_goes_on(monkeypatch, tmp_path):
    monkeypatch.setattr(detection_data, "degrade", lambda image, _: image)
    sampler = WindowSampler([photo_with_plate(s) for s in range(4)], (), replace(SMALL, painted=0))
    config = DetectorTraining(tmp_path, tmp_path / "run", 1e6, batch_size=4, peak_rate=0.3)
    training = Training(config, sampler)
    losses = [training.step()["loss"] for _ in range(20)]
    assert np.mean(losses[-5:]) < 0.85 * np.mean(losses[:5])
    training.save()
    expected = [training.step()["loss"] for _ in range(2)]
    resumed = Training(config, sampler)
    assert (resumed.steps, resumed.samples) == (20, 20 * 4) and resumed.elapsed_s > 0
    assert [resumed.step()["loss"] for _ in range(2)] == pytest.approx(expected, rel=1e-3)


def test_training_from_photos_to_weights(data):
    names = {f"w_{seed}.jpg" for seed in range(12)}
    assert {photo.name for photo in load_world(data)} == names - validation_names(names) < names
    assert 0 < len(load_empty(data)) < 8
    config = DetectorTraining(data, data / "run", 0.02, batch_size=4, windows=SMALL, report_every=2)
    path = train(config)
    assert path == data / "run" / "detector.safetensors"
    net = weights.load(YOLOv5(DETECTOR), path)
    trained = torch.load(data / "run" / "checkpoint.pt", weights_only=True)
    assert trained["averaged"]["n_averaged"] > 0
    key = "model.24.m.0.weight"
    assert torch.equal(net.state_dict()[key], trained["averaged"][f"module.{key}"])
    assert (data / "run" / "curves.png").stat().st_size > 5000
    # Nothing is left to do: the finished run writes the same weights again.
    again = weights.load(YOLOv5(DETECTOR), train(config))
    assert torch.equal(again.state_dict()[key], net.state_dict()[key])
