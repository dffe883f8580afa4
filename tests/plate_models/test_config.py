"""Every config.pbtxt says what spec.py and the contract say, in all device profiles."""

import numpy as np
import pytest
import torch
from google.protobuf import text_format
from support import ROOT
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import triton_to_np_dtype

from plate_models import contract
from plate_models.pipeline import Plate
from plate_models.recognition.decoding import Reading
from plate_models.spec import DETECTOR, MODEL_VERSION, RECOGNIZER, RECTIFIER, TENSORS

REPOSITORY = ROOT / "model_repository"
GRAPHS = ("yolo", "stn", "lprnet")
MODELS = ("plate_recognition", *GRAPHS)
PROFILES = {
    "gpu": "config.pbtxt",
    "cpu": "configs/cpu.pbtxt",
    "tensorrt": "configs/tensorrt.pbtxt",
}
BACKENDS = {"gpu": "pytorch", "cpu": "onnxruntime", "tensorrt": "tensorrt"}
FILES = {"openvino": "model.onnx", "tensorrt": "model.plan"}

Config = model_config_pb2.ModelConfig
Shapes = dict[str, tuple[str, list[int]]]


def read_config(model: str, profile: str) -> Config:
    text = (REPOSITORY / model / PROFILES[profile]).read_text(encoding="utf-8")
    return text_format.Parse(text, Config())


def shapes(entries: object) -> Shapes:
    names = model_config_pb2.DataType.Name
    return {entry.name: (names(entry.data_type), list(entry.dims)) for entry in entries}


@pytest.fixture(
    params=[
        (model, profile)
        for model in MODELS
        for profile, file in PROFILES.items()
        if (REPOSITORY / model / file).exists()
    ],
    ids="-".join,
)
def chosen(request: pytest.FixtureRequest) -> tuple[str, str]:
    model, profile = request.param
    return model, profile


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


def test_the_repository_holds_these_models_and_profiles_and_no_others() -> None:
    found = {
        profile: {path.relative_to(REPOSITORY).parts[0] for path in REPOSITORY.glob(f"*/{file}")}
        for profile, file in PROFILES.items()
    }
    # The rectifier samples with AffineGrid, which TensorRT lacks.
    assert found == {"gpu": {*MODELS}, "cpu": {*MODELS}, "tensorrt": {"yolo", "lprnet"}}
    model = REPOSITORY / "plate_recognition" / MODEL_VERSION / "model.py"
    assert len(model.read_text(encoding="utf-8").splitlines()) < 60, "model.py is a shell"


def test_graphs_agree_with_the_spec(chosen: tuple[str, str]) -> None:
    model, profile = chosen
    if model not in GRAPHS:
        pytest.skip("not a graph")
    config = read_config(model, profile)
    batch, inputs, outputs = expected_graph(model)
    if chosen == ("lprnet", "tensorrt"):  # an engine is built for one alphabet
        outputs = {TENSORS.graph_output: ("TYPE_FP32", [RECOGNIZER.classes, RECOGNIZER.steps])}
    assert config.max_batch_size == batch
    assert (shapes(config.input), shapes(config.output)) == (inputs, outputs)
    assert tuple(shapes(config.output)) == contract.GRAPHS[model]
    (group,) = config.instance_group
    kind = "KIND_CPU" if profile == "cpu" else "KIND_GPU"
    assert model_config_pb2.ModelInstanceGroup.Kind.Name(group.kind) == kind
    backend = "openvino" if chosen == ("yolo", "cpu") else BACKENDS[profile]
    assert config.backend == backend
    assert config.default_model_filename == FILES.get(backend, "")
    warmed = []
    for sample in config.model_warmup:
        assert 1 <= sample.batch_size <= batch
        ((name, given),) = sample.inputs.items()
        data_type, dims = inputs[name]
        assert model_config_pb2.DataType.Name(given.data_type) == data_type
        assert all(wanted in (-1, size) for size, wanted in zip(given.dims, dims, strict=True))
        warmed.append(tuple(given.dims))
    if model == "yolo":
        # OpenVINO holds a compiled net for each canvas: those of few photos come when needed.
        canvases = DETECTOR.canvases_hw[: 1 if profile == "cpu" else None]
        assert warmed == [(3, *size) for size in canvases]
    assert warmed


def test_profiles_differ_only_in_how_they_run_and_their_queues_are_bounded(
    chosen: tuple[str, str],
) -> None:
    config, other = read_config(*chosen), read_config(chosen[0], "gpu")
    assert config.input == other.input and config.max_batch_size == other.max_batch_size
    assert shapes(config.output).keys() == shapes(other.output).keys()
    # An empty name is the folder's name, and Triton serves the newest version.
    assert config.name == "" and MODEL_VERSION == "1"
    policy = config.dynamic_batching.default_queue_policy
    assert policy.max_queue_size > 0 and policy.default_timeout_microseconds > 0
    assert policy.allow_timeout_override
    assert policy.timeout_action == model_config_pb2.ModelQueuePolicy.TimeoutAction.REJECT


def plate() -> Plate:
    reading = Reading("A1", 0.5, True, "ru.car", (("A", 0.9), ("1", 0.8)), (("A1", 0.5),))
    crop = np.zeros((*RECTIFIER.shown_hw, 3), np.uint8)
    corner = (0.0, 0.0)
    return Plate((0, 0, 2, 2), (corner, corner, corner, corner), 0.9, 1, reading, crop)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_plate_recognitions_outputs_are_what_the_contract_makes(count: int) -> None:
    config = read_config("plate_recognition", "cpu")
    assert config.output == read_config("plate_recognition", "gpu").output
    declared = shapes(config.output)
    photo = torch.zeros((4, 5, 3), dtype=torch.uint8)
    origin = contract.Origin("sha256:0", "cpu")
    arrays = contract.outputs_of([plate()] * count, photo, origin, set(declared))
    assert set(arrays) == set(declared)
    for name, array in arrays.items():
        data_type, dims = declared[name]
        kind = data_type.removeprefix("TYPE_").replace("STRING", "BYTES")
        assert array.dtype == np.dtype(triton_to_np_dtype(kind)), name
        assert array.shape[0] == (1 if name == contract.MODEL_INFO else count)
        fits = [size in (-1, got) for size, got in zip(dims, array.shape, strict=True)]
        assert all(fits), (name, dims, array.shape)


def test_the_published_inputs_and_outputs_stay() -> None:
    config = read_config("plate_recognition", "cpu")
    assert config.max_batch_size == 0
    assert shapes(config.input) == {
        "input__0": ("TYPE_UINT8", [-1, -1, 3]),
        "image": ("TYPE_UINT8", [-1]),
    }
    assert all(entry.optional for entry in config.input)
    assert (
        shapes(config.output).items()
        >= {
            "coordinates": ("TYPE_FP32", [-1, 4]),
            "texts": ("TYPE_STRING", [-1, 1]),
            "quads": ("TYPE_FP32", [-1, 4, 2]),
            "character_scores": ("TYPE_FP32", [-1, -1]),
            "crops": ("TYPE_UINT8", [-1, *RECTIFIER.shown_hw, 3]),
            "candidates": ("TYPE_STRING", [-1, RECOGNIZER.candidates]),
            "candidate_scores": ("TYPE_FP32", [-1, RECOGNIZER.candidates]),
            "detection_scores": ("TYPE_FP32", [-1]),
            "text_scores": ("TYPE_FP32", [-1]),
            "formats": ("TYPE_STRING", [-1]),
        }.items()
    )
