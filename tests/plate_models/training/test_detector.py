"""The detector's training: the loss, the windows cut from photos, the run."""

import json
from dataclasses import replace
from functools import partial

import cv2
import numpy as np
import pytest
import torch

from plate_models import release, weights
from plate_models.images import ImageError
from plate_models.nets.yolov5 import YOLOv5, cell_places, decode_boxes, flatten_heads
from plate_models.training import detection_data, detector
from plate_models.training.detection_data import WindowSampler, WindowSettings
from plate_models.training.detection_loss import Targets, detection_loss
from plate_models.training.detector import DetectorTraining, Training, train
from plate_models.training.imaging import box_corners
from plate_models.training.labels import validation_names

NOTHING, BOX = torch.zeros(0, 5), torch.tensor([[0.0, 40.0, 50.0, 90.0, 66.0]])


def minimize_loss(targets):
    """Minimize the loss; returns raw heads for 128 x 128 pixels, and their boxes."""
    torch.set_num_threads(1)
    detect = YOLOv5().head
    heads = [torch.zeros(1, 3, 128 // s, 128 // s, 7, requires_grad=True) for s in detect.strides]
    optimizer = torch.optim.Adam(heads, 0.1)
    for _ in range(100):
        optimizer.zero_grad()
        detection_loss(heads, targets, detect.anchors, detect.strides)[0].backward()
        optimizer.step()
    places = cell_places(heads, detect.anchors, detect.strides)
    heads = [head.detach() for head in heads]
    return heads, decode_boxes(flatten_heads(heads)[0, :, :4], places)


@pytest.mark.parametrize("lines", [0, 1, 2])
def test_the_loss_is_minimal_for_the_plates_box_and_its_number_of_lines(lines):
    heads, boxes = minimize_loss(Targets(BOX, NOTHING, torch.tensor([lines])))
    raw = flatten_heads(heads)[0]
    sure = raw[:, 4] > 1
    assert 5 < sure.sum() < 40 and (raw[~sure, 4] < 0).all()
    assert (boxes[sure] - torch.tensor([65, 58, 50, 16])).abs().mean(dim=0).max() < 1
    classes = raw[sure, 5:]
    assert (classes.argmax(dim=1) == lines - 1).all() if lines else not classes.any()


def test_unclear_places_do_not_contribute_to_the_loss():
    fine = minimize_loss(Targets(NOTHING, BOX, torch.zeros(0, dtype=torch.int64)))[0][0][0, ..., 4]
    assert not fine[:, 6:9, 5:12].any()
    assert (fine < 0).sum() == fine.numel() - 3 * 3 * 7


SMALL = WindowSettings(128, ((1, (30.0, 90.0), 1.0),), background=0.0, clutter=(0.0, 0.0))


def photo_with_plate(seed=0, size_wh=(240, 180)):
    """A dark photo with one bright plate."""
    rng = np.random.default_rng(seed)
    image = rng.integers(20, 60, (size_wh[1], size_wh[0], 3)).astype(np.uint8)
    x, y = int(rng.integers(10, size_wh[0] - 90)), int(rng.integers(10, size_wh[1] - 30))
    image[y : y + 20, x : x + 80] = 230
    image[y + 5 : y + 15, x + 8 : x + 72 : 4] = 20
    outline = (box_corners(80, 20) + np.array([x, y])).astype(np.float32).repeat(2, axis=0)
    nothing = np.zeros((0, 8, 2), np.float32), np.zeros((0, 4), np.float32)
    return detection_data.TrainingPhoto(image, outline[None], np.ones(1, np.int64), *nothing)


@pytest.mark.parametrize(("cells", "turned"), [(1, False), (2, False), (1, True)])
def test_boxes_are_transformed_like_the_pixels(monkeypatch, cells, turned):
    monkeypatch.setattr(detection_data, "degrade", lambda image, _: image)
    monkeypatch.setattr(detection_data, "_TILTED", 1.0)
    if not turned:
        monkeypatch.setattr(detection_data, "_turn", lambda *_: np.eye(3))
    settings = replace(SMALL, size=192, grids=((cells, (30.0, 90.0), 1.0),), painted=0.0)
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
        assert bright.sum() <= 4 * 9 * 20  # the strips that are left are too narrow for plates


def test_windows_aim_at_mistaken_places_and_keep_unclear_ones_unclear(monkeypatch):
    monkeypatch.setattr(detection_data, "degrade", lambda image, _: image)
    photo = photo_with_plate(size_wh=(240, 90))
    image = np.concatenate((photo.image, photo.image[::-1]))  # twice as high, with a second plate
    mistaken = np.array([[100, 80, 140, 92]], np.float32)
    image[80:92, 100:140] = (0, 255, 0)
    unclear = np.abs(photo.outlines - (0, 180)).astype(np.float32)
    seen = replace(photo, image=image, unclear=unclear, mistaken=mistaken)
    sampler = WindowSampler([seen], settings=replace(SMALL, mistaken=1.0))
    windows = [sampler.draw(np.random.default_rng(seed)) for seed in range(20)]
    assert all((w.image == (0, 255, 0)).all(axis=2).sum() > 200 for w in windows)
    assert max(len(w.boxes) for w in windows) == 1
    assert max(len(w.boxes) + len(w.unclear) for w in windows) == 2
    # A photo enlarged for a painted plate keeps its unclear places in place.
    grids = ((1, (100.0, 110.0), 1.0),)
    settings = replace(SMALL, size=224, mistaken=0.0, painted=1.0, grids=grids)
    sampler = WindowSampler([seen], settings=settings)
    windows = [sampler.draw(np.random.default_rng(seed)) for seed in range(40)]
    shown = [(w.image, box.astype(int)) for w in windows for box in w.unclear]
    assert len(shown) > 9
    assert all(image[y0:y1, x0:x1].max() > 200 for image, (x0, y0, x1, y1) in shown)


def test_training_lowers_the_loss_and_a_resumed_run_continues_it(monkeypatch, tmp_path):
    monkeypatch.setattr(detection_data, "degrade", lambda image, _: image)
    sampler = WindowSampler([photo_with_plate(s) for s in range(4)], (), replace(SMALL, painted=0))
    config = DetectorTraining(data=tmp_path, folder=tmp_path / "run", minutes=1e6, peak_rate=0.3)

    def losses_of(training, steps):
        batches = training.batches(lambda rng: [sampler.draw(rng) for _ in range(4)])
        return [training.step(next(batches))["loss"] for _ in range(steps)]

    training = Training(config)
    losses = losses_of(training, 20)
    assert np.mean(losses[-5:]) < 0.85 * np.mean(losses[:5])
    training.curves.append({"samples": 80, "loss": losses[-1]})
    training.save()
    expected = losses_of(training, 2)
    resumed = Training(config)
    assert resumed.curves == training.curves
    assert (resumed.steps, resumed.samples) == (20, 20 * 4) and resumed.elapsed_s > 0
    assert losses_of(resumed, 2) == pytest.approx(expected, rel=1e-3)


def test_training_makes_weights_from_photos_and_labels(monkeypatch, tmp_path):
    data, rows = tmp_path, ["image,x0,y0,x1,y1"]
    (data / "world_photos" / "images").mkdir(parents=True)
    (data / "no_plates").mkdir()
    for seed in range(12):
        photo, name = photo_with_plate(seed), f"w_{seed}.jpg"
        cv2.imwrite(str(data / "world_photos" / "images" / name), photo.image)
        cv2.imwrite(str(data / "no_plates" / f"{seed * 37}.jpg"), photo.image // 8)
        rows.append(",".join(map(str, [name, *photo.boxes[0].tolist()])))
    (data / "world_photos" / "plates.csv").write_text("\n".join(rows))
    boxes = {"plates": [5, 6, 35, 16], "unclear": [0, 0, 9, 9], "mistaken": [40, 1, 50, 9]}
    seen = {key: [box] for key, box in boxes.items()}
    (data / "seen.json").write_text(json.dumps({f"w_{seed}.jpg": seen for seed in range(12)}))
    monkeypatch.setattr("plate_models.training.labels._FINDINGS", data / "seen.json")
    photo = detection_data.load_world(data)[0]
    assert photo.boxes[1].tolist() == boxes["plates"]
    assert photo.unclear.max() == 9 and photo.mistaken.tolist() == [boxes["mistaken"]]
    names = {f"w_{seed}.jpg" for seed in range(12)}
    assert len(detection_data.load_world(data)) == len(names - validation_names(names)) < len(names)
    assert 0 < len(detection_data.load_empty(data)) < 12
    monkeypatch.setattr(detector, "WindowSampler", partial(WindowSampler, settings=SMALL))
    places = {"data": data, "folder": data / "run"}
    config = DetectorTraining(**places, minutes=0.02, batch_size=4, report_every=2)
    (data / "full" / "curves.csv").mkdir(parents=True)  # can't be written, as on a full disk
    with pytest.raises(IsADirectoryError):
        train(replace(config, folder=data / "full", minutes=5))
    assert torch.load(data / "full" / "checkpoint.pt", weights_only=True)["samples"] == 8
    path = train(config)
    assert path == data / "run" / "detector.safetensors"
    trained = torch.load(data / "run" / "finished.pt", weights_only=True)
    assert trained["averaged"]["n_averaged"] > 0
    key = "model.24.m.0.weight"
    last = weights.read_file(path).state[key]
    assert torch.equal(last, trained["averaged"][f"module.{key}"])
    assert (data / "run" / "curves.png").stat().st_size > 5000
    again = weights.read_file(train(replace(config, seed=1))).state[key]
    assert not torch.equal(again, last), "a finished run must not be resumed"
    (data / "run" / "checkpoint.pt").write_bytes(b"PK")
    with pytest.raises(release.WeightsError, match=r"checkpoint\.pt: damaged"):
        train(config)
    started = Training(replace(config, folder=data / "2", start_from=path.parent))
    assert torch.equal(started.net.state_dict()[key], again)
    for path in (data / "world_photos" / "images").iterdir():
        path.write_bytes(path.read_bytes()[:99])
    with pytest.raises(ImageError, match=r"w_\d+\.jpg: "):
        detection_data.load_world(data)
