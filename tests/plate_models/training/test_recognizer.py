"""Recognizer training: the loss falls, a killed run goes on, the cache is exact."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from plate_models import weights
from plate_models.nets.stn import STN
from plate_models.rectification import corners_in_crop
from plate_models.spec import RECTIFIER
from plate_models.training import recognizer
from plate_models.training.crop_cache import CropBatch, CropCache, render_batch
from plate_models.training.recognizer import (
    RecognizerTraining,
    Training,
    corner_loss,
    train,
)
from plate_models.training.run import AveragedWeights, Budget


@pytest.fixture(scope="module")
def batch() -> CropBatch:
    return render_batch(np.random.default_rng(1), 16)


def config_in(folder: Path) -> RecognizerTraining:
    return RecognizerTraining(
        folder=folder / "run",
        cache=folder / "crops",
        batch_size=16,
        minutes=60,
        peak_rate=4e-4,
        theta_noise=0.0,
    )


def test_loss_falls_on_one_batch_and_a_second_run_goes_on(tmp_path: Path, batch: CropBatch) -> None:
    training = Training(config_in(tmp_path))
    training.budget.spent_s = 300  # Past the warm-up.
    losses = [training.step(batch)["loss"] for _ in range(12)]
    assert np.mean(losses[-5:]) < 0.7 * losses[0]
    training.save()
    resumed = Training(config_in(tmp_path))
    assert resumed.samples == training.samples == 12 * 16
    assert resumed.budget.elapsed_s >= 300
    for key, value in resumed.net.state_dict().items():
        assert torch.equal(value, training.net.state_dict()[key]), key


def test_release_writes_weights_that_load(tmp_path: Path, batch: CropBatch) -> None:
    released = tmp_path / "new" / "weights"
    training = Training(replace(config_in(tmp_path), release=released))
    training.step(batch)
    files = training.finish({1: 0.5, 2: 0.25})
    assert files == [released / "rectifier.safetensors", released / "recognizer.safetensors"]
    with safe_open(released / "recognizer.safetensors", "pt") as file:
        summary = json.loads(file.metadata()["training"])
    assert summary["rendered_exact_match_by_lines"] == {"1": 0.5, "2": 0.25}
    assert summary["started_from"] is None
    assert weights.started_from(released, "recognizer").startswith("sha256:")
    loaded = weights.load(STN(), released / "rectifier.safetensors")
    expected = training.averaged.module.state_dict()["stn.localization.10.bias"]
    assert torch.equal(loaded.state_dict()["localization.10.bias"], expected)


def test_a_release_that_can_not_be_written_loses_no_training(
    tmp_path: Path, batch: CropBatch
) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    config = replace(config_in(tmp_path), release=tmp_path / "taken" / "weights")
    training = Training(config)
    training.step(batch)
    with pytest.raises(OSError, match=r"taken.*they lie in .*run/rectifier\.safetensors"):
        training.finish({1: 0.5, 2: 0.25})
    assert weights.load(STN(), config.folder / "rectifier.safetensors")


def test_the_bar_shows_the_whole_length_and_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = Training(replace(config_in(tmp_path), minutes=10.0))
    training.budget.spent_s = 599.9

    def step() -> dict[str, float]:
        training.budget.spent_s += 1
        return {"loss": 0.25}

    training.use_up(step, report_every=1)
    shown = capsys.readouterr().err
    assert "of 10.0 min" in shown and " left" in shown and "loss=0.25" in shown


def test_train_renders_learns_and_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognizer, "CropCache", partial(CropCache, block=30))
    config = replace(config_in(tmp_path), minutes=0.02, crops=60, held_out=10, report_every=5)
    assert set(train(config)) == {1, 2}
    assert (config.folder / "curves.png").stat().st_size > 1000
    assert weights.load(STN(), config.folder / "rectifier.safetensors")


def test_corner_loss_is_zero_for_the_true_corners() -> None:
    height, width = RECTIFIER.crop_hw
    theta = torch.tensor([[[0.5, 0.1, 0.0], [-0.1, 0.4, 0.1]]])
    quads = (corners_in_crop(theta) + 1) / 2 * torch.tensor([width, height])
    batch = CropBatch(
        np.zeros((1, height, width, 3), np.uint8), quads.numpy(), np.full((1, 2, 10), -1)
    )
    assert corner_loss(theta, batch) == pytest.approx(0, abs=1e-6)
    assert corner_loss(theta + 0.1, batch) > 0.01


def test_cache_holds_what_its_seed_renders(tmp_path: Path) -> None:
    cache = CropCache(tmp_path, seed=9, block=4)
    assert list(cache.fill(8, workers=1))[-1] == 8
    assert list(cache.fill(8, workers=1)) == []
    again = render_batch(np.random.default_rng(10), 4)
    np.testing.assert_array_equal(np.load(tmp_path / "000001" / "images.npy"), again.images)
    assert cache.refresh() == 8
    assert cache.draw(np.random.default_rng(0), 5).images.shape == (5, *again.images.shape[1:])
    with pytest.raises(ValueError, match="other settings"):
        CropCache(tmp_path, seed=10)


def test_learning_rate_rises_then_falls_to_zero() -> None:
    rates = [Budget(1.0, spent_s=s).learning_rate(1.0) for s in (0.1, 1.8, 30.0, 59.9)]
    assert rates[0] < rates[1] and rates[1] > rates[2] > rates[3]
    assert rates[3] == pytest.approx(0, abs=1e-3)


def test_averaged_weights_follow_the_net() -> None:
    net = torch.nn.Linear(1, 1)
    averaged = AveragedWeights(net, decay=0.5)
    with torch.no_grad():
        net.weight.fill_(3.0)
    for _ in range(5000):
        averaged.update(net)
    assert averaged.module.weight.item() == pytest.approx(3.0, abs=1e-3)
