"""Graphs on their engines, and how many threads they get."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from plate_models import contract, cores
from plate_models.engines import nets, onnxruntime_engine, openvino_engine
from plate_models.engines.nets import EngineError, load_nets
from plate_models.export import REPOSITORY


@pytest.fixture(scope="module")
def doubling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of any batch and width: output 0 is twice the input, output 1 its square."""
    path = tmp_path_factory.mktemp("graph") / "model.onnx"
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("Mul", ["x", "x"], ["square"]),
    ]
    values = [helper.make_tensor_value_info(n, kind, ["b", 2, "w"]) for n in ("twice", "square")]
    entry = helper.make_tensor_value_info("x", kind, ["b", 2, "w"])
    graph = helper.make_graph(nodes, "doubling", [entry], values)
    opset = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


ENGINES = [onnxruntime_engine, openvino_engine]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__.split(".")[-1])
@pytest.mark.parametrize("shape", [(1, 2, 3), (5, 2, 3), (2, 2, 7)])
def test_outputs_come_in_the_order_asked_for(engine, doubling, shape):
    run = engine.load(doubling, ["square", "twice"], {})
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    square, twice = run((x,))
    np.testing.assert_allclose(square, x * x, rtol=1e-6)
    np.testing.assert_allclose(twice, x + x, rtol=1e-6)


def test_samples_side_by_side_keep_their_order(doubling, monkeypatch):
    monkeypatch.setenv(cores.THREADS, "8")  # two at a time
    run = openvino_engine.load(doubling, ["twice"], {})
    x = np.arange(5 * 2 * 3, dtype=np.float32).reshape(5, 2, 3)
    np.testing.assert_array_equal(run((x,))[0], 2 * x)
    np.testing.assert_array_equal(run((x[::-1].copy(),))[0], 2 * x[::-1])


def test_an_answer_outlives_the_next_request(doubling):
    run = openvino_engine.load(doubling, ["twice"], {})
    first = run((np.ones((1, 2, 3), np.float32),))[0]
    run((np.zeros((1, 2, 3), np.float32),))
    assert (first == 2).all()


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__.split(".")[-1])
def test_a_wrong_shape_is_an_error_and_the_next_request_is_answered(engine, doubling):
    run = engine.load(doubling, ["twice"], {})
    with pytest.raises(Exception, match=r"(?i)shape|dimension|rank|compatible"):
        run((np.ones((1, 3, 3), np.float32),))
    assert run((np.ones((1, 2, 3), np.float32),))[0].shape == (1, 2, 3)


@pytest.mark.parametrize(("configured", "expected"), [("2", 2), ("0", 8), ("", 8), (None, 8)])
def test_a_configuration_says_how_many_threads(configured, expected, monkeypatch):
    monkeypatch.setattr(cores, "usable_cores", lambda: 8)
    name = "intra_op_thread_count"
    options = onnxruntime_engine.options_for({} if configured is None else {name: configured})
    assert options.intra_op_num_threads == expected
    name = "INFERENCE_NUM_THREADS"
    settings = openvino_engine.settings_for({} if configured is None else {name: configured})
    assert settings["INFERENCE_NUM_THREADS"] == expected


@pytest.mark.parametrize("capable", [True, False])
def test_bfloat16_is_computed_where_asked_for_and_possible(capable, monkeypatch):
    monkeypatch.setattr(openvino_engine, "computes_in_bf16", lambda: capable)
    for hint, wanted in (("yes", True), ("YES", True), ("no", False), (None, False)):
        settings = openvino_engine.settings_for({} if hint is None else {"HINT_BF16": hint})
        expected = "bf16" if wanted and capable else "f32"
        assert settings["INFERENCE_PRECISION_HINT"] == expected


def test_the_detector_alone_asks_for_bfloat16():
    profiles = {name: REPOSITORY / name / "configs" / "cpu.pbtxt" for name in contract.GRAPHS}
    asking = {name for name, path in profiles.items() if "HINT_BF16" in path.read_text()}
    assert asking == {"yolo"}


def test_a_profile_for_no_engine_is_refused(tmp_path):
    (tmp_path / "yolo" / "configs").mkdir(parents=True)
    (tmp_path / "yolo" / "configs" / "cpu.pbtxt").write_text('backend: "pytorch"\n')
    with pytest.raises(EngineError, match=r"yolo: .*openvino or onnxruntime, got pytorch"):
        nets.load_served(tmp_path / "yolo")


def test_openvino_reports_to_nobody():
    code = "import sys, plate_models.engines.openvino_engine; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "openvino" in loaded
    assert not [name for name in loaded if "telemetry" in name]


def test_stubs_of_graphs_hold_no_torch():
    code = (
        "import sys, plate_models.engines.openvino_engine, plate_models.engines.onnxruntime_engine"
        "; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize(
    ("engine", "device", "told"),
    [
        ("tensorflow", "cpu", "engine: expected one of served, torch, got 'tensorflow'"),
        ("torch", "gpu", "device: expected cpu or cuda:0, got 'gpu'"),
        ("torch", "meta", "device: expected cpu or cuda:0, got 'meta'"),
        ("torch", "cuda:99", "device: cuda:99 is not there"),
    ],
)
def test_what_is_not_there_is_named(engine, device, told):
    with pytest.raises(EngineError, match=told):
        load_nets(engine, device)


def test_the_cpu_profile_does_not_run_on_a_gpu():
    with pytest.raises(EngineError, match=r'cuda:0 needs engine "torch"'):
        load_nets("served", "cuda:0")


def test_a_quota_counts_as_cores(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    assert cores.usable_cores(tmp_path) == 64
    for quota, expected in (("max 100000", 64), ("250000 100000", 2), ("50000 100000", 1)):
        (tmp_path / "cpu.max").write_text(quota + "\n")
        assert cores.usable_cores(tmp_path) == expected


@pytest.mark.parametrize(
    ("configured", "given", "expected"),
    [(0, "", 8), (2, "", 2), (16, "", 8), (0, "3", 3), (2, "1", 1), (16, "12", 12)],
)
def test_threads_never_exceed_the_cores_unless_asked(monkeypatch, configured, given, expected):
    monkeypatch.setattr(cores, "usable_cores", lambda: 8)
    assert cores.choose_threads(configured, {cores.THREADS: given}) == expected


@pytest.mark.parametrize("given", ["0", "-1", "two", "1.5"])
def test_threads_that_make_no_sense_are_refused(given):
    with pytest.raises(ValueError, match=f"PLATES_THREADS: expected a whole number.*{given}"):
        cores.choose_threads(0, {cores.THREADS: given})


def test_the_served_graphs_take_and_give_tensors():
    plates = torch.rand(3, 3, 24, 94, generator=torch.Generator().manual_seed(0)) * 2 - 1
    recognize = load_nets("served").recognize
    logits = recognize(plates)
    torch.testing.assert_close(logits[1:2], recognize(plates[1:2]), rtol=1e-3, atol=1e-3)
    with torch.inference_mode():
        expected = load_nets("torch").recognize(plates)
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)
