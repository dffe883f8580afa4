"""The detector's training: the loss, the windows, the steps, and what counts as found."""

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
from plate_models.training import detection_data
from plate_models.training.detection_data import (
    TrainingPhoto,
    WindowSampler,
    WindowSettings,
    load_empty,
    load_world,
    validation_names,
)
from plate_models.training.detection_loss import DetectionLoss, Targets, assign, ciou
from plate_models.training.detector import (
    DetectionCounts,
    DetectorTraining,
    Training,
    count_found,
    train,
)

STRIDES = (8, 16, 32)


def test_ciou_of_equal_distant_and_misshapen_boxes():
    a = torch.tensor([[10.0, 10.0, 8.0, 4.0]]).repeat(3, 1)
    b = torch.tensor([[10.0, 10.0, 8.0, 4.0], [30.0, 10.0, 8.0, 4.0], [10.0, 10.0, 4.0, 8.0]])
    equal, distant, misshapen = ciou(a, b).tolist()
    assert equal == pytest.approx(1, abs=1e-5)
    assert distant == pytest.approx(-400 / (28**2 + 16), abs=1e-4)
    assert misshapen < 16 / 48  # their IoU


def test_a_plate_is_assigned_to_its_cell_and_the_two_nearest_neighbours():
    # Centre (44, 20) in cells of 8: (5.5, 2.5) → shift a little to the left and down.
    boxes = torch.tensor([[1.0, 27.0, 16.0, 59.0, 28.0]])  # centre (43, 22) = (5.375, 2.75)
    anchors = torch.tensor([[4.0, 1.5], [40.0, 1.5]])  # the second is ten times too wide
    found = assign(boxes, anchors, 8, (8, 8))
    assert set(zip(found.column.tolist(), found.row.tolist(), strict=True)) == {
        (5, 2),
        (4, 2),
        (5, 3),
    }
    assert found.anchor.tolist() == [0, 0, 0]
    assert found.image.tolist() == [1, 1, 1]
    centres = found.box[:, :2] + torch.stack((found.column, found.row), dim=1)
    torch.testing.assert_close(centres, torch.tensor([[5.375, 2.75]]).expand(3, 2))


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


def test_windows_without_plates_have_a_finite_loss():
    heads = [head.requires_grad_() for head in perfect_heads(NOTHING, detection_loss())]
    total, parts = detection_loss()(heads, Targets(NOTHING, NOTHING, ONE_LINE[:0]))
    total.backward()
    assert parts["box"] == parts["class"] == 0
    assert all(torch.isfinite(head.grad).all() for head in heads)


def test_unclear_places_are_not_judged():
    loss, box = detection_loss(), torch.tensor([[0.0, 40.0, 50.0, 90.0, 66.0]])
    heads = perfect_heads(box, loss)
    around = box + torch.tensor([0, -16, -16, 16, 16])
    blamed, _ = loss(heads, Targets(NOTHING, NOTHING, ONE_LINE[:0]))
    excused, _ = loss(heads, Targets(NOTHING, around, ONE_LINE[:0]))
    assert excused < 0.01 < blamed


@pytest.mark.parametrize(("lines", "right", "wrong"), [(1, 5, 6), (2, 6, 5)])
def test_the_class_is_the_number_of_lines(lines, right, wrong):
    gradients = class_gradients(lines)
    assert gradients[:, right].min() < 0 <= gradients[:, right].max()  # goes up
    assert gradients[:, wrong].max() > 0 >= gradients[:, wrong].min()  # goes down


def test_nothing_is_learnt_about_lines_that_nobody_counted():
    assert not class_gradients(0)[:, 5:].any()


def class_gradients(lines: int) -> torch.Tensor:
    """(all predictions, 7): the loss's gradients for one plate of so many lines."""
    loss, box = detection_loss(), torch.tensor([[0.0, 40.0, 50.0, 90.0, 66.0]])
    heads = [head.requires_grad_() for head in perfect_heads(box, loss)]
    loss(heads, Targets(box, NOTHING, torch.tensor([lines])))[0].backward()
    return torch.cat([head.grad.reshape(-1, 7) for head in heads])


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


# Loss


def test_training_learns(monkeypatch, data):
    monkeypatch.setattr(detection_data, "degrade", lambda image, _: image)
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
