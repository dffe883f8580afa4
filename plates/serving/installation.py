"""Finds Triton, prepares what it runs with, and checks whether it can run on this machine.

Triton comes with the wheel nvidia-pytriton or with NVIDIA's container image. Without the checks
most of these problems would end in a server that hangs while it loads its models. Each check yields
its problems, with what to do.
"""

import ctypes
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from plate_models.cores import THREADS  # the one setting that the models read
from plate_models.release import MANIFEST, PHOTO_MODEL

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
LIBPYTHON = f"libpython{_PYTHON}.so.1.0"
_STUB = "triton_python_backend_stub"


@dataclass(frozen=True)
class Installation:
    """An installed Triton: a folder with ``bin`` and ``backends``.

    The wheel's Triton has only the Python backend, and needs this project's backends. NVIDIA's
    image has its own backends, libraries and Python.
    """

    folder: Path
    is_wheel: bool

    @property
    def server(self) -> Path:
        """The tritonserver binary."""
        return self.folder / "bin" / "tritonserver"

    @property
    def stub(self) -> Path:
        """The program that runs a model's Python."""
        stubs = f"python_backend_stubs/{_PYTHON}" if self.is_wheel else "backends/python"
        return self.folder / stubs / _STUB

    def lay_out_backends(self, folder: Path) -> Path:
        """Return the backend directory: the image's own, or the folder, filled for the wheel."""
        if not self.is_wheel:
            return self.folder / "backends"
        python = folder / "python"
        python.mkdir(parents=True)
        # Copied: Triton refuses a symlinked .so, which "escapes" its directory.
        for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
            shutil.copy2(self.folder / "backends" / "python" / name, python)
        # A symlink: the stub finds the wheel's libraries relative to its real path.
        (python / _STUB).symlink_to(self.stub)
        for model in Path(str(files("plate_models"))).glob("backends/*/model.py"):
            # Made, not copied: a copy of a read-only folder could not be deleted again.
            (folder / model.parent.name).mkdir()
            shutil.copy2(model, folder / model.parent.name)
        return folder

    def environment(self, profile: str) -> dict[str, str]:
        """The environment variables with which the stubs find this Python and its packages."""
        # The settings contain tokens; a process that decodes clients' photos must not have them.
        dropped = ("PYTHONHOME", "PYTHONPATH", "PLATES_")
        variables = {
            name: value
            for name, value in os.environ.items()
            if name == THREADS or not name.startswith(dropped)
        }
        # The stub finds the virtual environment by PATH, and libpython by LD_LIBRARY_PATH. An
        # image's stub finds its libpython itself, and the image's order of libraries must stay: it
        # selects the driver.
        first = {"PATH": Path(sys.executable).parent}
        if self.is_wheel and (libpython := find_libpython()):
            first["LD_LIBRARY_PATH"] = libpython
        for name, folder in first.items():
            variables[name] = os.pathsep.join(filter(None, (str(folder), variables.get(name))))
        # Waiting threads that spin starve other processes on the same cores.
        variables["GOMP_SPINCOUNT"] = "0"
        # A crop's matrices are small: several threads take longer.
        variables.setdefault("OPENBLAS_NUM_THREADS", "1")
        # Each arena of glibc's malloc keeps freed memory: further arenas cost some 150 MB.
        variables.setdefault("MALLOC_ARENA_MAX", "1")
        if profile != "gpu":
            variables["CUDA_VISIBLE_DEVICES"] = ""
        return variables


def find_installation() -> Installation | None:
    """Find the wheel in this environment, else the Triton of NVIDIA's image."""
    found = [Installation(Path("/opt/tritonserver"), is_wheel=False)]
    # Not imported, as that takes long.
    spec = importlib.util.find_spec("pytriton")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        found.insert(0, Installation(Path(package) / "tritonserver", is_wheel=True))
    return next((installation for installation in found if installation.server.exists()), None)


def find_libpython() -> Path | None:
    """Find the folder of this Python's own shared library, which the wheel's stub needs."""
    variables = sysconfig.get_config_vars()
    roots = [Path(variables.get("LIBDIR") or "/usr/lib"), Path(sys.base_prefix) / "lib"]
    multiarch = variables.get("MULTIARCH") or ""
    folders = (folder for root in roots for folder in (root, root / multiarch))
    return next((folder for folder in folders if (folder / LIBPYTHON).exists()), None)


def find_problems(installation: Installation | None, repository: Path, profile: str) -> list[str]:
    """List what keeps a server from running, each problem with what to do.

    A model's config is ``configs/<profile>.pbtxt`` if there is one, else ``config.pbtxt``.
    """
    problems = [*_check_installation(installation), *_check_models(repository, profile)]
    if installation and not problems:
        problems += _check_stub(installation, profile)
    return problems


def _check_installation(installation: Installation | None) -> Iterator[str]:
    if installation is None:
        glibc = os.confstr("CS_GNU_LIBC_VERSION") if sys.platform == "linux" else None
        yield (
            "No Triton is installed: neither the package nvidia-pytriton (run `make setup`) nor "
            "that of NVIDIA's image in /opt/tritonserver. The package is made for Linux on x86-64 "
            "and aarch64 with glibc 2.35 or later (Debian 12, Ubuntu 22.04); this is "
            f"{platform.system()} {platform.machine()}, {glibc or 'no glibc'}. Elsewhere use "
            "Triton's container and point PLATES_TRITON_URL at it; `plates read` needs no Triton "
            "at all."
        )
        return
    if installation.is_wheel and find_libpython() is None:
        yield (
            f"{LIBPYTHON} of {sys.base_prefix} is missing. Debian, Ubuntu: apt install "
            f"libpython{_PYTHON}; pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install "
            f"{_PYTHON}."
        )
    folder = tempfile.gettempdir()
    if installation.is_wheel and os.statvfs(folder).f_flag & os.ST_NOEXEC:
        yield (
            f"{folder} is mounted noexec, and Triton loads its backends from there: mount it "
            "exec, or set TMPDIR to another folder."
        )
    # The model repository may have any path: Triton sees a copy in the temporary folder.
    paths = {
        "this Python": sys.executable,
        "this project": str(files("plate_models")),
        "the folder for temporary files (TMPDIR)": folder,
    }
    for name, path in paths.items():
        if re.search(r"[^!-~]", path):
            problem = "has a space or a letter beyond ASCII: Triton's stub crashes or hangs on it"
            yield f"The path of {name}, {path!r}, {problem}. Choose another folder."


def _check_models(repository: Path, profile: str) -> Iterator[str]:
    # `versions` checks the files that a manifest lists.
    if not any((repository / PHOTO_MODEL).glob(f"[0-9]*/{MANIFEST}")):
        yield f"There is no exported model in {repository}: run `make export` (`plates export`)."
    on_gpu = []
    for path in sorted(repository.glob("*/config.pbtxt")):
        special = path.parent / "configs" / f"{profile}.pbtxt"
        if "KIND_GPU" in (special if special.exists() else path).read_text(encoding="utf-8"):
            on_gpu.append(path.parent.name)
    if on_gpu and (problem := find_gpu_problem()):
        yield (
            f"The profile {profile} runs {', '.join(on_gpu)} on a GPU, and {problem}. "
            "Set PLATES_PROFILE=cpu, or start it on a GPU host."
        )


def find_gpu_problem() -> str | None:
    """Ask NVIDIA's driver, loaded as Triton loads it, why no GPU is usable; None if one is."""
    try:
        driver = ctypes.CDLL("libcuda.so")
    except OSError:
        return "NVIDIA's driver is not there (libcuda.so is not found by that name)"
    count = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status:
        return f"NVIDIA's driver finds none (CUDA error {status})"
    return None if count.value else "NVIDIA's driver finds none"


def _check_stub(installation: Installation, profile: str) -> Iterator[str]:
    problem, variables = "Triton's Python stub does not start", installation.environment(profile)
    try:  # without arguments it exits with 1, or with 127 if it lacks a library
        run = subprocess.run(  # noqa: S603 - Triton's own binary
            [installation.stub], env=variables, capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        wheel = "reinstall nvidia-pytriton with `make setup`"
        remedy = wheel if installation.is_wheel else "take an image with the Python backend"
        yield f"{problem}: {error}: {remedy}."
        return
    if run.returncode != 1:
        yield f"{problem}: {run.stderr.strip() or f'exit status {run.returncode}'}."
