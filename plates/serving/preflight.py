"""What the embedded Triton needs from this machine, each with what to do without it.

Most of these, left unchecked, end in a server that hangs while it loads its models.
"""

import ctypes
import importlib.metadata
import os
import platform
import re
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from plates.serving.installation import Installation, Wheel

PYTHON_VERSIONS = ((3, 11), (3, 12))
MACHINES = ("x86_64", "aarch64")
MIN_GLIBC = (2, 35)
LOOPBACK = "127.0.0.1"
# What each backend loads; a new model brings no change here.
ARTIFACTS = {
    "onnxruntime": "model.onnx",
    "openvino": "model.onnx",
    "pytorch": "model.pt",
    "python": "model.py",
}
# What the export leaves beside this model's model.py, which reads it when it loads.
MANIFESTS = {"plate_recognition": "exported.json"}
ELSEWHERE = (
    "Use Triton's container instead and point PLATES_TRITON_URL at it; `plates read` needs no "
    "Triton at all."
)


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> str | None:
    """Refuse a Python that the locked packages are not made for."""
    if version in PYTHON_VERSIONS:
        return None
    found = ".".join(map(str, version))
    return f"Python 3.11 or 3.12 is needed, this is {found}: run `make setup` with one of them."


def check_platform(
    system: str = platform.system(), machine: str = platform.machine()
) -> str | None:
    """Refuse systems that there is no wheel for."""
    if system == "Linux" and machine in MACHINES:
        return None
    here = f"{system} {machine}"
    return f"Triton's wheel runs on Linux on x86-64 and aarch64, not on {here}. {ELSEWHERE}"


def check_glibc(found: str | None = None) -> str | None:
    """Refuse a C library older than the wheel was built against, and musl.

    Args:
        found: As ``os.confstr`` names it, such as "glibc 2.36"; asked for by default.
    """
    if found is None:
        known = "CS_GNU_LIBC_VERSION" in os.confstr_names
        found = (os.confstr("CS_GNU_LIBC_VERSION") if known else None) or "no glibc"
    match = re.fullmatch(r"glibc (\d+)\.(\d+).*", found)
    if match and (int(match[1]), int(match[2])) >= MIN_GLIBC:
        return None
    needed = ".".join(map(str, MIN_GLIBC))
    return (
        f"glibc {needed} or later is needed (Debian 12, Ubuntu 22.04), found: {found}. {ELSEWHERE}"
    )


def check_numpy(version: str | None = None) -> str | None:
    """Refuse numpy 2: this Triton silently sends zero bytes for its arrays."""
    try:
        version = version or importlib.metadata.version("numpy")
    except importlib.metadata.PackageNotFoundError:
        return "numpy is not installed: run `make setup`."
    if int(version.split(".", 1)[0]) < 2:
        return None
    return f"numpy {version} is installed, and Triton 2.51 needs numpy<2: run `make setup`."


def check_installation(installation: Installation | None) -> str | None:
    """Refuse a Triton that is missing or incomplete."""
    if installation is None:
        return (
            "No Triton is installed: neither the package nvidia-pytriton (run `make setup`) nor "
            "that of NVIDIA's image in /opt/tritonserver."
        )
    for part in (installation.server, installation.stub):
        if not os.access(part, os.X_OK):
            whose, remedy = (
                ("nvidia-pytriton", "reinstall it with `make setup`")
                if isinstance(installation, Wheel)
                else ("the image's Triton", "take an image with the Python backend")
            )
            return f"{whose} lacks {part.name} ({part}): {remedy}."
    return None


def check_stub_python(stub: Path) -> str | None:
    """Refuse an image whose models run in another Python than this: they'd find no package.

    Args:
        stub: The image's, which is linked to one Python.
    """
    found = re.search(rb"libpython(3\.\d+)\.so", stub.read_bytes())
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if found is None or found[1].decode() == here:
        return None
    return (
        f"This image's Triton runs models in Python {found[1].decode()}, and this environment "
        f"is made for {here}: make it with the image's own python3, or take another image."
    )


def find_libpython() -> Path | None:
    """Find the folder of this Python's own shared library."""
    variables = sysconfig.get_config_vars()
    roots = [Path(variables.get("LIBDIR") or "/usr/lib"), Path(sys.base_prefix) / "lib"]
    multiarch = variables.get("MULTIARCH") or ""
    return next(
        (f for r in roots for f in (r, r / multiarch) if (f / libpython_name()).exists()), None
    )


def libpython_name() -> str:
    """Name the library that the stub is linked to."""
    return f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"


def check_libpython(folder: Path | None) -> str | None:
    """Refuse a Python that was built without its shared library."""
    if folder is not None:
        return None
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"{libpython_name()} of {sys.base_prefix} is missing. Debian, Ubuntu: apt install "
        f"libpython{version}; pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install {version}."
    )


def check_spaces(paths: Mapping[str, Path]) -> Iterator[str]:
    """Name the paths with a space in them: the stub crashes on them.

    Args:
        paths: What it is, such as "the model repository", to the path.
    """
    for what, path in paths.items():
        if re.search(r"\s", str(path)):
            yield f"The path of {what} has a space, {str(path)!r}: Triton's stub crashes on it."


def check_exec(folder: Path) -> str | None:
    """Refuse a folder for temporary files that libraries can't be loaded from.

    Args:
        folder: Where the wheel's backends are laid out.
    """
    if not os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return None
    return (
        f"{folder} is mounted noexec, and Triton loads its backends from there: mount it exec, or "
        "set TMPDIR to another folder."
    )


def check_ports(ports: Mapping[str, int], host: str = LOOPBACK) -> Iterator[str]:
    """Name the ports that can't be listened on.

    Args:
        ports: The variable that sets it to the port; 0 stands for any free one.
        host: Where.
    """
    for variable, port in ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except (OSError, OverflowError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                yield f"Port {port} can't be used ({reason}): set {variable} to a free one."


def check_artifacts(repository: Path, profile: str) -> Iterator[str]:
    """Name what the models of a repository lack.

    Args:
        repository: Triton's model repository.
        profile: "cpu" takes ``configs/cpu.pbtxt`` where there is one, "gpu" ``config.pbtxt``.
    """
    configs = configurations(repository, profile)
    if not configs:
        yield f"There is no model in {repository}."
    for model, config in configs.items():
        backend = re.search(r'^backend:\s*"(\w+)"', config, re.MULTILINE)
        for needed in (ARTIFACTS.get(backend[1]) if backend else None, MANIFESTS.get(model.name)):
            if needed and not any(model.glob(f"[0-9]*/{needed}")):
                yield f"{model.name} has no {needed}: run `make export` (`plates export`)."


def configurations(repository: Path, profile: str) -> dict[Path, str]:
    """Each model's folder with the text of the configuration that the profile chooses."""
    models = sorted(path.parent for path in repository.glob("*/config.pbtxt"))
    special = {model: model / "configs" / f"{profile}.pbtxt" for model in models}
    return {
        model: (path if path.exists() else model / "config.pbtxt").read_text(encoding="utf-8")
        for model, path in special.items()
    }


def check_gpu(repository: Path, profile: str, torch_version: str | None = None) -> Iterator[str]:
    """Refuse models that shall run on a GPU where there is none: none is run on the CPU instead.

    Args:
        repository: Triton's model repository.
        profile: See :func:`check_artifacts`.
        torch_version: Such as "2.13.0+cpu"; asked for by default.
    """
    configs = configurations(repository, profile)
    models = [model.name for model, text in configs.items() if "KIND_GPU" in text]
    if not models:
        return
    wanted = f"The profile {profile} runs {', '.join(models)} on a GPU"
    problem = find_gpu_problem()
    if problem:
        yield f"{wanted}, and {problem}. Set PLATES_PROFILE=cpu, or start it on a GPU host."
    try:
        torch_version = torch_version or importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch_version = "none+cpu"
    if torch_version.endswith("+cpu"):
        yield f"{wanted}, and torch {torch_version} has no CUDA: run `make setup` on the GPU host."


def find_gpu_problem(library: str = "libcuda.so") -> str | None:
    """Ask NVIDIA's driver for GPUs.

    Args:
        library: The driver's; Triton looks for it by this very name.

    Returns:
        What is in the way of using one; None if nothing is.
    """
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return f"NVIDIA's driver is not there ({library} is not found by that name)"
    count = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status:
        return f"NVIDIA's driver finds none (CUDA error {status})"
    return None if count.value else "NVIDIA's driver finds none"


def check_stub(stub: Path, environment: Mapping[str, str]) -> str | None:
    """Start the stub without arguments: 1 means that it can start, 127 that it can't.

    Args:
        stub: Of an :data:`Installation`.
        environment: The one the server will run in.
    """
    try:
        run = subprocess.run(  # noqa: S603 - Triton's own binary
            [stub], env=dict(environment), capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"Triton's Python stub does not start: {error}."
    if run.returncode == 1:
        return None
    reason = run.stderr.strip() or f"exit status {run.returncode}"
    return f"Triton's Python stub does not start: {reason}."
