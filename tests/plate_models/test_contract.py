"""The inputs and outputs of plate_recognition, and that every config.pbtxt agrees with them."""

import json
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from google.protobuf import text_format
from support import ROOT, write_files
from tritonclient.grpc import model_config_pb2

from plate_models import contract, release, spec
from plate_models.formats import grammar_of
from plate_models.pipeline import PipelineConfig, Plate
from plate_models.recognition import ctc
from plate_models.recognition.calibration import UNCALIBRATED
from plate_models.recognition.decoding import Reading

ORIGIN = contract.Origin("sha256:0123", "cpu")
PHOTO = np.zeros((480, 640, 3), np.uint8)
PIXELS = np.zeros((10, 11, 3), np.uint8)
WRONG_SHAPES = [(0, 5, 3), (5, 4, 4), (5, 4)]
EVERYTHING = {*contract.OUTPUTS, spec.TENSORS.log_probs, spec.TENSORS.model_info}
REPOSITORY = ROOT / "model_repository"
# Each net's spec, and the height and width of its inputs.
NETS = {
    "yolo": (spec.DETECTOR, (-1, -1)),
    "stn": (spec.RECTIFIER, spec.RECTIFIER.crop_hw),
    "lprnet": (spec.RECOGNIZER, spec.RECTIFIER.rectified_hw),
}
# The rectifier has no file for TensorRT, which lacks AffineGrid.
CONFIGS = sorted(REPOSITORY.rglob("*.pbtxt"))


def plate(text, candidates, readable=True):
    best = candidates[0][0] if candidates else ""
    seen = (text, 0.75, "ru.car") if readable else ("", 0.75, "unknown")
    reading = Reading(*seen, tuple((char, 0.9) for char in best), candidates)
    quad = ((1.0, 2.0), (3.0, 2.0), (3.0, 4.0), (1.0, 4.0))
    crop = np.full((*spec.RECTIFIER.shown_hw, 3), 7, np.uint8)
    log_probs = np.full((3, 2 + len(text)), -1.0)
    return Plate((1.0, 2.0, 3.0, 4.0), quad, 0.5, 1, reading, crop, log_probs)


def png(pixels):
    return cv2.imencode(".png", pixels)[1].ravel()


def test_pixels_are_bgr_and_a_file_gives_the_same_photo():
    bgr = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    bgr.flags.writeable = False  # as arrays are that are borrowed by dlpack
    from_pixels = contract.photo_of(None, bgr)
    assert (from_pixels == bgr[:, :, ::-1]).all()
    assert from_pixels.flags.c_contiguous
    assert (contract.photo_of(png(bgr), None) == from_pixels).all()


@pytest.mark.parametrize(
    ("file", "pixels", "message"),
    [
        (None, None, "neither came"),
        (png(PIXELS), PIXELS, "both came"),
        *((None, np.zeros(shape, np.uint8), "input__0") for shape in WRONG_SHAPES),
        (None, PIXELS.astype(np.float32), r"UINT8 \[-1,-1,3\], got float32"),
        (None, PIXELS, "11x10 pixels"),
        (np.zeros((2, 2), np.uint8), None, r"image: expected UINT8 \[-1\]"),
    ],
)
def test_invalid_inputs_are_refused_with_the_reason(file, pixels, message):
    with pytest.raises(contract.InvalidInput, match=message):
        contract.photo_of(file, pixels, spec.Limits(max_pixels=109))
    assert contract.photo_of(None, PIXELS, spec.Limits(max_pixels=110)).shape == (10, 11, 3)


def test_outputs_are_padded_to_equal_lengths():
    plates = [
        plate("A1", (("A1", 0.75), ("A7", 0.25))),
        plate("", (), readable=False),
        plate("B840CK197", tuple((f"B840CK19{n}", 0.1) for n in range(7)), readable=False),
    ]
    outputs = contract.outputs_of(plates, PHOTO, ORIGIN, EVERYTHING, {})
    assert outputs["texts"].tolist() == [["A1"], [""], [""]]
    assert outputs["formats"].tolist() == ["ru.car", "unknown", "unknown"]
    assert outputs["candidates"][:2].tolist() == [["A1", "A7", "", "", ""], [""] * 5]
    np.testing.assert_allclose(outputs["candidate_scores"][0], [0.75, 0.25] + [np.nan] * 3)
    np.testing.assert_allclose(outputs["character_scores"][0], [0.9, 0.9] + [np.nan] * 8)
    assert np.isfinite(outputs["character_scores"]).sum(axis=1).tolist() == [2, 0, 9]
    assert outputs["coordinates"].tolist() == [[1, 2, 3, 4]] * 3
    assert outputs["quads"][0].tolist() == [[1, 2], [3, 2], [3, 4], [1, 4]]
    assert (outputs["crops"] == 7).all()
    # A text of more than 10 characters widens the character scores.
    long = plate("A" * 13, (("A" * 13, 0.5),))
    outputs = contract.outputs_of([long, plates[0]], PHOTO, ORIGIN, {"character_scores"}, {})
    assert {name: array.shape for name, array in outputs.items()} == {"character_scores": (2, 13)}
    assert np.isfinite(outputs["character_scores"]).sum() == 15


def test_log_probs_are_padded_with_certain_blanks():
    rows = [ctc.log_softmax(np.random.default_rng(seed).normal(size=(4, 6))) for seed in range(3)]
    plates = [rows[0], ctc.join_rows(*rows[1:]), np.full((4, 6), np.nan)]
    found = [replace(plate("A", ()), log_probs=each) for each in plates]
    stacked = contract.outputs_of(found, PHOTO, ORIGIN, {"log_probs"}, {})["log_probs"]
    assert stacked.shape == (3, 4, 13) and stacked.dtype == np.float32
    assert (stacked[0, :-1, 6:] == -np.inf).all() and (stacked[0, -1, 6:] == 0).all()
    for padded, given in zip(stacked[:2].astype(float), plates, strict=False):
        texts = ctc.beam_decode(given, "ABC")
        assert [text for text, _ in ctc.beam_decode(padded, "ABC")] == [text for text, _ in texts]
    assert np.isnan(stacked[2, :, :6]).all() and not np.isnan(stacked[2, :, 6:]).any()


@pytest.mark.parametrize(
    ("parameters", "countries"),
    [
        ("", ["ru", "sk", "cz"]),
        ('{"other": 1}', ["ru", "sk", "cz"]),
        ('{"countries": null}', ["ru", "sk", "cz"]),
        ('{"countries": " CZ, ru ,cz"}', ["cz", "ru"]),
        ('{"countries": "zz,cz,*"}', ["cz", "ru", "sk"]),
        ('{"countries": "bg,ru"}', ["bg", "ru"]),
        ('{"countries": "nl,bg,*"}', ["bg", "ru", "sk", "cz"]),
    ],
)
def test_a_request_selects_countries_that_the_weights_can_read(parameters, countries):
    alphabet = grammar_of("ru").alphabet  # the weights' own countries may have further letters
    recognizer = replace(spec.RECOGNIZER, alphabet=alphabet, countries=("ru", "sk", "cz"))
    specs = spec.Specs(recognizer=recognizer)
    config = PipelineConfig.of(specs, UNCALIBRATED)
    assert contract.config_for(config, parameters, ()).grammar is grammar_of(*countries)
    for given in ("cz,pl", "", "../ru", 3, ["cz"]):
        with pytest.raises(contract.InvalidInput, match=r"countries: expected some of ru,.*got"):
            contract.config_for(config, json.dumps({"countries": given}), ())


def test_a_request_for_log_probabilities_reads_each_plate_from_one_crop():
    wanted = {spec.TENSORS.log_probs, "texts"}
    assert not contract.config_for(PipelineConfig(), "{}", wanted).still
    # A client that names no outputs gets all of them, and is not one that fuses frames.
    for photo in ({"texts"}, {*contract.OUTPUTS, spec.TENSORS.log_probs}):
        assert contract.config_for(PipelineConfig(), "{}", photo).still


def test_model_info_names_the_weights_the_device_and_the_size(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    manifest = {"weights": "sha256:abc", "specs": {"recognizer": {"alphabet": "ABC"}}}
    manifest["calibration"] = {"temperature": 2}
    write_files(tmp_path, {f"1/{release.MANIFEST}": json.dumps(manifest).encode()})
    args = {"model_repository": str(tmp_path), "model_version": "1"}
    args |= {"model_instance_kind": "GPU", "model_instance_device_id": "3"}
    spent = {"decode": 1.5, "yolo": 20.0}
    origin, wanted = contract.read_origin(args), {spec.TENSORS.model_info}
    (tmp_path / "1" / release.MANIFEST).write_text(json.dumps(manifest)[:-1])  # a full disk
    with pytest.raises(RuntimeError, match=r"/1/exported\.json is damaged .*: run `make export`"):
        contract.read_origin(args)
    (info,) = contract.outputs_of([], PHOTO, origin, wanted, spent)[spec.TENSORS.model_info]
    assert json.loads(info) == {
        "version": "1",
        "weights": "sha256:abc",
        "device": "cuda:3",
        "alphabet": "ABC",
        "image": {"width": 640, "height": 480},
        "timing_ms": spent,
    }
    # With log-probabilities comes what a client needs to decode them.
    wanted |= {spec.TENSORS.log_probs}
    (info,) = contract.outputs_of([], PHOTO, origin, wanted, spent)[spec.TENSORS.model_info]
    decoding = {"spec": {"alphabet": "ABC"}, "calibration": manifest["calibration"]}
    assert json.loads(info)["decoding"] == decoding
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(RuntimeError, match="GPU"):
        contract.device_of(args)
    assert contract.device_of({**args, "model_instance_kind": "CPU"}) == "cpu"


def read_config(path):
    return text_format.Parse(path.read_text("utf-8"), model_config_pb2.ModelConfig())


def shapes(entries):
    names = model_config_pb2.DataType.Name
    return {entry.name: (names(entry.data_type), list(entry.dims)) for entry in entries}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_profiles_have_the_same_inputs_and_outputs_and_bounded_queues(path):
    model = path.relative_to(REPOSITORY).parts[0]
    config, other = read_config(path), read_config(REPOSITORY / model / "config.pbtxt")
    assert config.input == other.input and config.max_batch_size == other.max_batch_size
    outputs = shapes(config.output)
    if path.stem != "tensorrt":  # a TensorRT engine is built for one alphabet
        assert outputs == shapes(other.output)
    assert tuple(outputs) == contract.GRAPHS.get(model, tuple(outputs))
    if model in NETS:
        of_net, sides = NETS[model]
        assert [list(entry.dims) for entry in config.input] == [[3, *sides]]
        assert config.max_batch_size == of_net.max_batch_size
    # Triton takes the folder's name for an empty one, and serves the newest version.
    assert config.name == "" and spec.MODEL_VERSION == "1"
    policy = config.dynamic_batching.default_queue_policy
    assert policy.max_queue_size > 0 and policy.default_timeout_microseconds > 0
    assert policy.allow_timeout_override
    assert policy.timeout_action == model_config_pb2.ModelQueuePolicy.TimeoutAction.REJECT
    warmed = [
        (tuple(entry.dims), sample.batch_size)
        for sample in config.model_warmup
        for entry in sample.inputs.values()
    ]
    if model == "yolo":
        # OpenVINO compiles the net for each canvas: those that few photos need are not warmed up.
        canvases = spec.DETECTOR.canvases_hw[: 1 if path.stem == "cpu" else None]
        assert [*dict.fromkeys(dims for dims, _ in warmed)] == [(3, *size) for size in canvases]
        assert len(warmed) == len(canvases) or path.stem == "config"
    assert warmed or model == "plate_recognition"
    # Profiles that record a CUDA graph for each batch size, which takes seconds, warm up all sizes.
    powers = {2**power for power in range(config.max_batch_size.bit_length())}
    sizes = [{size for each, size in warmed if each == dims} for dims, _ in warmed]
    assert path.stem != "config" or not warmed or powers in sizes


def test_the_published_inputs_and_outputs_are_unchanged():
    config = read_config(REPOSITORY / "plate_recognition" / "config.pbtxt")
    assert config.max_batch_size == 0
    assert shapes(config.input) == {
        "input__0": ("TYPE_UINT8", [-1, -1, 3]),
        "image": ("TYPE_UINT8", [-1]),
    }
    assert all(entry.optional for entry in config.input)
    published = {
        "coordinates": ("TYPE_FP32", [-1, 4]),
        "texts": ("TYPE_STRING", [-1, 1]),
        "quads": ("TYPE_FP32", [-1, 4, 2]),
        "character_scores": ("TYPE_FP32", [-1, -1]),
        "crops": ("TYPE_UINT8", [-1, *spec.RECTIFIER.shown_hw, 3]),
        "candidates": ("TYPE_STRING", [-1, spec.RECOGNIZER.candidates]),
        "candidate_scores": ("TYPE_FP32", [-1, spec.RECOGNIZER.candidates]),
        "detection_scores": ("TYPE_FP32", [-1]),
        "text_scores": ("TYPE_FP32", [-1]),
        "formats": ("TYPE_STRING", [-1]),
        "lines": ("TYPE_INT32", [-1]),
    }
    declared = shapes(config.output)
    assert declared.items() >= published.items() and declared.keys() == EVERYTHING
