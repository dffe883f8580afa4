"""Weights: saved with their contract, refused when something doesn't fit."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from plate_models import weights
from plate_models.nets.lprnet import LPRNet


def saved(folder: Path) -> tuple[LPRNet, Path]:
    net = LPRNet()
    return net, weights.save(net, "recognizer", {"samples_seen": 1}, folder)


def test_saved_weights_come_back_bit_for_bit(tmp_path: Path) -> None:
    net, path = saved(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o644
    loaded = weights.load(LPRNet(), path)
    assert not loaded.training
    for key, value in loaded.state_dict().items():
        assert torch.equal(value, net.state_dict()[key]), key


def test_another_alphabet_is_refused_by_name(tmp_path: Path) -> None:
    net, path = saved(tmp_path)
    contract = weights.contract_of("recognizer") | {"alphabet": "ABC"}
    save_file(net.state_dict(), path, {"contract": json.dumps(contract)})
    with pytest.raises(weights.WeightsError, match=r"alphabet: expected 0123.*found ABC"):
        weights.load(LPRNet(), path)


@pytest.mark.parametrize("content", [b"", b"not safetensors", b"\x00" * 64])
def test_damaged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "recognizer.safetensors"
    path.write_bytes(content)
    with pytest.raises(weights.WeightsError, match=r"recognizer\.safetensors"):
        weights.load(LPRNet(), path)


def test_damaged_metadata_is_refused(tmp_path: Path) -> None:
    net, path = saved(tmp_path)
    save_file(net.state_dict(), path, {"contract": "{not JSON"})
    with pytest.raises(weights.WeightsError, match="metadata is damaged"):
        weights.load(LPRNet(), path)


def test_damaged_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "SHA256SUMS").write_text("only-one-word\n")
    with pytest.raises(weights.WeightsError, match="only-one-word"):
        weights.check_manifest(tmp_path)


def test_missing_tensors_are_named(tmp_path: Path) -> None:
    net, path = saved(tmp_path)
    state = {k: v for k, v in net.state_dict().items() if k != "head.bias"}
    metadata = {"contract": json.dumps(weights.contract_of("recognizer"))}
    save_file(state, path, metadata)
    with pytest.raises(weights.WeightsError, match=r"head\.bias"):
        weights.load(LPRNet(), path)


def test_a_changed_byte_does_not_pass_the_manifest(tmp_path: Path) -> None:
    for name in weights.NAMES:
        (tmp_path / f"{name}.safetensors").write_bytes(name.encode())
    with pytest.raises(weights.WeightsError, match="SHA256SUMS is missing"):
        weights.check_manifest(tmp_path)
    weights.write_manifest(tmp_path)
    before = weights.check_manifest(tmp_path)
    assert before.startswith("sha256:") and len(before) == 71
    (tmp_path / "rectifier.safetensors").write_bytes(b"Rectifier")
    with pytest.raises(weights.WeightsError, match=r"rectifier\.safetensors"):
        weights.check_manifest(tmp_path)
