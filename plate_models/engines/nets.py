"""The three nets, loaded on an engine and ready for `pipeline.read_plates`."""

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plate_models import release
from plate_models.contract import GRAPHS, config_from
from plate_models.detection import Detect
from plate_models.pipeline import PipelineConfig, Plate, Recognize, read_plates
from plate_models.pixels import to_device
from plate_models.rectification import Rectify
from plate_models.release import PHOTO_MODEL, REPOSITORY, WEIGHTS_DIR, is_current, sources_of
from plate_models.spec import MODEL_VERSION

# What the CPU profile of the repository runs, with its settings; modules in float32, for a GPU too.
ENGINES = ("served", "torch")
_PARAMETER = re.compile(
    r'^parameters\s*{\s*key:\s*"(\w+)"\s*value\s*{\s*string_value:\s*"(\w*)"', re.MULTILINE
)


class EngineError(Exception):
    """No such engine or device, or the engine can't run on that device."""


@dataclass(frozen=True)
class Nets:
    """Detector, rectifier and recognizer as `pipeline.read_plates` takes them, and their config.

    The engine is one of `ENGINES`; the device is where they compute, such as "cpu" or "cuda:0".
    """

    detect: Detect
    rectify: Rectify
    recognize: Recognize
    config: PipelineConfig
    engine: str
    device: str = "cpu"
    process: int = field(default_factory=os.getpid)

    def read(self, image: NDArray[np.uint8], still: bool = True) -> list[Plate]:
        """Find and read every plate of a photo, (H, W, 3) uint8 RGB."""
        if os.getpid() != self.process:  # Their threads are not there: it would wait for ever.
            raise EngineError("these nets were loaded before a fork: load them in each process")
        nets = self.detect, self.rectify, self.recognize
        return read_plates(self.place(image), *nets, replace(self.config, still=still))

    def place(self, image: NDArray[np.uint8]) -> Any:
        """A photo where the nets take it: torch's modules take tensors on their device."""
        served = self.engine == "served"
        return image if served else to_device(np.ascontiguousarray(image), self.device)


def load_nets(engine: str = "served", device: str = "cpu", folder: Path = WEIGHTS_DIR) -> Nets:
    """Load the weights of a folder onto an engine, one of `ENGINES`.

    "served" exports them first where our repository holds other ones; weights that are not the
    released ones are exported beside it, so that what Triton serves stays as it is.

    Raises:
        EngineError: The engine or device is unknown, or is not there.
        WeightsError: The weights are missing or damaged.
        ExportError: They can't be exported.
    """
    check_engine(engine, device)
    if engine == "torch":
        from plate_models import weights

        modules = weights.load_modules(folder, device)
        config = PipelineConfig.of(modules.specs, modules.calibration)
        nets: Any = modules.detect, modules.rectify, modules.recognize
        if device != "cpu":
            from plate_models.engines.cuda_graphs import CudaGraphs

            nets = map(CudaGraphs, nets)
        detect, rectify, recognize = nets
        return Nets(detect, rectify, recognize, config, engine, device)
    repository = REPOSITORY
    if folder.resolve() != WEIGHTS_DIR:
        # An engine may open its file when the first photo comes: it stays until the end.
        repository = Path(tempfile.mkdtemp(prefix="plates-"))
        atexit.register(shutil.rmtree, repository, ignore_errors=True)
    bring_up_to_date(folder, repository)
    return load_exported(repository)


def load_exported(repository: Path) -> Nets:
    """Load what a repository holds of a release, with the settings of its CPU profile."""
    config = config_from(repository / PHOTO_MODEL / MODEL_VERSION)
    yolo, stn, lprnet = (_load_served(repository, name) for name in GRAPHS)
    return Nets(
        lambda canvas: yolo(canvas)[0], stn, lambda plates: lprnet(plates)[0], config, "served"
    )


def bring_up_to_date(
    folder: Path = WEIGHTS_DIR,
    repository: Path = REPOSITORY,
    version: str = MODEL_VERSION,
    golden: Path | None = None,
) -> list[Path]:
    """Export the weights of a folder unless the repository holds them; torch comes with that.

    Takes and raises what `plate_models.export.export` does; returns the artifacts written.
    """
    photo = golden or release.DEFAULT_GOLDEN
    if photo.is_file() and is_current(sources_of(folder, photo), repository, version):
        return []
    from plate_models.export import export

    return export(folder, repository, version, golden)


def check_engine(engine: str, device: str) -> None:
    """Raise EngineError unless there are such an engine and device, and they go together."""
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


def _load_served(repository: Path, name: str) -> Callable[[Any], Any]:
    """Load one graph of a repository with the settings of its CPU profile."""
    text = (REPOSITORY / name / "configs" / "cpu.pbtxt").read_text(encoding="utf-8")
    parameters = dict(_PARAMETER.findall(text))
    from plate_models.engines import openvino_engine  # where it is not served, it isn't installed

    path = repository / name / MODEL_VERSION / "model.onnx"
    run = openvino_engine.load(path, GRAPHS[name], parameters)
    return lambda batch: run((batch,))
