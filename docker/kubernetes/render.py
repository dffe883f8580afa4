"""Render the overlays into rendered/, with kubectl or kustomize: `make kubernetes-render`.

Each file begins with a hash of what it was made from: whoever has neither tool still notices an
edit that was not rendered. Standard library only.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
OVERLAYS = ("cpu", "gpu", "gpu-full")
_SOURCES = ("base", "components", "overlays")
_HEAD = "# Rendered by `make kubernetes-render` from overlays/{overlay}; all sources:\n# {digest}\n"


def hash_of_sources(folder: Path = FOLDER) -> str:
    """SHA-256 over the names and contents of everything that is rendered."""
    digest = hashlib.sha256()
    files = [path for part in _SOURCES for path in (folder / part).rglob("*") if path.is_file()]
    for path in sorted(files):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return f"sha256:{digest.hexdigest()}"


def render_command() -> list[str] | None:
    """What renders a folder on this machine; None if nothing does."""
    for tool in (["kustomize", "build"], ["kubectl", "kustomize"]):
        if shutil.which(tool[0]):
            return tool
    return None


def render(folder: Path, command: list[str]) -> str:
    """Render one folder.

    Args:
        folder: Has a kustomization.yaml.
        command: From `render_command`.

    Raises:
        subprocess.CalledProcessError: The tool refuses it; it has said why on stderr.
    """
    done = subprocess.run(  # noqa: S603 - a tool of this machine's, on our own folder
        [*command, str(folder)], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def head(overlay: str, folder: Path = FOLDER) -> str:
    """How a rendered file begins."""
    return _HEAD.format(overlay=overlay, digest=hash_of_sources(folder))


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
