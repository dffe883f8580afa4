"""Export the requirement files of each role from poetry.lock: `make requirements`.

Triton's image and docker/setup.sh install with pip, so the locked versions and hashes are written
to a file per role. Uses only the standard library, as it runs before anything is installed.
"""

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docker" / "requirements"

# The dependency groups of pyproject.toml that each role installs.
ROLES = {
    "gateway": ("main", "gateway"),
    "cameras": ("main", "gateway", "cameras"),
    "triton": ("main", "models", "torch", "export", "triton"),
    "triton-cpu": ("main", "gateway", "models", "embedded"),
    "embedded": ("main", "gateway", "models", "torch", "embedded", "export"),
    "bulk": ("main", "models", "torch", "embedded", "export", "bulk"),
    "dev": (
        *("main", "gateway", "models", "torch", "embedded", "export"),
        *("training", "cameras", "bulk", "benchmarks", "dev"),
    ),
}
TORCH = "torch"
# torch is installed first and separately; its CUDA libraries come with it or not at all.
CUDA_PREFIXES = ("nvidia-", "cuda-", "triton")

HEADER = "# {name}: exported from poetry.lock by `make requirements`; do not edit.\n"

Package = dict[str, Any]


def render_role(packages: list[Package], groups: tuple[str, ...]) -> str:
    """Render the requirements of these groups: pinned, with hashes, without torch and its CUDA."""
    lines = []
    for package in packages:
        wanted = [group for group in package["groups"] if group in groups]
        only_torch = package["groups"] == ["torch"]
        if wanted and not (only_torch and package["name"].startswith((TORCH, *CUDA_PREFIXES))):
            lines.append(_requirement(package, wanted))
    return "".join(lines)


def render_all(packages: list[Package]) -> dict[str, str]:
    """Render every requirement file; maps each file's name to its content."""
    files = {f"{role}.txt": render_role(packages, groups) for role, groups in ROLES.items()}
    # torch without hashes: a CUDA wheel's hash would refuse a CPU wheel.
    (version,) = {package["version"] for package in packages if package["name"] == TORCH}
    files["torch.txt"] = f"{TORCH}=={version}\n"
    return {name: HEADER.format(name=name) + text for name, text in files.items()}


def _requirement(package: Package, wanted: list[str]) -> str:
    marker = _marker(package.get("markers"), wanted)
    hashes = sorted(file["hash"] for file in package["files"])
    first = f"{package['name']}=={package['version']}" + (f" ; {marker}" if marker else "")
    return " \\\n    ".join([first, *(f"--hash={digest}" for digest in hashes)]) + "\n"


def _marker(markers: str | dict[str, str] | None, wanted: list[str]) -> str:
    """Join the markers of the wanted groups; without a marker for each of them there is none."""
    if markers is None or isinstance(markers, str):
        return markers or ""
    if any(group not in markers for group in wanted):
        return ""
    return " or ".join(sorted({f"({markers[group]})" for group in wanted}))


def main() -> None:
    """Write the files that have changed."""
    lock = tomllib.loads((ROOT / "poetry.lock").read_text(encoding="utf-8"))
    for name, text in render_all(lock["package"]).items():
        path = FOLDER / name
        # Unchanged files are not written: `make` would repeat the set-up.
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
