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


def detection_loss() -> DetectionLoss:
    head = YOLOv5().head
    return DetectionLoss(head.anchors, head.strides)


NOTHING = torch.zeros(0, 5)
ONE_LINE = torch.tensor([1])


def test_perfect_predictions_cost_nothing():
    loss, box = detection_loss(), torch.tensor([[0.0, 40.0, 50.0, 90.0, 66.0]])
    total, parts = loss(perfect_heads(box, loss), Targets(box, NOTHING, ONE_LINE))
    assert total < 0.01
    moved = box + torch.tensor([0.0, 6.0, 0.0, 6.0, 0.0])
    worse, worse_parts = loss(perfect_heads(moved, loss), Targets(box, NOTHING, ONE_LINE))
    assert worse > 5 * total
    assert worse_parts["box"] > 10 * parts["box"]


def test_unclear_places_are_not_judged():
    loss, box = detection_loss(), torch.tensor([[0.0, 40.0, 50.0, 90.0, 66.0]])
    heads = perfect_heads(box, loss)
    around = box + torch.tensor([0, -16, -16, 16, 16])
    blamed, _ = loss(heads, Targets(NOTHING, NOTHING, ONE_LINE[:0]))
    excused, _ = loss(heads, Targets(NOTHING, around, ONE_LINE[:0]))
    assert excused < 0.01 < blamed
    heads = [head.requires_grad_() for head in perfect_heads(NOTHING, loss)]
    total, _ = loss(heads, Targets(NOTHING, NOTHING, ONE_LINE[:0]))
    total.backward()
    assert all(torch.isfinite(head.grad).all() for head in heads), "no plate at all"


@pytest.mark.parametrize(("lines", "right", "wrong"), [(1, 5, 6), (2, 6, 5)])
def test_the_class_is_the_number_of_lines(lines, right, wrong):
    def gradients(lines: int) -> torch.Tensor:
        loss, box = detection_loss(), torch.tensor([[0.0, 40.0, 50.0, 90.0, 66.0]])
        heads = [head.requires_grad_() for head in perfect_heads(box, loss)]
        loss(heads, Targets(box, NOTHING, torch.tensor([lines])))[0].backward()
        return torch.cat([head.grad.reshape(-1, 7) for head in heads])

    learnt = gradients(lines)
    assert learnt[:, right].min() < 0 <= learnt[:, right].max()  # goes up
    assert learnt[:, wrong].max() > 0 >= learnt[:, wrong].min()  # goes down
    assert not gradients(0)[:, 5:].any(), "nobody counted the lines"


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


def config_for(data: Path, minutes: float) -> DetectorTraining:
    return DetectorTraining(
        data, data / "run", minutes, batch_size=4, windows=SMALL, report_every=2
    )


def test_what_is_held_out_is_not_trained_on(data: Path) -> None:
    trained = {photo.name for photo in load_world(data)}
    names = {f"w_{seed}.jpg" for seed in range(12)}
    assert trained == names - validation_names(names) and trained != names
    assert 0 < len(load_empty(data)) < 8


# Windows


@pytest.mark.parametrize("cells", [1, 2])
def test_boxes_move_with_the_pixels(monkeypatch, cells):
    monkeypatch.setattr(detection_data, "degrade", lambda image, _: image)
    monkeypatch.setattr(detection_data, "_turn", lambda *_: np.eye(3))
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
    monkeypatch.setattr(detection_data, "degrade", lambda image, _: image)
    sampler = WindowSampler([photo_with_plate(1)], settings=replace(SMALL, painted=0.0))
    for seed in range(20):
        window = sampler.draw(np.random.default_rng(seed))
        rows, columns = (window.image > 150).all(axis=2).nonzero()
        hull = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        for box in window.boxes:
            assert box.tolist() == pytest.approx(hull, abs=6)


def test_windows_follow_from_their_generator() -> None:
    photos = [photo_with_plate(seed) for seed in range(3)]
    first, second = (WindowSampler(photos, settings=SMALL) for _ in range(2))
    first.draw(np.random.default_rng(7))  # whatever was drawn before
    a, b = (s.draw(np.random.default_rng(8)) for s in (first, second))
    assert np.array_equal(a.image, b.image)
    assert np.array_equal(a.boxes, b.boxes)


def test_negatives_have_no_boxes() -> None:
    grey = np.full((90, 90, 3), 99, np.uint8)
    negative = TrainingPhoto("empty", grey, np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    sampler = WindowSampler([photo_with_plate()], [negative], replace(SMALL, negative=1.0))
    assert sampler.draw(np.random.default_rng(0)).boxes.shape == (0, 4)


# Steps


def test_training_learns_and_a_resumed_run_goes_on(monkeypatch, data):
    monkeypatch.setattr(detection_data, "degrade", lambda image, _: image)
    sampler = WindowSampler([photo_with_plate(s) for s in range(4)], (), replace(SMALL, painted=0))
    config = replace(config_for(data, 1e6), peak_rate=0.3)
    training = Training(config, sampler)
    losses = [training.step()["loss"] for _ in range(20)]
    assert np.mean(losses[-5:]) < 0.85 * np.mean(losses[:5])
    training.save()
    expected = [training.step()["loss"] for _ in range(2)]
    resumed = Training(config, sampler)
    assert (resumed.steps, resumed.samples) == (20, 20 * 4)
    assert resumed.elapsed_s > 0
    assert [resumed.step()["loss"] for _ in range(2)] == pytest.approx(expected, rel=1e-3)


def test_training_from_photos_to_weights(data):
    path = train(config_for(data, 0.02))
    assert path == data / "run" / "detector.safetensors"
    net = weights.load(YOLOv5(DETECTOR), path)
    trained = torch.load(data / "run" / "checkpoint.pt", weights_only=True)
    assert trained["averaged"]["n_averaged"] > 0
    key = "model.24.m.0.weight"
    assert torch.equal(net.state_dict()[key], trained["averaged"][f"module.{key}"])
    assert (data / "run" / "curves.png").stat().st_size > 5000
    # Nothing is left to do: the finished run writes the same weights again.
    again = weights.load(YOLOv5(DETECTOR), train(config_for(data, 0.02)))
    assert torch.equal(again.state_dict()[key], net.state_dict()[key])
