"""Who may import whom."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def imported_roots(path: Path) -> Iterator[str]:
    """First parts of all module names that a file imports, at whatever depth."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield (node.module or "").split(".")[0]


def offenders(folder: str, forbidden: set[str]) -> list[str]:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in imported_roots(path)
        if name in forbidden
    ]


def test_plate_models_knows_neither_http_nor_triton() -> None:
    forbidden = {"api", "fastapi", "grpc", "httpx", "requests", "starlette", "tritonclient"}
    assert not offenders("plate_models", forbidden | {"uvicorn"})


def test_what_only_an_archive_needs_is_imported_when_it_is_read() -> None:
    forbidden = {"aiohttp", "fsspec", "pandas", "pyarrow", "ray"}
    assert not offenders("plate_models", forbidden) + offenders("api", forbidden)


def test_only_the_stubs_code_needs_the_stub() -> None:
    found = offenders("plate_models", {"triton_python_backend_utils"})
    assert found and all(place.startswith("plate_models/backends/") for place in found)


def test_only_one_module_of_the_gateway_knows_triton() -> None:
    assert offenders("api", {"tritonclient"}) == ["api/triton.py: tritonclient"] * 3


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import api.main", {"torch", "onnxruntime", "openvino", "matplotlib", "cv2"}),
        ("import plates.cli.main", {"torch", "fastapi", "tritonclient", "cv2", "numpy"}),
        ("import plates.serving.guardian", {"torch", "numpy", "pytriton", "httpx", "pydantic"}),
        # What it shares with the service would not count in the service's memory.
        ("import plates.benchmarks.serve", {"torch", "numpy", "cv2", "grpc", "tritonclient"}),
        ("import plate_models.spec", {"torch", "numpy", "cv2"}),
        ("import plate_models.spec_json", {"torch", "numpy", "cv2"}),
        ("import plate_models.formats", {"torch", "numpy", "cv2"}),
        ("import plate_models.calibration", {"torch", "numpy", "cv2"}),
        ("import plate_models.images", {"torch"}),
        # What serves photos has none of these, and an archive's command needs torch in helpers.
        (
            "import plates.cli.bulk, plates.bulk.running",
            {"torch", "ray", "pandas", "pyarrow", "fsspec", "cv2"},
        ),
    ],
)
def test_what_is_light_stays_light(statement: str, unwanted: set[str]) -> None:
    assert not loaded_by(statement) & unwanted
