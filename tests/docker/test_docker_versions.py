"""Versions of Python, torch and Triton agree wherever they are named; poetry.lock has the rest."""

import re
import runpy
import sys
import tomllib
from importlib import metadata

from containers import read_stages
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from support import ROOT

from plate_models.spec import DETECTOR, RECOGNIZER, RECTIFIER
from plates.serving.installation import find_installation

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXPORT = runpy.run_path(str(ROOT / "docker/requirements.py"))["main"]
REQUIREMENTS = ROOT / "docker" / "requirements"
LOCK = tomllib.loads((ROOT / "poetry.lock").read_text(encoding="utf-8"))
README = (ROOT / "docker/README.md").read_text(encoding="utf-8")
COLUMNS = ("triton", "version", "python", "cuda", "driver", "supported", "why")
ROWS = [
    dict(zip(COLUMNS, (cell.strip() for cell in line.strip("|").split("|")), strict=True))
    for line in re.findall(r"^\|.*\|$", README.partition("### Which Triton")[2], re.MULTILINE)[2:]
]
SUPPORTED = [row for row in ROWS if row["supported"].startswith("yes")]
PYTHON_VERSIONS = ((3, 11), (3, 12))
PYTHONS = {f"{major}.{minor}" for major, minor in PYTHON_VERSIONS}


def names_in(text):
    """{package: version} in the text of a requirement file."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def locked(name):
    (version,) = {package["version"] for package in LOCK["package"] if package["name"] == name}
    return str(version)


def base_of(image):
    name, _, tag = read_stages(image)[0].image.rpartition(":")
    return name, tag


def test_python_is_the_same_everywhere():
    asked = SpecifierSet(PROJECT["project"]["requires-python"])
    minors = {f"3.{minor}" for minor in range(8, 20)}
    assert {minor for minor in minors if asked.contains(f"{minor}.1")} == PYTHONS
    script = (ROOT / "docker/setup.sh").read_text()
    assert script.count(str(PYTHON_VERSIONS)) == 1 == script.count("version_info[:2]")
    fetched = set(re.findall(r"--(?:no-bin|managed-python) (\S+)", script))
    assert len(fetched) == 1 and fetched < PYTHONS
    name, tag = base_of("gateway")
    assert base_of("triton-cpu") == (name, tag) and name == "python"
    assert tag.rsplit(".", 1)[0] in PYTHONS
    assert all(set(row["python"].split(", ")) <= PYTHONS for row in SUPPORTED)


def test_torch_is_the_same_everywhere_and_is_in_no_file_with_hashes():
    version = locked("torch")
    assert f"torch =={version}" in PROJECT["dependency-groups"]["torch"]
    assert names_in((REQUIREMENTS / "torch.txt").read_text())["torch"] == version
    assert Version(metadata.version("torch")).public == version
    assert set(re.findall(r"torch (\d+\.\d+\.\d+)", README)) == {version}
    # The package index decides on the build of torch; its CUDA libraries come with it.
    for path in REQUIREMENTS.glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        names = names_in(text)
        assert names
        if path.stem == "torch":
            assert names.keys() == {"torch"} and "hash" not in text
        else:
            assert not [n for n in names if re.match("torch|triton$|cuda|nvidia-cu", n)], path


def test_the_installed_triton_wheel_is_the_one_in_the_table():
    version = locked("nvidia-pytriton")
    (row,) = [row for row in SUPPORTED if row["triton"].startswith("wheel")]
    assert row["triton"] == f"wheel nvidia-pytriton {version}"
    wheel = find_installation()
    assert wheel.is_wheel and metadata.version("nvidia-pytriton") == version
    stubs = {path.name for path in wheel.stub.parent.parent.iterdir()}
    assert stubs >= PYTHONS and f"3.{sys.version_info.minor}" in stubs


def test_the_triton_image_is_the_default_in_the_table_and_the_example():
    name, tag = base_of("triton")
    assert name == "nvcr.io/nvidia/tritonserver"
    (row,) = [row for row in SUPPORTED if row["triton"] == tag]
    assert "default" in row["supported"]
    example = (ROOT / ".env.example").read_text()
    assert f"#TRITON_IMAGE={name}:{tag}\n" in example
    assert "#PYTHON_IMAGE={}:{}\n".format(*base_of("gateway")) in example


def test_the_documented_tensorrt_engines_accept_every_shape_of_the_nets_inputs():
    options = r"--onnx=(\w+)/1/.*?--minShapes=\w+:(\S+) --optShapes=\S+ --maxShapes=\w+:([\dx]+)"
    heights, widths = zip(*DETECTOR.canvases_hw, strict=True)
    smallest, largest = f"{min(heights)}x{min(widths)}", f"{max(heights)}x{max(widths)}"
    plate = "{}x{}".format(*RECTIFIER.rectified_hw)
    assert re.findall(options, README, re.DOTALL) == [
        ("yolo", f"1x3x{smallest}", f"{DETECTOR.max_batch_size}x3x{largest}"),
        ("lprnet", f"1x3x{plate}", f"{RECOGNIZER.max_batch_size}x3x{plate}"),
    ]


def test_requirement_files_match_the_lock(tmp_path, monkeypatch):
    monkeypatch.setitem(EXPORT.__globals__, "FOLDER", tmp_path)
    EXPORT()
    exported, kept = (
        {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.txt")}
        for folder in (tmp_path, REQUIREMENTS)
    )
    assert exported == kept, "run `make requirements`"
