"""Imports follow the table in ARCHITECTURE.md, without circles; light modules stay light."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter

import pytest
from support import ROOT

from plate_models.engines.nets import load_nets

PACKAGES = ("api", "plate_models", "plates")
HTTP = ("fastapi", "grpc", "httpx", "requests", "starlette", "tritonclient", "uvicorn")
# Runs only offline: renders, trains, measures, and imports weights.
TRAINING = "plate_models.training"


@cache
def modules():
    """The path of each of the project's modules and packages by its dotted name."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    names = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)
    return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}


def imports(path):
    """The full names of what a file imports, also inside functions; our own modules exactly."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in modules() else node.module


def test_modules_do_not_import_each_other_in_a_circle():
    graph = {
        name: {found for found in imports(path) if found in modules() and found != name}
        for name, path in modules().items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which lists the circle


@pytest.mark.parametrize(
    ("package", "forbidden", "allowed_in"),
    [
        ("plate_models", ("api", "plates", TRAINING, "fsspec", "pyarrow", "ray", *HTTP), None),
        (TRAINING, ("api", "plates", "fsspec", "ray", *HTTP), None),
        ("plate_models", ("triton_python_backend_utils",), "plate_models.backends"),
        ("api", ("plates", "torch", "aiohttp", "fsspec", "pandas", "pyarrow", "ray"), None),
        ("api", ("tritonclient",), "api.triton: "),
    ],
)
def test_packages_import_only_what_they_may(package, forbidden, allowed_in):
    found = [
        f"{name}: {imported}"
        for name, path in modules().items()
        if name.startswith(package) and (package == TRAINING or not name.startswith(TRAINING))
        for imported in imports(path)
        if any(imported == root or imported.startswith(f"{root}.") for root in forbidden)
    ]
    assert bool(found) == bool(allowed_in), found
    assert all(place.startswith(str(allowed_in)) for place in found)


def loaded_by(statement):
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        (
            "import api.main",
            {"torch", "onnxruntime", "openvino", "matplotlib", "cv2", "plate_models.pipeline"},
        ),
        ("import plates.cli.main", {"torch", "fastapi", "tritonclient", "cv2", "numpy"}),
        ("import plates.cli.options", {"pydantic"}),
        # All that `--help` of any command loads.
        (
            "from plates.cli import main\nfor name in main.COMMANDS: main.module_of(name)",
            {"torch", "cv2", "tritonclient", "uvicorn", "fastapi"},
        ),
        ("import plates.serving.triton", {"torch", "numpy", "pytriton"}),
        # Memory that the benchmark shares with the service would not count as the service's.
        ("import plates.benchmarks.serve", {"torch", "cv2", "grpc", "tritonclient"}),
        ("import plate_models.spec, plate_models.formats", {"torch", "numpy", "cv2"}),
        ("import plate_models.recognition.calibration", {"torch", "numpy", "cv2"}),
        # `plates bulk` needs Ray and OpenCV only in its workers.
        ("import plates.cli.bulk, plates.bulk.running", {"torch", "ray", "cv2"}),
    ],
)
def test_light_modules_load_no_heavy_libraries(statement, unwanted):
    assert not loaded_by(statement) & unwanted


def test_exported_nets_are_loaded_without_torch():
    load_nets()  # exports the nets if they are not exported yet
    loaded = loaded_by("from plate_models.engines.nets import load_nets\nload_nets()")
    # Importing OpenVINO's converter sends telemetry over the network.
    assert not loaded & {"torch", "onnxruntime", "openvino_telemetry"} and "openvino" in loaded


def test_the_benchmark_shares_no_renderer_with_training():
    loaded = loaded_by(f"import {TRAINING}.benchmark.photos")
    assert f"{TRAINING}.synthetic.ink" in loaded
    renderers = ("crops", "latin", "photo", "plates", "scenes", "wear")
    assert not loaded & {"torch", *(f"{TRAINING}.synthetic.{name}" for name in renderers)}
