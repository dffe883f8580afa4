"""YOLOv5 and LPRNet, graphs on OpenVINO, and how many threads they use."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from torch.nn import functional as F

from plate_models import cores, export, release, weights
from plate_models.detection import letterbox
from plate_models.engines import openvino_engine
from plate_models.engines.nets import EngineError, load_nets
from plate_models.images import decode
from plate_models.nets.lprnet import LPRNet
from plate_models.nets.yolov5 import YOLOv5
from plate_models.spec import DETECTOR, RECTIFIER


@pytest.fixture(scope="module")
def doubling(tmp_path_factory):
    """An ONNX graph for any batch size and width; its outputs are 2x and the square of x."""
    path = tmp_path_factory.mktemp("graph") / "model.onnx"
    text = """
        <ir_version: 9, opset_import: ["" : 20]>
        doubling (float[b, 2, w] x) => (float[b, 2, w] twice, float[b, 2, w] square) {
            twice = Add(x, x)
            square = Mul(x, x)
        }
    """
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_outputs_are_returned_in_the_requested_order(doubling, tmp_path):
    (tmp_path / "model.onnx").write_bytes(doubling.read_bytes())
    run = openvino_engine.load(tmp_path / "model.onnx", ["square", "twice"], {})
    (tmp_path / "model.onnx").unlink()  # The file may be deleted before a new shape is compiled.
    for shape in ((1, 2, 3), (5, 2, 3), (2, 2, 7)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        square, twice = run(x)
        np.testing.assert_allclose(square, x * x, rtol=1e-6)
        np.testing.assert_allclose(twice, x + x, rtol=1e-6)
        with pytest.raises(Exception, match=r"(?i)shape|dimension|rank|compatible"):
            run(np.zeros((1, 3, 3), np.float32))  # and the next request is answered


def test_parallel_samples_keep_their_order_and_answers_are_not_overwritten(doubling, monkeypatch):
    monkeypatch.setenv(cores.THREADS, "8")  # two samples at a time
    run = openvino_engine.load(doubling, ["twice"], {})
    x = np.arange(5 * 2 * 3, dtype=np.float32).reshape(5, 2, 3)
    first, second = run(x)[0], run(x[::-1].copy())[0]
    np.testing.assert_array_equal(first, 2 * x)
    np.testing.assert_array_equal(second, 2 * x[::-1])
    with ThreadPoolExecutor(4) as pool:
        for (again,) in pool.map(run, [x] * 200):
            np.testing.assert_array_equal(again, 2 * x)


def test_a_cgroups_quota_limits_the_usable_cores(tmp_path, monkeypatch):
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
    monkeypatch.setenv(cores.THREADS, given)
    assert cores.choose_threads(configured) == expected
    for invalid in ("0", "-1", "two", "1.5"):
        monkeypatch.setenv(cores.THREADS, invalid)
        with pytest.raises(ValueError, match=f"PLATES_THREADS: .*whole number.*{invalid}"):
            cores.choose_threads()


def test_nets_that_were_loaded_before_a_fork_raise_an_error_in_the_child():
    nets, photo = load_nets(), np.zeros((9, 9, 3), np.uint8)
    child = os.fork()
    if not child:
        try:
            nets.read(photo)
        except EngineError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_ctrl_c_still_works_after_the_nets_are_garbage_collected(doubling):
    code = f"""
import gc, signal, sys
from pathlib import Path
import numpy as np
from plate_models.engines import openvino_engine
runs = [openvino_engine.load(Path({str(doubling)!r}), ["twice"], {{}}) for _ in range(3)]
for run in runs:
    run(np.zeros((1, 2, 3), np.float32))
del run
while runs:
    del runs[0]
gc.collect()
signal.signal(signal.SIGINT, signal.default_int_handler)  # Background jobs ignore SIGINT.
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    sys.exit(7)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 7


@pytest.fixture(scope="module")
def graph():
    return weights.load_modules().detect


def scenes(count, *canvas_hw):
    """(N, 3, H, W) uint8 canvases with the golden photo, each darker than the one before."""
    photo = decode(release.DEFAULT_GOLDEN.read_bytes())
    canvases = [letterbox(photo // (1 + n), canvas_hw)[0] for n in range(count)]
    return torch.from_numpy(np.stack(canvases))


def test_candidates_are_the_cells_whose_score_no_neighbour_exceeds(graph):
    canvases = scenes(1, 96, 128)
    heads = graph.net(canvases.float() / 255)
    assert [tuple(head.shape[2:]) for head in heads] == [(12, 16, 7), (6, 8, 7), (3, 4, 7)]
    expected = []
    for level in heads:
        every = level[0].sigmoid()
        scores = (every[..., 4] * every[..., 5:].amax(dim=-1)).numpy()
        for a, y, x in np.ndindex(scores.shape):
            around = scores[:, max(0, y - 1) : y + 2, max(0, x - 1) : x + 2]
            expected.append(scores[a, y, x] if scores[a, y, x] >= around.max() else 0.0)
    best = torch.tensor(sorted(expected, reverse=True)[: DETECTOR.max_candidates])
    (found,) = graph(canvases)
    torch.testing.assert_close(found[:, 4], best)
    assert set(found[:, 5].unique().tolist()) <= {0.0, 1.0}
    assert (found[:, 2:4] >= found[:, :2]).all()
    assert 0 < (best > 0).sum() < DETECTOR.max_candidates  # unused rows score 0


@pytest.mark.parametrize(("activation", "function"), [("silu", F.silu), ("hardswish", F.hardswish)])
def test_convolutions_are_followed_by_the_activation_of_the_spec(activation, function):
    stem = YOLOv5(replace(DETECTOR, activation=activation)).eval().model[0]
    image = torch.rand(1, 3, 32, 32)
    torch.testing.assert_close(stem(image), function(stem.bn(stem.conv(image))))


def test_a_canvas_does_not_depend_on_its_neighbours(graph):
    canvases = scenes(3, 96, 128)
    alone = torch.cat([graph(canvas[None]) for canvas in canvases])
    # Cells with equal scores come in any order, which the comparison ignores.
    assert export.compare_candidates((alone,), (graph(canvases),)) < 1


def test_a_plate_is_read_the_same_alone_and_in_a_batch():
    torch.manual_seed(0)
    net, plates = LPRNet().eval(), torch.randn(4, 3, *RECTIFIER.rectified_hw)
    plates[1] *= 40  # so bright that it would change any mean over the batch
    together = net(plates)
    alone = torch.cat([net(plate[None]) for plate in plates])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
