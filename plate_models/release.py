"""Files of weights and exports: whether they are complete and match. Light to import."""

import hashlib
import json
from importlib.metadata import version as version_of
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
WEIGHTS_DIR = _PACKAGE.with_name("weights").resolve()
REPOSITORY = _PACKAGE.with_name("model_repository").resolve()
NAMES = ("detector", "rectifier", "recognizer")
SHA256SUMS, CALIBRATION = "SHA256SUMS", "calibration.json"
# The Triton model that calls the nets; its code, the export's manifest, and the photo by which
# servers check that they read as the export did.
PHOTO_MODEL = "plate_recognition"
PIPELINE, MANIFEST, GOLDEN_PHOTO = "model.py", "exported.json", "golden.jpg"
DEFAULT_GOLDEN = _PACKAGE / GOLDEN_PHOTO


class WeightsError(Exception):
    """Weights are missing or damaged, contradict each other, or can't be served."""


def write_manifest(folder: Path = WEIGHTS_DIR) -> Path:
    """List the SHA-256 of weights and calibration, in the form ``sha256sum -c`` reads."""
    manifest = folder / SHA256SUMS
    lines = [f"{sha256_of(path)}  {path.name}\n" for path in _files(folder)]
    return replace_file(manifest, "".join(lines).encode("ascii"))


def replace_file(path: Path, content: bytes | memoryview) -> Path:
    """Write a file atomically and return its path: if the disk is full, the old file stays."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    return partial.replace(path)


def _files(folder: Path) -> list[Path]:
    files = [folder / f"{name}.safetensors" for name in NAMES]
    for path in files:
        if not path.is_file():
            raise WeightsError(f"{path} is missing: train it, or copy the released one")
    return [*files, *folder.glob(CALIBRATION)]


def check_manifest(folder: Path = WEIGHTS_DIR) -> str:
    """Return "sha256:…" of the manifest; raise WeightsError unless all files match it."""
    manifest = folder / SHA256SUMS
    if not manifest.is_file():
        raise WeightsError(f"{manifest} is missing: run `plates weights --weights {folder}`")
    text = manifest.read_text(encoding="utf-8", errors="replace")
    expected = {}
    for line in filter(None, map(str.split, text.splitlines())):
        if len(line) != 2:
            raise WeightsError(f"{manifest}: not a line of sha256sum: {' '.join(line)!r}")
        expected[line[1]] = line[0]
    if CALIBRATION in expected and not (folder / CALIBRATION).exists():
        remedy = f"restore it, or run `plates weights --weights {folder}` to read without it"
        raise WeightsError(f"{folder / CALIBRATION} is missing: {remedy}")
    for path in _files(folder):
        if expected.get(path.name) != sha256_of(path):
            raise WeightsError(f"{path}: its SHA-256 is not the one in {manifest.name}")
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sources_of(weights_folder: Path, photo: Path) -> dict[str, str]:
    """Hashes and versions of an export's sources; raises WeightsError as `check_manifest`."""
    return {
        "weights": check_manifest(weights_folder),
        "code": _hash_sources(),
        "torch": version_of("torch"),
        "photo": sha256_of(photo),
    }


def is_current(sources: dict[str, str], repository: Path, version: str) -> bool:
    """Whether a repository holds a complete release of these sources."""
    release = repository / PHOTO_MODEL / version
    try:
        found = json.loads((release / MANIFEST).read_text(encoding="utf-8"))
        artifacts = found["artifacts"]
        artifacts[f"{PHOTO_MODEL}/{version}/{GOLDEN_PHOTO}"] = sources["photo"]
        return (
            all(found[key] == value for key, value in sources.items())
            and (release / PIPELINE).exists()
            and all(sha256_of(repository / name) == digest for name, digest in artifacts.items())
        )
    except (OSError, ValueError, KeyError, TypeError):  # missing or damaged
        return False


def _hash_sources() -> str:
    """Hash all code that reads photos, and the countries' files."""
    files = sorted(path for kind in ("*.py", "*.toml") for path in _PACKAGE.rglob(kind))
    digest = hashlib.sha256()
    for path in files:
        if path.relative_to(_PACKAGE).parts[0] != "training":
            digest.update(path.read_bytes())
    return digest.hexdigest()
