"""Released weights to what Triton serves: ``weights/`` to ``model_repository/*/1/*``.

Each net becomes TorchScript (GPU profile) and ONNX (CPU profile) from one module, and
nothing is written unless both compute what the module computes.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import Tensor, nn

from plate_models import spec, weights
from plate_models.contract import GRAPHS, MANIFEST

REPOSITORY = Path(__file__).resolve().parent.parent / "model_repository"
VERSION_FOLDER = spec.MODEL_VERSION
OPSET = 20  # the first with AffineGrid
_SOURCES = ("contract.py", "export.py", "spec.py", "weights.py", "nets")

Outputs = tuple[Tensor, ...]
Net = Callable[[Tensor], Any]


class ExportError(Exception):
    """An exported artifact does not compute what its module computes."""


@dataclass(frozen=True)
class Graph:
    """How one net is exported.

    Attributes:
        name: Of the Triton model.
        shapes: Input shapes (C, H, W) it is compared on; the first one is traced.
        dtype: uint8 in [0, 255], or float32 normalised.
        dynamic: Names of the input's axes that may vary, beside the batch axis.
        compare: Largest difference between two lists of outputs, as a share of what is
            allowed: agreement is below 1.
    """

    name: str
    shapes: tuple[tuple[int, int, int], ...]
    dtype: torch.dtype
    dynamic: dict[int, str]
    compare: Callable[[Outputs, Outputs], float]

    def example(self, batch: int, shape: tuple[int, int, int]) -> Tensor:
        """Make a reproducible input (batch, C, H, W)."""
        generator = torch.Generator().manual_seed(batch)
        if self.dtype == torch.uint8:
            return torch.randint(0, 256, (batch, *shape), dtype=torch.uint8, generator=generator)
        return torch.rand((batch, *shape), generator=generator) * 2 - 1


def compare_values(expected: Outputs, found: Outputs, tolerance: float = 1e-3) -> float:
    """Compare outputs element by element; see :class:`Graph`."""
    pairs = zip(expected, found, strict=True)
    # torch's max, not Python's: it passes NaN on.
    return float(torch.stack([(one - other).abs().max() for one, other in pairs]).max() / tolerance)


def compare_candidates(expected: Outputs, found: Outputs) -> float:
    """Compare candidate boxes whatever their order: equal scores may change places.

    Args:
        expected: One tensor (N, 300, 6): x0, y0, x1, y1 in pixels, score, class.
        found: The same, from the other implementation.

    Returns:
        See :class:`Graph`; 0.05 pixels and 0.001 of the score are allowed.
    """
    allowed = torch.tensor([0.05, 0.05, 0.05, 0.05, 1e-3, 0.5])
    differences = [(expected[0][..., 4] - found[0][..., 4]).abs().max() / allowed[4]]
    for rows, others in zip(expected[0], found[0], strict=True):
        # At the cut it is chance who of two equals gets in.
        kept = rows[rows[:, 4] > rows[-1, 4] + allowed[4]]
        distances = ((kept[:, None] - others[None]).abs() / allowed).amax(dim=2)
        differences += list(distances.amin(dim=1))
    return float(torch.stack(differences).max())


_CANVASES = tuple((3, *size) for size in spec.DETECTOR.canvases_hw)
_PLATES = (3, *spec.RECTIFIER.rectified_hw)
EXPORTED = (
    Graph("yolo", _CANVASES, torch.uint8, {2: "height", 3: "width"}, compare_candidates),
    Graph("stn", ((3, *spec.RECTIFIER.crop_hw),), torch.float32, {}, compare_values),
    Graph("lprnet", (_PLATES,), torch.float32, {}, compare_values),
)


def export(
    weights_folder: Path = weights.WEIGHTS_DIR, repository: Path = REPOSITORY
) -> list[Path] | None:
    """Export every net, unless the repository holds the same export already.

    Args:
        weights_folder: Holds the weight files and their manifest.
        repository: Triton's model repository.

    Returns:
        The artifacts written, or None if they were up to date.

    Raises:
        WeightsError: The weights are missing, damaged or don't fit the nets.
        ExportError: An artifact disagrees with its module; nothing was replaced.
    """
    sources = {
        "weights": weights.check_manifest(weights_folder),
        "code": _hash_code(),
        "torch": torch.__version__,
    }
    manifest = repository / "plate_recognition" / VERSION_FOLDER / MANIFEST
    if _is_current(manifest, sources, repository):
        return None
    modules = weights.load_modules(weights_folder)
    nets = (modules.detect, modules.rectify, modules.recognize)
    staged: dict[Path, Path] = {}
    try:
        for graph, net in zip(EXPORTED, nets, strict=True):
            staged |= export_graph(graph, net, repository / graph.name / VERSION_FOLDER)
        artifacts = {str(p.relative_to(repository)): _sha256(t) for p, t in staged.items()}
        for path, temporary in staged.items():
            temporary.replace(path)
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)
    _write(manifest, json.dumps({**sources, "artifacts": artifacts}, indent=2) + "\n")
    return list(staged)


def export_graph(graph: Graph, net: nn.Module, folder: Path) -> dict[Path, Path]:
    """Write one net as TorchScript and ONNX under temporary names and check both.

    Args:
        graph: How it is exported.
        net: The module, in evaluation mode, on the CPU.
        folder: The model's version folder.

    Returns:
        Final path to temporary path of each artifact.

    Raises:
        ExportError: An artifact disagrees with the module.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script, onnx = folder / "model.pt", folder / "model.onnx"
    staged = {path: path.with_name(f".{os.getpid()}.{path.name}") for path in (script, onnx)}
    try:
        _write_torchscript(graph, net, staged[script])
        _write_onnx(graph, net, staged[onnx])
        artifacts = {
            "TorchScript": load_torchscript(staged[script]),
            "ONNX": _load_onnx(staged[onnx]),
        }
        _check(graph, net, artifacts)
    except BaseException:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)
        raise
    return staged


@contextmanager
def _old_exporters() -> Iterator[None]:
    """Silence torch's advice to move on: Triton serves what the old exporters write."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        # affine_grid checks its size in Python; the size is a constant of the graph.
        warnings.filterwarnings("ignore", "Converting a tensor to a Python boolean")
        yield


def _write_torchscript(graph: Graph, net: nn.Module, path: Path) -> None:
    with _old_exporters():
        # Two rows: a batch axis of one could be traced as a constant.
        traced = torch.jit.trace(net, graph.example(2, graph.shapes[0]), check_trace=False)
        torch.jit.save(traced, path)


def _write_onnx(graph: Graph, net: nn.Module, path: Path) -> None:
    outputs = GRAPHS[graph.name]
    axes: dict[str, dict[int, str]] = {name: {0: "batch"} for name in outputs}
    axes[spec.TENSORS.graph_input] = {0: "batch", **graph.dynamic}
    with _old_exporters():
        torch.onnx.export(
            net,
            (graph.example(2, graph.shapes[0]),),
            path,
            dynamo=False,
            opset_version=OPSET,
            input_names=[spec.TENSORS.graph_input],
            output_names=list(outputs),
            dynamic_axes=axes,
        )


def load_torchscript(path: Path) -> Net:
    """Load an exported graph on the CPU."""
    with _old_exporters():
        graph: Net = torch.jit.load(path, map_location="cpu").eval()
    return graph


def _load_onnx(path: Path) -> Net:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(inputs: Tensor) -> Outputs:
        arrays = session.run(None, {spec.TENSORS.graph_input: inputs.numpy()})
        return tuple(torch.from_numpy(array) for array in arrays)

    return run


def _check(graph: Graph, net: Net, artifacts: dict[str, Net]) -> None:
    # Every shape alone, and one of them in a batch of four.
    for batch, shapes in ((1, graph.shapes), (4, graph.shapes[:1])):
        for shape in shapes:
            inputs = graph.example(batch, shape)
            expected = _outputs(net, inputs)
            for kind, artifact in artifacts.items():
                difference = graph.compare(expected, _outputs(artifact, inputs))
                # Written so that NaN is a disagreement.
                if not difference < 1:
                    raise ExportError(
                        f"{graph.name}: {kind} disagrees with its module on "
                        f"{tuple(inputs.shape)}: {difference:.3g} times the difference allowed"
                    )


def _outputs(net: Net, inputs: Tensor) -> Outputs:
    with torch.inference_mode():
        outputs = net(inputs)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _is_current(manifest: Path, sources: dict[str, str], repository: Path) -> bool:
    try:
        found = json.loads(manifest.read_text(encoding="utf-8"))
        artifacts = found.pop("artifacts")
        return found == sources and all(
            _sha256(repository / name) == digest for name, digest in artifacts.items()
        )
    except (OSError, ValueError, KeyError, AttributeError):
        return False


def _hash_code() -> str:
    """Hash what decides how weights become artifacts."""
    here = Path(__file__).resolve().parent
    files = sorted(file for name in _SOURCES for file in (here / name).rglob("*.py"))
    files += sorted(here / name for name in _SOURCES if name.endswith(".py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
