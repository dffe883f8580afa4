"""The recognizer's training: crops, loss, release of weights. test_detector.py resumes a run."""

import json
import re
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from dataclasses import replace
from functools import partial

import cv2
import numpy as np
import pytest
import torch
from safetensors import safe_open
from support import ROOT, files_limited_to, is_alive, labelled_set, wait_until

from plate_models import images, release, weights
from plate_models.engines.nets import load_nets
from plate_models.nets.lprnet import LPRNet
from plate_models.recognition import ctc
from plate_models.spec import RECOGNIZER, RecognizerSpec
from plate_models.training import crop_cache, imaging, recognizer
from plate_models.training.crop_cache import CropBatch, CropCache, batch_of
from plate_models.training.labels import LabelError
from plate_models.training.recognizer import RecognizerTraining, Training, read_crops, train
from plate_models.training.splicing import draw_spliced, strips_of
from plate_models.training.synthetic.crops import render_crop


@pytest.fixture
def config(tmp_path):
    places = {"folder": tmp_path / "run", "cache": tmp_path / "crops"}
    return RecognizerTraining(**places, batch_size=16, minutes=60, peak_rate=4e-4, theta_noise=0.0)


def text_of(labels):
    return "".join(RECOGNIZER.alphabet[i] for i in labels if i >= 0)


def test_workers_end_when_their_parent_is_killed():
    code = (
        "import os, signal, time; from types import SimpleNamespace as New\n"
        "from plate_models.training.run import Run; from plate_models.training import worker_pool\n"
        "run = New(config=New(loaders=1, seed=0), steps=0)\n"
        "batches = Run.batches(run, lambda _: [os.getpid(), bytes(1 << 20)])\n"
        "pools = [worker_pool.start_pool(1) for _ in range(2)]\n"
        "stopped, worker = (pool.submit(os.getpid).result() for pool in pools)\n"
        "os.kill(stopped, signal.SIGINT)\n"  # as Ctrl-C does in a terminal
        "print(stopped, worker, next(batches)[0], flush=True); time.sleep(60)"
    )
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT) as parent:
        stopped, *workers = map(int, parent.stdout.readline().split())
        wait_until(lambda: not is_alive(stopped))
        assert [*map(is_alive, workers)] == [True, True]
        parent.kill()
        wait_until(lambda: not any(map(is_alive, workers)))
        assert "KeyboardInterrupt" not in parent.stderr.read()


def test_the_loss_falls_on_one_batch(config):
    training, rng = Training(config), np.random.default_rng(1)
    batch = batch_of([render_crop(rng) for _ in range(16)])
    training.spent_s = 300  # past the warm-up
    losses = [training.step(batch)["loss"] for _ in range(12)]
    assert np.mean(losses[-5:]) < 0.7 * losses[0]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # Python 3.12
def test_loaders_draw_the_same_batches_as_the_training_process(config):
    runs = [Training(replace(config, loaders=count)) for count in (0, 2)]
    both = [run.batches(lambda rng: int(rng.integers(1000))) for run in runs]
    first, second = ([next(batches) for _ in range(9)] for batches in both)
    assert first == second and len(set(first)) > 6


def test_varied_crops_move_their_corners_with_the_pixels(monkeypatch):
    # Shadows would hide the white quad from the comparison.
    monkeypatch.setattr(recognizer, "_AGAIN", replace(recognizer._AGAIN, shadow_share=0))
    quad = np.array([(30, 15), (130, 20), (125, 50), (35, 45)], np.float32)
    plain = cv2.fillConvexPoly(np.zeros((64, 160, 3), np.uint8), quad.astype(int), (255,) * 3)
    batch = CropBatch(np.stack([plain] * 64), np.stack([quad] * 64), np.zeros((64, 2, 1), int))
    varied = recognizer.vary(batch, np.random.default_rng(1))
    assert 20 < sum((batch.quads != varied.quads).any(axis=(1, 2))) < 44
    assert 20 < sum((batch.images != varied.images).any(axis=(1, 2, 3))) < 60
    for image, corners in zip(varied.images, varied.quads, strict=True):
        drawn = cv2.fillConvexPoly(np.zeros((64, 160)), np.rint(corners).astype(int), 1.0)
        assert abs(drawn - (image[..., 1] > 127)).sum() < 0.15 * drawn.sum()


def test_surely_read_plates_of_real_photos_become_crops(config, tmp_path, monkeypatch):
    # Photos with two plates of two lines, with one that the split holds out, with two of one line.
    names = ("square_plates.jpg", "green_car.jpg", "two_at_night.jpg")
    labelled_set(tmp_path / "world_photos", *names)
    checked = tmp_path / "seen.json"
    checked.write_text("{}")
    monkeypatch.setattr("plate_models.training.labels._FINDINGS", checked)
    batch = read_crops(tmp_path, release.WEIGHTS_DIR, seed=0)
    one_line, two_lines = ("B294XX164", "H781CC105"), ("A110", "AM77", "A432", "BO07")
    expected = dict.fromkeys(one_line + two_lines, 16)
    assert Counter(map(text_of, recognizer.row_labels(batch))) == expected
    assert Counter(batch.lines) == {1: 32, 2: 32}
    assert len({crop.tobytes() for crop in batch.images}) == 64
    # Parts of the two one-line plates, spliced, have new texts, which the released nets read.
    reader = Training(replace(config, start_from=release.WEIGHTS_DIR)).averaged.eval()
    one_line = batch.part(np.flatnonzero(batch.lines == 1)[::16])
    strips = strips_of(one_line, reader.module.lprnet)
    spliced = CropBatch.of(draw_spliced(strips, np.random.default_rng(0), 100))
    assert len(set(map(text_of, spliced.labels[:, 0]))) > 50
    assert recognizer.exact_match(reader, spliced, "cpu")[1] > 0.8
    # A checked photo yields the texts that were right, and false detections as crops without text.
    at_night = {"texts": [zlib.crc32(b"H781CC105")], "mistaken": [[300, 90, 380, 120]]}
    seen = {"two_at_night.jpg": at_night, "square_plates.jpg": {"texts": []}}
    checked.write_text(json.dumps(seen))
    batch = read_crops(tmp_path, release.WEIGHTS_DIR, seed=0)
    assert Counter(map(text_of, batch.labels[:, 0])) == {"H781CC105": 16, "": 6}
    # So does a text that is far behind the five candidates of the answer.
    path = tmp_path / "world_photos" / "images" / "two_at_night.jpg"
    blurred = cv2.GaussianBlur(images.decode(path.read_bytes()), (0, 0), 3)
    path.write_bytes(imaging.encode_jpeg(blurred, 95))
    plate = load_nets("torch").read(images.decode(path.read_bytes()))[0]
    far = ctc.beam_decode(plate.log_probs, RECOGNIZER.alphabet, 1000)[-1][0]
    assert far not in dict(plate.reading.candidates)
    checked.write_text(json.dumps({**seen, path.name: {"texts": [zlib.crc32(far.encode())]}}))
    learnt = read_crops(tmp_path, release.WEIGHTS_DIR, seed=0)
    assert Counter(map(text_of, learnt.labels[:, 0])) == {far: 16}
    corners = np.abs(batch.quads - batch.quads.mean(axis=1, keepdims=True)).mean(axis=(0, 1))
    assert 40 < corners[0] < 75 and 14 < corners[1] < 32
    with pytest.raises(release.WeightsError, match="--start-from"):
        train(RecognizerTraining(folder=tmp_path / "run", cache=tmp_path / "crops", data=tmp_path))
    with pytest.raises(release.WeightsError, match="neither net"):
        Training(RecognizerTraining(folder=tmp_path / "run", start_from=tmp_path))
    checked.write_text(json.dumps({name: {"texts": []} for name in names}))
    with pytest.raises(LabelError, match="no plate there"):
        read_crops(tmp_path, release.WEIGHTS_DIR, seed=0)


def test_two_trainings_can_render_the_same_crops_at_once(tmp_path, monkeypatch):
    def render(rng, path=tmp_path / "000000"):  # the other training is the first to finish
        monkeypatch.setattr(crop_cache, "render_crop", render_crop)
        crop_cache._render_block(path, 3, 2)
        return render_crop(rng)

    monkeypatch.setattr(crop_cache, "render_crop", render)
    crop_cache._render_block(tmp_path / "000000", 3, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["000000"]


def test_a_training_renders_crops_draws_curves_and_releases_weights(config, monkeypatch, capsys):
    monkeypatch.setattr(recognizer, "CropCache", partial(CropCache, block=30))
    released = config.folder / "new" / "weights"
    config = replace(config, minutes=0.02, crops=60, held_out=10, report_every=5, release=released)
    blocked = config.cache / "000001"
    blocked.parent.mkdir()
    blocked.touch()
    with pytest.raises(NotADirectoryError):  # the second block's folder can't get its name
        train(replace(config, folder=config.cache / "full", minutes=5, workers=2))
    blocked.unlink()
    match = train(config)
    shown = capsys.readouterr().err
    assert re.search(r"rendered=(0\.5|1)\b", shown) and " min, " in shown and "loss=" in shown
    assert (config.folder / "curves.png").stat().st_size > 1000
    cache = CropCache(config.cache, config.seed, block=30)
    shutil.move(config.cache / "000001", config.folder)
    assert len(np.unique(cache.draw(np.random.default_rng(0), 500).images, axis=0)) == 30
    shutil.move(config.folder / "000001", config.cache)  # as if it had just been rendered
    assert len(np.unique(cache.draw(np.random.default_rng(0), 500).images, axis=0)) == 60
    rng = np.random.default_rng(config.seed + 1)
    again = batch_of([render_crop(rng) for _ in range(30)])
    np.testing.assert_array_equal(np.load(config.cache / "000001" / "images.npy"), again.images)
    with pytest.raises(FileExistsError, match="other settings"):
        train(replace(config, seed=10))
    with safe_open(released / "recognizer.safetensors", "pt") as file:
        summary = json.loads(file.metadata()["training"])
    assert summary["rendered_exact_match_by_lines"] == {str(k): round(match[k], 4) for k in (1, 2)}
    assert summary["started_from"] is None
    place = {"folder": released.parent / "second", "release": None, "start_from": released}
    second = Training(replace(config, **place))
    second.save()
    with pytest.raises(release.WeightsError, match=r"checkpoint\.pt: .* or --start-from"):
        Training(replace(second.config, start_from=None))
    second.release({"rectifier": second.net.stn}, {})
    release_again = partial(second.release, {"rectifier": second.net.stn}, {})
    render = partial(crop_cache._render_block, config.cache / "000002", 3, 20)
    for write in (second.save, release_again, render):
        with files_limited_to(500_000), pytest.raises(OSError, match="too large"):
            write()
    with safe_open(released.parent / "second" / "rectifier.safetensors", "pt") as file:
        digest = json.loads(file.metadata()["training"])["started_from"]
    assert digest == f"sha256:{release.sha256_of(released / 'rectifier.safetensors')}"
    checkpoint = torch.load(config.folder / "finished.pt", weights_only=True)
    loaded = weights.read_file(released / "rectifier.safetensors").state
    key = "localization.10.bias"
    assert torch.equal(loaded[key], checkpoint["averaged"][f"module.stn.{key}"])


def test_a_larger_recognizer_computes_the_same_as_the_one_it_starts_from():
    """Added blocks change nothing at first, and known characters keep their logits.

    Added steps repeat the existing ones, which spells the same text.
    """
    file = weights.read_file(release.WEIGHTS_DIR / "recognizer.safetensors")
    released = weights.load_modules()
    old = released.config.specs.recognizer
    larger = RecognizerSpec(depths=(old.depths[0] + 1, old.depths[1] + 2), steps=2 * old.steps)
    new = LPRNet(larger)
    recognizer.take_over(new, file)
    rows = [larger.alphabet.index(char) for char in old.alphabet] + [-1]
    plates = torch.randn(2, 3, 24, 94)
    with torch.no_grad():
        expected, found = released.recognize(plates), new.eval()(plates)
    twice = expected.repeat_interleave(2, dim=2)
    torch.testing.assert_close(found[:, rows], twice, rtol=1e-4, atol=1e-4)
    file.contract["alphabet"] = "Ж" + old.alphabet[1:]
    with pytest.raises(release.WeightsError, match=r"knows .*Ж.*alphabet lacks"):
        recognizer.take_over(LPRNet(RECOGNIZER), file)
