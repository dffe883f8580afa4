"""Load the three nets onto an engine, and export them first if necessary."""

import atexit
import re
import shutil
import tempfile
from pathlib import Path

from plate_models import release
from plate_models.contract import GRAPHS, config_from
from plate_models.engines import ENGINES
from plate_models.engines.loaded import EngineError, Nets
from plate_models.release import PHOTO_MODEL, REPOSITORY, WEIGHTS_DIR, is_current, sources_of
from plate_models.spec import MODEL_VERSION

_PARAMETER = re.compile(
    r'^parameters\s*{\s*key:\s*"(\w+)"\s*value\s*{\s*string_value:\s*"(\w*)"', re.MULTILINE
)


def load_nets(engine: str = "served", device: str = "cpu", folder: Path = WEIGHTS_DIR) -> Nets:
    """Load the weights of a folder onto an engine, one of `ENGINES`.

    "served" first exports the weights if our repository holds an export of others. Weights other
    than the released ones are exported to a temporary folder, so that Triton's repository stays
    unchanged.

    Raises:
        EngineError: The engine or device is unknown or not available.
        WeightsError: The weights are missing or damaged.
        ExportError: They can't be exported.
    """
    check_engine(engine, device)
    if engine == "torch":
        from plate_models import weights

        return weights.load_modules(folder, device)
    repository = REPOSITORY
    if folder.resolve() != WEIGHTS_DIR:
        # Keep the folder until the process ends: an engine may open its file at the first photo.
        repository = Path(tempfile.mkdtemp(prefix="plates-"))
        atexit.register(shutil.rmtree, repository, ignore_errors=True)
    ensure_exported(folder, repository)
    return load_exported(repository)


def load_exported(repository: Path) -> Nets:
    """Load the release in a repository, with the settings of the CPU profile."""
    from plate_models.engines import openvino_engine  # installed only where graphs are served

    config = config_from(repository / PHOTO_MODEL / MODEL_VERSION)
    runs = []
    for name, outputs in GRAPHS.items():
        text = (REPOSITORY / name / "configs" / "cpu.pbtxt").read_text(encoding="utf-8")
        path = repository / name / MODEL_VERSION / "model.onnx"
        runs.append(openvino_engine.load(path, outputs, dict(_PARAMETER.findall(text))))
    yolo, stn, lprnet = runs
    return Nets(
        lambda canvas: yolo(canvas)[0], stn, lambda plates: lprnet(plates)[0], config, "served"
    )


def ensure_exported(
    folder: Path = WEIGHTS_DIR,
    repository: Path = REPOSITORY,
    version: str = MODEL_VERSION,
    golden: Path | None = None,
) -> list[Path]:
    """Export the weights of a folder unless the repository holds their export; imports torch then.

    For arguments and exceptions see `plate_models.export.export`; returns the artifacts written.
    """
    photo = golden or release.DEFAULT_GOLDEN
    if photo.is_file() and is_current(sources_of(folder, photo), repository, version):
        return []
    from plate_models.export import export

    return export(folder, repository, version, golden)


def check_engine(engine: str, device: str) -> None:
    """Raise EngineError unless the engine and device are available and work together."""
    if engine not in ENGINES:
        raise EngineError(f"engine: expected one of {', '.join(ENGINES)}, got {engine!r}")
    match = re.fullmatch(r"cpu|cuda(?::(\d+))?", device)
    if not match:
        raise EngineError(f"device: expected cpu or cuda:0, got {device!r}")
    if device == "cpu":
        return
    if engine == "served":
        raise EngineError(f'engine "served" runs on the CPU; {device} needs engine "torch"')
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(match[1] or 0) >= count:
        raise EngineError(f"device: {device} is not there; torch sees {count} GPUs")
