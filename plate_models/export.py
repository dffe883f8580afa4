"""Weights to what Triton serves: ``weights/`` to a release, ``model_repository/*/<version>/*``.

Each net becomes TorchScript (GPU profile) and ONNX (CPU profile) from one module, and
nothing is written unless both compute what the module computes, on plates and scenes of
our own renderer, alone and in batches. A release's manifest is taken away first and written
last, with what the nets read on a golden photo: whoever serves it reads that photo as well.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from plate_models import spec, weights
from plate_models.contract import GOLDEN_PHOTO, GRAPHS, MANIFEST
from plate_models.graphs import Graph, Net, Outputs, graphs_of
from plate_models.images import ImageError
from plate_models.releasing import PHOTO_MODEL, PIPELINE, read_golden, write_pipeline
from plate_models.spec_json import DEFAULTS, Specs, specs_to_json

REPOSITORY = Path(__file__).resolve().parent.parent / "model_repository"
DEFAULT_GOLDEN = Path(__file__).resolve().parent / GOLDEN_PHOTO
OPSET = 20  # the first with AffineGrid
_SOURCES = (
    *(
        "recognition/calibration.py",
        "nets",
        "contract.py",
        "export.py",
        "export_check.py",
        "geometry.py",
    ),
    *("graphs.py", "releasing.py", "spec.py", "spec_json.py", "straightening.py"),
    *("weight_files.py", "weights.py"),
)
# Stand in the hand-written config.pbtxt: weights that need others can't be exported.
_CONFIGURED = {
    "detector": ("max_candidates", "max_batch_size"),
    "rectifier": ("crop_hw", "rectified_hw", "shown_hw", "max_batch_size"),
    "recognizer": ("steps", "candidates", "max_batch_size"),
}


class ExportError(Exception):
    """An artifact does not compute what its module does, or no Triton here can serve it."""


def export(
    weights_folder: Path = weights.WEIGHTS_DIR,
    repository: Path = REPOSITORY,
    version: str = spec.MODEL_VERSION,
    golden: Path | None = None,
) -> list[Path] | None:
    """Export every net as one release, unless the repository holds the same already.

    Args:
        weights_folder: Holds the weight files and their manifest.
        repository: Triton's model repository.
        version: Of the release: the folder's name in each of the four models.
        golden: Shows whether the release is served as it was exported: with plates that these
            weights read. None takes our own photo, which other weights need not read.

    Returns:
        The artifacts written, or None if they were up to date.

    Raises:
        WeightsError: The weights are missing, damaged or don't fit the nets.
        ExportError: The version is none; an artifact disagrees with its module; the weights
            need sizes that the repository's configurations lack, or read nothing on a photo
            that they should. Nothing was replaced.
    """
    check_version(version)
    photo = golden or DEFAULT_GOLDEN
    if not photo.is_file():
        raise ExportError(f"{photo}: expected a photo, there is no such file")
    sources = {
        "weights": weights.check_manifest(weights_folder),
        "code": _hash_code(),
        "torch": torch.__version__,
        "photo": weights.sha256_of(photo),
    }
    release = repository / PHOTO_MODEL / version
    if _is_current(release, sources, repository):
        return None
    modules = weights.load_modules(weights_folder)
    _check_configured(modules.specs)
    must_read = golden is not None or weights_folder.resolve() == weights.WEIGHTS_DIR
    plates = _golden_plates(photo, modules, must_read)
    hashes = _replace_artifacts(modules, repository, version)
    source = REPOSITORY / PHOTO_MODEL / spec.MODEL_VERSION / PIPELINE
    write_pipeline(source, photo, release)
    made_for = {**_made_for(modules), "golden": plates, "artifacts": hashes}
    _write(release / MANIFEST, {**sources, **made_for})
    return [repository / name for name in hashes]


def _golden_plates(photo: Path, modules: weights.Modules, must_read: bool) -> list[dict[str, Any]]:
    try:
        plates = read_golden(photo, modules)
    except ImageError as error:
        raise ExportError(f"{photo}: expected a photo: {error}") from error
    if must_read and not plates:
        raise ExportError(f"{photo}: expected a plate that the weights read, they read none")
    return plates


def _replace_artifacts(modules: weights.Modules, repository: Path, version: str) -> dict[str, str]:
    """Export all nets, then put them in place; return each artifact's hash by its path."""
    staged: dict[Path, Path] = {}
    try:
        for artifacts in _export_graphs(modules, repository, version):
            staged |= artifacts
        hashes = {str(p.relative_to(repository)): weights.sha256_of(t) for p, t in staged.items()}
        # Without its manifest a release is none: nobody takes half of this one for a whole.
        (repository / PHOTO_MODEL / version / MANIFEST).unlink(missing_ok=True)
        for path, temporary in staged.items():
            temporary.replace(path)
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)
    return hashes


def check_version(version: str) -> None:
    """Raise ExportError unless Triton takes it for a version, such as 2."""
    if not (version.isascii() and version.isdigit() and 0 < int(version) < 2**31):
        raise ExportError(f"version: expected a whole number from 1, got {version!r}")
    if version != str(int(version)):
        raise ExportError(f"version: expected {int(version)}, got {version!r}: Triton skips it")


def _export_graphs(
    modules: weights.Modules, repository: Path, version: str
) -> Iterator[dict[Path, Path]]:
    """Write and check one net after the other; see `export_graph`."""
    from plate_models.export_check import inputs_for  # brings the renderer

    inputs = inputs_for(modules.specs, modules.rectify)
    nets = (modules.detect, modules.rectify, modules.recognize)
    for graph, net in zip(graphs_of(modules.specs), nets, strict=True):
        folder = repository / graph.name / version
        yield export_graph(graph, net, folder, inputs[graph.name])


def _made_for(modules: weights.Modules) -> dict[str, Any]:
    """What the pipeline around the graphs is configured with."""
    calibration = json.loads(modules.calibration.to_json())
    return {"specs": specs_to_json(modules.specs), "calibration": calibration}


def _check_configured(specs: Specs) -> None:
    for name, fields in _CONFIGURED.items():
        for field in fields:
            found, expected = (getattr(getattr(s, name), field) for s in (specs, DEFAULTS))
            if found != expected:
                raise ExportError(
                    f"{name}: {field}: expected {expected}, as every config.pbtxt has it, "
                    f"found {found} in the weights"
                )


def export_graph(
    graph: Graph, net: nn.Module, folder: Path, batches: Sequence[Tensor]
) -> dict[Path, Path]:
    """Write one net as TorchScript and ONNX under temporary names and check both.

    Args:
        graph: How it is exported.
        net: The module, in evaluation mode, on the CPU.
        folder: The model's version folder.
        batches: What the artifacts are checked on.

    Returns:
        Final path to temporary path of each artifact.

    Raises:
        ExportError: An artifact disagrees with the module.
    """
    from plate_models.export_check import disagreement

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
        if wrong := disagreement(graph, net, artifacts, batches):
            raise ExportError(wrong)
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
        traced = torch.jit.trace(net, graph.example(2), check_trace=False)
        torch.jit.save(traced, path)


def _write_onnx(graph: Graph, net: nn.Module, path: Path) -> None:
    outputs = GRAPHS[graph.name]
    axes: dict[str, dict[int, str]] = {name: {0: "batch"} for name in outputs}
    axes[spec.TENSORS.graph_input] = {0: "batch", **graph.dynamic}
    with _old_exporters():
        torch.onnx.export(
            net,
            (graph.example(2),),
            path,
            dynamo=False,
            opset_version=OPSET,
            input_names=[spec.TENSORS.graph_input],
            output_names=list(outputs),
            dynamic_axes=axes,
        )
    _declare_outputs(graph, path)


def _declare_outputs(graph: Graph, path: Path) -> None:
    """Write the outputs' shapes into the file, where the exporter could not tell them.

    Triton's own ONNX Runtime backend refuses a model whose declared output shape is not
    exactly the configuration's, a fixed size where the other one varies included.
    """
    model = onnx.load(path)
    for output, shape in zip(model.graph.output, graph.outputs, strict=True):
        dims = output.type.tensor_type.shape.dim
        for dim, size in zip(dims, ("batch", *shape), strict=True):
            dim.Clear()
            setattr(dim, "dim_param" if isinstance(size, str) else "dim_value", size)
    onnx.save(model, path)


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


def _is_current(release: Path, sources: dict[str, str], repository: Path) -> bool:
    try:
        found = json.loads((release / MANIFEST).read_text(encoding="utf-8"))
        artifacts = found.pop("artifacts")
        for key in ("specs", "calibration", "golden"):  # they follow from the sources
            del found[key]
        artifacts[f"{PHOTO_MODEL}/{release.name}/{GOLDEN_PHOTO}"] = sources["photo"]
        return (
            found == sources
            and (release / PIPELINE).exists()
            and all(
                weights.sha256_of(repository / name) == digest for name, digest in artifacts.items()
            )
        )
    except (OSError, ValueError, KeyError, AttributeError):
        return False


def _hash_code() -> str:
    """Hash what decides how weights become artifacts."""
    here = Path(__file__).resolve().parent
    files = sorted(file for name in _SOURCES for file in (here / name).rglob("*.py"))
    files += sorted(here / name for name in _SOURCES if name.endswith(".py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _write(path: Path, content: dict[str, Any]) -> None:
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
