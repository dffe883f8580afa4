"""Where Triton is installed: the nvidia-pytriton wheel, or NVIDIA's container image."""

import importlib.util
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

# Where NVIDIA's images have it.
STOCK_FOLDER = Path("/opt/tritonserver")
# The Python files of libtriton_python.so: a symlinked .so "escapes" its directory.
_COPIED = ("libtriton_python.so", "triton_python_backend_utils.py")
_STUB = "triton_python_backend_stub"


@dataclass(frozen=True)
class Wheel:
    """An installed nvidia-pytriton: Triton 2.51 with the Python backend alone.

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

    def lay_out_backends(self, folder: Path) -> Path:
        """Make a backend directory of its Python backend and those that we wrote in Python.

        Args:
            folder: Made by this function.

        Returns:
            The backend directory, which is that folder.
        """
        python = folder / "python"
        python.mkdir(parents=True)
        for name in _COPIED:
            shutil.copy2(self.folder / "backends" / "python" / name, python)
        # A symlink: the stub finds the wheel's libraries relative to where it really lies.
        (python / _STUB).symlink_to(self.stub)
        for model in sorted(own_backends().glob("*/model.py")):
            backend = folder / model.parent.name
            backend.mkdir()
            shutil.copy2(model, backend)
        return folder


@dataclass(frozen=True)
class Stock:
    """The Triton of NVIDIA's image, with all its backends: ours stand in for none of them.

    Attributes:
        folder: Holds ``bin`` and ``backends``.
    """

    folder: Path = STOCK_FOLDER

    @property
    def server(self) -> Path:
        """The tritonserver binary."""
        return self.folder / "bin" / "tritonserver"

    @property
    def stub(self) -> Path:
        """The process that runs a model's Python, built for the image's own Python."""
        return self.folder / "backends" / "python" / _STUB

    def lay_out_backends(self, folder: Path) -> Path:
        """Take its backends as they are; nothing is made.

        Returns:
            The backend directory.
        """
        del folder
        return self.folder / "backends"


Installation = Wheel | Stock


def find_installation(stock_folder: Path = STOCK_FOLDER) -> Installation | None:
    """Find the Triton of this environment: its wheel, else that of the image around it.

    Args:
        stock_folder: Where the image's would be.
    """
    wheel = find_wheel()
    if wheel is not None:
        return wheel
    stock = Stock(stock_folder)
    return stock if stock.server.exists() else None


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
