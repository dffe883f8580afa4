"""The parts of the nvidia-pytriton wheel, and the backend directory made from them."""

import importlib.util
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

# The Python files of libtriton_python.so: a symlinked .so "escapes" its directory.
_COPIED = ("libtriton_python.so", "triton_python_backend_utils.py")
_STUB = "triton_python_backend_stub"


@dataclass(frozen=True)
class Wheel:
    """An installed nvidia-pytriton.

    Attributes:
        folder: Its ``pytriton/tritonserver``.
    """

    folder: Path

    @property
    def server(self) -> Path:
        """The tritonserver binary."""
        return self.folder / "bin" / "tritonserver"

    @property
    def stub(self) -> Path:
        """The process that runs a model's Python, built for this Python version."""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "python_backend_stubs" / version / _STUB


def find_wheel() -> Wheel | None:
    """Locate the wheel without importing it (which would load half of its world)."""
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Wheel(Path(spec.submodule_search_locations[0]) / "tritonserver")


def own_backends() -> Path:
    """Locate our Python-based backends: one folder with a model.py for each."""
    spec = importlib.util.find_spec("plate_models")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("plate_models is not installed: run `make setup`")
    return Path(spec.submodule_search_locations[0]) / "backends"


def make_backend_directory(wheel: Wheel, own: Path, folder: Path) -> None:
    """Lay out the backends as tritonserver wants them.

    Args:
        wheel: Where the Python backend comes from.
        own: Holds ``<backend>/model.py`` for each backend written in Python.
        folder: Made by this function.
    """
    python = folder / "python"
    python.mkdir(parents=True)
    for name in _COPIED:
        shutil.copy2(wheel.folder / "backends" / "python" / name, python)
    # A symlink: the stub finds the wheel's libraries relative to where it really lies.
    (python / _STUB).symlink_to(wheel.stub)
    for model in sorted(own.glob("*/model.py")):
        backend = folder / model.parent.name
        backend.mkdir()
        shutil.copy2(model, backend)
