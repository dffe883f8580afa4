"""Render the overlays into rendered/, with kubectl or kustomize: `make kubernetes-render`.

Each file begins with a hash of what it was made from, so that an edit that was not rendered is
noticed without these tools, too. Standard library only.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
OVERLAYS = ("cpu", "gpu", "gpu-full")
_SOURCES = ("base", "components", "overlays")


def head(overlay: str, folder: Path = FOLDER) -> str:
    """How a rendered file begins: with a hash over names and contents of all that is rendered."""
    digest = hashlib.sha256()
    files = [path for part in _SOURCES for path in (folder / part).rglob("*") if path.is_file()]
    for path in sorted(files):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return (
        f"# Rendered by `make kubernetes-render` from overlays/{overlay}; all sources:\n"
        f"# sha256:{digest.hexdigest()}\n"
    )


def render_command() -> list[str] | None:
    """The tool of this machine that renders a folder; None if there is none."""
    for tool in (["kustomize", "build"], ["kubectl", "kustomize"]):
        if shutil.which(tool[0]):
            return tool
    return None


def render(folder: Path, command: list[str]) -> str:
    """Render a folder with a kustomization.yaml; CalledProcessError if the tool refuses it."""
    words = [*command, str(folder)]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603


def main() -> int:
    """Write them; returns the exit status."""
    command = render_command()
    if command is None:
        sys.exit("Neither kustomize nor kubectl is installed; one of them is needed to render.")
    for overlay in OVERLAYS:
        text = head(overlay) + render(FOLDER / "overlays" / overlay, command)
        (FOLDER / "rendered" / f"{overlay}.yaml").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
