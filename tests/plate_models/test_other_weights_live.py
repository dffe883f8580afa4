"""Weights of another alphabet, exported and served by a real Triton without a line changed."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support import SAMPLES, read_samples
from tritonclient import grpc as triton_grpc

from plate_models import export, weights
from plate_models.spec import RECOGNIZER, Specs
from plate_models.weights import WeightsFile, contract_of
from plates.serving import EmbeddedTriton

pytestmark = [pytest.mark.live, pytest.mark.control]

PHOTO, PLATES = next(iter(read_samples().items()))
# The same characters in another order, and two more, which no plate here has.
ALPHABET = "QZ" + RECOGNIZER.alphabet[::-1]


def rearranged(folder: Path) -> Path:
    """Our recognizer with its classes in the other alphabet's order."""
    ours = weights.read_file(weights.WEIGHTS_DIR / "recognizer.safetensors")
    specs = Specs(recognizer=replace(RECOGNIZER, alphabet=ALPHABET))
    order = [RECOGNIZER.alphabet.find(char) for char in ALPHABET] + [RECOGNIZER.blank]
    state = dict(ours.state)
    for key in ("head.weight", "head.bias"):
        state[key] = ours.state[key][order]
    state["head.bias"][:2] = -100.0
    file = WeightsFile("recognizer", ours.path, contract_of("recognizer", specs), state)
    weights.save(weights.build_from(file, specs), "recognizer", {}, folder, specs)
    for name in ("detector", "rectifier"):
        shutil.copy(weights.WEIGHTS_DIR / f"{name}.safetensors", folder)
    weights.write_manifest(folder)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedTriton]:
    copy = tmp_path_factory.mktemp("models") / "repository"
    artifacts = shutil.ignore_patterns("model.onnx", "model.pt", "exported.json", "__pycache__")
    shutil.copytree(export.REPOSITORY, copy, ignore=artifacts)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "BATCHES", (1, 4))  # the largest take long; test_export.py
        assert export.export(rearranged(tmp_path_factory.mktemp("weights")), copy)
    torch.set_num_threads(threads)
    exported = json.loads((copy / "plate_recognition" / "1" / "exported.json").read_text())
    assert exported["specs"]["recognizer"]["alphabet"] == ALPHABET
    with EmbeddedTriton(copy) as server:
        yield server


def test_plates_are_read_in_the_other_alphabet(server: EmbeddedTriton) -> None:
    photo = np.frombuffer((SAMPLES / PHOTO).read_bytes(), np.uint8)
    with triton_grpc.InferenceServerClient(server.grpc_url) as client:
        tensor = triton_grpc.InferInput("image", list(photo.shape), "UINT8")
        tensor.set_data_from_numpy(photo)
        result = client.infer("plate_recognition", [tensor], client_timeout=60)
    texts = [text.decode() for text in result.as_numpy("texts").flat]
    assert sorted(filter(None, texts)) == sorted(plate.text for plate in PLATES)
