"""Every config.pbtxt says what spec.py and the contract say, in both device profiles."""

from pathlib import Path

import numpy as np
import pytest
import torch
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import triton_to_np_dtype

from plate_models import contract
from plate_models.pipeline import Plate
from plate_models.recognition.decoding import Reading
from plate_models.spec import DETECTOR, MODEL_VERSION, RECOGNIZER, RECTIFIER, TENSORS

REPOSITORY = Path(__file__).resolve().parents[2] / "model_repository"
GRAPHS = ("yolo", "stn", "lprnet")
MODELS = ("plate_recognition", *GRAPHS)
PROFILES = {"gpu": "config.pbtxt", "cpu": "configs/cpu.pbtxt"}

Config = model_config_pb2.ModelConfig
Shapes = dict[str, tuple[str, list[int]]]


def read_config(model: str, profile: str) -> Config:
    text = (REPOSITORY / model / PROFILES[profile]).read_text(encoding="utf-8")
    return text_format.Parse(text, Config())


def shapes(entries: object) -> Shapes:
    names = model_config_pb2.DataType.Name
    return {entry.name: (names(entry.data_type), list(entry.dims)) for entry in entries}


def every_config() -> list[pytest.param]:
    return [pytest.param(m, p, id=f"{m}-{p}") for m in MODELS for p in PROFILES]


def expected_graph(model: str) -> tuple[int, Shapes, Shapes]:
    """Batch size, inputs and outputs as spec.py has them."""
    name, output, theta = TENSORS.graph_input, TENSORS.graph_output, TENSORS.theta
    crop, rectified = list(RECTIFIER.crop_hw), list(RECTIFIER.rectified_hw)
    return {
        "yolo": (
            DETECTOR.max_batch_size,
            {name: ("TYPE_UINT8", [3, -1, -1])},
            {output: ("TYPE_FP32", [DETECTOR.max_candidates, 6])},
        ),
        "stn": (
            RECTIFIER.max_batch_size,
            {name: ("TYPE_FP32", [3, *crop])},
            {output: ("TYPE_FP32", [3, *rectified]), theta: ("TYPE_FP32", [2, 3])},
        ),
        "lprnet": (
            RECOGNIZER.max_batch_size,
            {name: ("TYPE_FP32", [3, *rectified])},
            {output: ("TYPE_FP32", [-1, RECOGNIZER.steps])},  # any alphabet
        ),
    }[model]


def test_the_repository_holds_these_models_and_no_others() -> None:
    assert sorted(path.parent.name for path in REPOSITORY.glob("*/config.pbtxt")) == sorted(MODELS)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("model", GRAPHS)
def test_graphs_agree_with_the_spec(model: str, profile: str) -> None:
    config = read_config(model, profile)
    batch, inputs, outputs = expected_graph(model)
    assert config.max_batch_size == batch
    assert shapes(config.input) == inputs
    assert shapes(config.output) == outputs
    assert tuple(shapes(config.output)) == contract.GRAPHS[model]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("model", GRAPHS)
def test_graphs_run_on_the_profiles_device(model: str, profile: str) -> None:
    config = read_config(model, profile)
    (group,) = config.instance_group
    kind = model_config_pb2.ModelInstanceGroup.Kind.Name(group.kind)
    on_cpu = "openvino" if model == "yolo" else "onnxruntime"
    expected = {"gpu": ("pytorch", "KIND_GPU"), "cpu": (on_cpu, "KIND_CPU")}
    assert (config.backend, kind) == expected[profile]
    # OpenVINO's own backend looks for model.xml.
    assert config.default_model_filename == ("model.onnx" if config.backend == "openvino" else "")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("model", GRAPHS)
def test_warm_up_inputs_are_real_inputs(model: str, profile: str) -> None:
    config = read_config(model, profile)
    inputs = shapes(config.input)
    warmed = []
    for sample in config.model_warmup:
        assert 1 <= sample.batch_size <= config.max_batch_size
        (name,) = sample.inputs
        given = sample.inputs[name]
        data_type, dims = inputs[name]
        assert model_config_pb2.DataType.Name(given.data_type) == data_type
        pairs = zip(given.dims, dims, strict=True)
        assert all(expected in (-1, size) for size, expected in pairs)
        warmed.append(tuple(given.dims))
    assert warmed
    if model == "yolo":
        # OpenVINO holds a compiled net for each canvas: those of few photos come when needed.
        expected = DETECTOR.canvases_hw[: 1 if profile == "cpu" else None]
        assert warmed == [(3, *size) for size in expected]


@pytest.mark.parametrize(("model", "profile"), every_config())
def test_queues_are_bounded(model: str, profile: str) -> None:
    policy = read_config(model, profile).dynamic_batching.default_queue_policy
    assert policy.max_queue_size > 0
    assert policy.default_timeout_microseconds > 0
    assert policy.allow_timeout_override
    assert policy.timeout_action == model_config_pb2.ModelQueuePolicy.TimeoutAction.REJECT


@pytest.mark.parametrize(("model", "profile"), every_config())
def test_profiles_differ_only_in_how_they_run(model: str, profile: str) -> None:
    config, other = read_config(model, profile), read_config(model, "gpu")
    for field in ("input", "output", "max_batch_size"):
        assert getattr(config, field) == getattr(other, field)
    # An empty name is the folder's name, and Triton serves the newest version.
    assert config.name == "" and (REPOSITORY / model).is_dir()
    assert MODEL_VERSION == "1"


@pytest.mark.parametrize("profile", PROFILES)
def test_plate_recognition_has_the_published_inputs(profile: str) -> None:
    config = read_config("plate_recognition", profile)
    assert config.max_batch_size == 0
    assert shapes(config.input) == {
        "input__0": ("TYPE_UINT8", [-1, -1, 3]),
        "image": ("TYPE_UINT8", [-1]),
    }
    assert all(entry.optional for entry in config.input)


def plate() -> Plate:
    reading = Reading("A1", 0.5, True, "ru.car", (("A", 0.9), ("1", 0.8)), (("A1", 0.5),))
    crop = np.zeros((*RECTIFIER.shown_hw, 3), np.uint8)
    corner = (0.0, 0.0)
    return Plate((0, 0, 2, 2), (corner, corner, corner, corner), 0.9, 1, reading, crop)


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("profile", PROFILES)
def test_plate_recognitions_outputs_are_what_the_contract_makes(profile: str, count: int) -> None:
    declared = shapes(read_config("plate_recognition", profile).output)
    origin = contract.Origin("sha256:0", "cpu")
    photo = torch.zeros((4, 5, 3), dtype=torch.uint8)
    arrays = contract.outputs_of([plate()] * count, photo, origin, set(declared))
    assert set(arrays) == set(declared)
    for name, array in arrays.items():
        data_type, dims = declared[name]
        kind = data_type.removeprefix("TYPE_").replace("STRING", "BYTES")
        assert array.dtype == np.dtype(triton_to_np_dtype(kind)), name
        rows = 1 if name == contract.MODEL_INFO else count
        assert array.shape[0] == rows
        fits = [size in (-1, got) for size, got in zip(dims, array.shape, strict=True)]
        assert all(fits), (name, dims, array.shape)


def test_the_published_outputs_stay() -> None:
    declared = shapes(read_config("plate_recognition", "cpu").output)
    assert declared["coordinates"] == ("TYPE_FP32", [-1, 4])
    assert declared["texts"] == ("TYPE_STRING", [-1, 1])
    assert declared["quads"] == ("TYPE_FP32", [-1, 4, 2])
    assert declared["character_scores"] == ("TYPE_FP32", [-1, -1])
    assert declared["crops"] == ("TYPE_UINT8", [-1, *RECTIFIER.shown_hw, 3])
    assert declared["candidates"] == ("TYPE_STRING", [-1, RECOGNIZER.candidates])
    assert declared["candidate_scores"] == ("TYPE_FP32", [-1, RECOGNIZER.candidates])
    for name in ("detection_scores", "text_scores"):
        assert declared[name] == ("TYPE_FP32", [-1])
    assert declared["formats"] == ("TYPE_STRING", [-1])


def test_the_shell_stays_a_shell() -> None:
    model = REPOSITORY / "plate_recognition" / MODEL_VERSION / "model.py"
    assert len(model.read_text(encoding="utf-8").splitlines()) < 60
