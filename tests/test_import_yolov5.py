"""Published YOLOv5 checkpoints become weights that compute the same."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from published_yolov5 import SPEC, TREE, candidates, heads, make_net, write_checkpoint
from safetensors.torch import save_file
from torch import nn

from plate_models import weights
from plate_models.graphs import compare_candidates
from plate_models.importing import CheckpointError, import_yolov5
from plate_models.nets.yolov5 import YOLOv5
from plates.cli import main as cli

State = dict[str, torch.Tensor]


def loaded(detector: Path) -> weights.Modules:
    """The detector beside our released recognizer and rectifier."""
    for name in ("recognizer", "rectifier"):
        shutil.copy(weights.WEIGHTS_DIR / f"{name}.safetensors", detector.parent)
    weights.write_manifest(detector.parent)
    return weights.load_modules(detector.parent)


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda model: {"model": model, "ema": None}, id="model"),
        pytest.param(lambda model: {"model": nn.Linear(2, 2), "ema": model}, id="average"),
        pytest.param(lambda model: model, id="module alone"),
        pytest.param(lambda model: {"state_dict": model.state_dict()}, id="state dict"),
    ],
)
def test_a_published_checkpoint_computes_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrap: Callable[[nn.Module], object]
) -> None:
    net = make_net()
    path = write_checkpoint(tmp_path / "best.pt", net, monkeypatch, wrap)
    modules = loaded(import_yolov5(path, tmp_path / "mine"))
    assert TREE not in sys.modules
    found = modules.specs.detector
    assert found.classes == ("one_line",)
    assert (found.width_multiple, round(found.depth_multiple, 2)) == (0.125, 0.33)
    anchors = torch.tensor(found.anchors_wh)
    torch.testing.assert_close(anchors, torch.tensor(SPEC.anchors_wh), rtol=1e-3, atol=0)
    assert modules.specs.recognizer == weights.DEFAULTS.recognizer
    expected = candidates(net, SPEC)
    assert compare_candidates((expected,), (candidates(modules.detect.net, found),)) < 1
    assert expected[0, 0, 4] > 0


def names_without_model(state: State) -> State:
    return {key.removeprefix("model."): value for key, value in state.items()}


def names_of_a_parallel_module(state: State) -> State:
    return {f"module.model.{key}": value for key, value in state.items()}


@pytest.mark.parametrize("rename", [dict, names_without_model, names_of_a_parallel_module])
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_state_dicts_under_any_prefix(
    tmp_path: Path, rename: Callable[[State], State], suffix: str
) -> None:
    net = make_net()
    path = tmp_path / f"state{suffix}"
    save = torch.save if suffix == ".pt" else save_file
    save(rename(net.state_dict()), path)
    modules = loaded(import_yolov5(path, tmp_path / "mine"))
    imported = candidates(modules.detect.net, modules.specs.detector)
    assert compare_candidates((candidates(net, SPEC),), (imported,)) < 1


def fused(net: YOLOv5) -> State:
    """Fold every batch norm into the convolution before it, by its formula."""
    state = {k: v for k, v in net.state_dict().items() if ".bn." not in k}
    for name, module in net.named_modules():
        if hasattr(module, "bn"):
            norm = module.bn
            factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            state[f"{name}.conv.weight"] = module.conv.weight * factor.view(-1, 1, 1, 1)
            state[f"{name}.conv.bias"] = norm.bias - norm.running_mean * factor
    return {key: value.detach() for key, value in state.items()}


def test_fused_checkpoints_compute_the_same(tmp_path: Path) -> None:
    net = make_net()
    torch.save(fused(net), tmp_path / "fused.pt")
    modules = loaded(import_yolov5(tmp_path / "fused.pt", tmp_path / "mine"))
    torch.testing.assert_close(heads(modules.detect.net), heads(net), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("width", "depth"), [(0.25, 0.33), (0.5, 0.33), (0.75, 0.67), (1.0, 1.0), (1.25, 1.33)]
)
def test_every_size_is_recognized(width: float, depth: float) -> None:
    from plate_models.importing.yolov5 import _spec_of

    blocks = {key: torch.ones(1) for key in (f"model.6.m.{k}.x" for k in range(round(9 * depth)))}
    shapes = {
        "model.0.conv.weight": (64, 3, 6, 6),
        "model.9.cv2.conv.weight": (int(1024 * width), 1, 1, 1),
        "model.24.anchors": (3, 3, 2),
        "model.24.m.0.weight": (21, 1, 1, 1),
    }
    state = blocks | {key: torch.ones(shape) for key, shape in shapes.items()}
    found = _spec_of(state, Path("net.pt"))
    assert (found.width_multiple, len(found.classes)) == (width, 2)
    # What the depth decides is how often three, six and nine blocks are repeated.
    depths = [[max(round(n * d), 1) for n in (3, 6, 9)] for d in (depth, found.depth_multiple)]
    assert depths[0] == depths[1]


def without_a_tensor(state: State) -> None:
    del state["model.13.cv1.conv.weight"]


def with_another_tensor(state: State) -> None:
    state["model.25.extra"] = torch.zeros(1)


def with_a_wider_block(state: State) -> None:
    state["model.4.cv1.conv.weight"] = torch.zeros(9, 32, 1, 1)


def with_eighty_classes(state: State) -> None:
    for level in range(3):
        key = f"model.24.m.{level}.weight"
        state[key] = torch.zeros(255, *state[key].shape[1:])


def with_four_levels(state: State) -> None:
    state["model.24.anchors"] = torch.ones(4, 3, 2)


def with_the_stem_of_yolov8(state: State) -> None:
    state["model.0.conv.weight"] = torch.zeros(8, 3, 3, 3)


def with_the_stem_of_yolov5_before_v6(state: State) -> None:
    state["model.0.conv.conv.weight"] = state.pop("model.0.conv.weight")


def without_a_head(state: State) -> None:
    for key in [key for key in state if key.startswith("model.24")]:
        del state[key]


def with_a_broken_number(state: State) -> None:
    state["model.1.conv.weight"][0, 0, 0, 0] = float("nan")


def with_integers(state: State) -> None:
    state["model.1.bn.bias"] = state["model.1.bn.bias"].long()


def with_empty_anchors(state: State) -> None:
    state["model.24.anchors"] = torch.zeros(3, 0, 2)


def with_flat_anchors(state: State) -> None:
    state["model.24.anchors"] = torch.zeros(3, 3, 2)


def with_a_head_without_axes(state: State) -> None:
    state["model.24.m.0.weight"] = torch.tensor(1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_a_head_without_axes, r"model\.24\.m\.0\.weight: expected axes"),
        (without_a_tensor, r"model\.13\.cv1\.conv\.weight: expected .* found no such tensor"),
        (with_another_tensor, r"model\.25\.extra: expected no such tensor"),
        (with_a_wider_block, r"model\.4\.cv1\.conv\.weight: expected \(16, 32, 1, 1\)"),
        (with_eighty_classes, r"model\.24\.m\.0\.weight: expected 18 or 21 rows"),
        (with_four_levels, r"model\.24\.anchors: expected .* found \(4, 3, 2\)"),
        (with_the_stem_of_yolov8, r"model\.0\.conv\.weight: .* found \(8, 3, 3, 3\)"),
        (with_the_stem_of_yolov5_before_v6, r"expected a stem model\.0\.conv\.weight"),
        (without_a_head, r"model\.24\.m\.0\.weight: .* found no such tensor"),
        (with_a_broken_number, r"model\.1\.conv\.weight: expected finite values"),
        (with_integers, r"model\.1\.bn\.bias: expected floats"),
        (with_empty_anchors, r"model\.24\.(anchors|m\.0\.weight): expected"),
        (with_flat_anchors, "anchors_wh: expected positive sizes"),
    ],
)
def test_other_layouts_are_refused_by_the_first_tensor(
    tmp_path: Path, change: Callable[[State], None], message: str
) -> None:
    state = make_net().state_dict()
    change(state)
    torch.save(state, tmp_path / "other.pt")
    with pytest.raises(weights.WeightsError, match=rf"other\.pt: .*{message}"):
        import_yolov5(tmp_path / "other.pt", tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_the_legacy_format_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    torch.save(make_net().state_dict(), path, _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError, match=r"old\.pt: written by torch before 1\.6.*save"):
        import_yolov5(path, tmp_path)


def test_the_command_says_what_it_wrote_and_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(make_net().state_dict(), tmp_path / "state.pt")
    words = ["import", "yolov5", str(tmp_path / "state.pt"), "--out", str(tmp_path / "mine")]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path / 'mine' / 'detector.safetensors'}\n" in said and "plates weights" in said
    assert cli.main([*words[:2], str(tmp_path / "none.pt"), *words[3:]]) == 1
    assert "none.pt: can't be read" in capsys.readouterr().err
