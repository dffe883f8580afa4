"""The requirement files say what poetry.lock says, and the lock what pyproject.toml asks."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support import ROOT

FOLDER = ROOT / "docker" / "requirements"


@pytest.fixture(scope="module")
def exporter() -> ModuleType:
    spec = importlib.util.spec_from_file_location("requirements", ROOT / "docker/requirements.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def locked(exporter: ModuleType) -> list[dict[str, Any]]:
    return list(exporter.read_lock())


def names_in(text: str) -> dict[str, set[str]]:
    """Package names and their versions in a requirement file."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


def test_the_files_are_exported_from_this_lock(
    exporter: ModuleType, locked: list[dict[str, Any]]
) -> None:
    expected = exporter.render_all(locked)
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt")}
    assert found == expected, "run `make requirements`"


def test_versions_and_hashes_are_the_locks(locked: list[dict[str, Any]]) -> None:
    # Read independently of the exporter.
    versions = {(package["name"], package["version"]) for package in locked}
    hashes = {file["hash"] for package in locked for file in package["files"]}
    for path in FOLDER.glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        pairs = {(n, v) for n, all_versions in names_in(text).items() for v in all_versions}
        assert pairs and pairs <= versions
        assert set(re.findall(r"--hash=(\S+)", text)) <= hashes


def test_torch_is_locked_by_version_only() -> None:
    assert names_in((FOLDER / "torch.txt").read_text()).keys() == {"torch"}
    assert "hash" not in (FOLDER / "torch.txt").read_text()
    for path in FOLDER.glob("*.txt"):
        heavy = {
            n for n in names_in(path.read_text()) if re.match("torch|triton$|cuda|nvidia-cu", n)
        }
        assert heavy == ({"torch"} if path.name == "torch.txt" else set()), path


def test_each_role_has_what_it_needs_and_no_more() -> None:
    roles = {path.stem: set(names_in(path.read_text())) for path in FOLDER.glob("*.txt")}
    assert {"fastapi", "tritonclient", "grpcio", "numpy"} <= roles["gateway"]
    assert not roles["gateway"] & {"safetensors", "sympy", "onnxruntime", "nvidia-pytriton"}
    assert {"safetensors", "numpy", "sympy"} <= roles["triton"]
    assert not roles["triton"] & {"fastapi", "nvidia-pytriton", "pytest"}
    assert {"nvidia-pytriton", "onnxruntime", "onnx", "fastapi"} <= roles["embedded"]
    assert not roles["embedded"] & {"pytest", "matplotlib"}
    assert roles["gateway"] | roles["triton"] | roles["embedded"] < roles["dev"]


def test_the_lock_satisfies_pyproject(locked: list[dict[str, Any]]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = {"main": project["project"]["dependencies"], **project["dependency-groups"]}
    for group, lines in groups.items():
        for requirement in map(Requirement, lines):
            name = canonicalize_name(requirement.name)
            found = [p for p in locked if p["name"] == name and group in p["groups"]]
            assert found, f"{name} is not locked for {group}: run `make lock`"
            assert all(requirement.specifier.contains(p["version"]) for p in found), name


def test_no_index_is_named() -> None:
    for path in (ROOT / "poetry.lock", *FOLDER.glob("*.txt")):
        # What packages say of themselves may name their homes.
        lines = [line for line in path.read_text().splitlines() if "description = " not in line]
        assert not re.search(r"https?://|--(extra-)?index-url|file:", "\n".join(lines)), path


def test_markers_of_several_groups_are_joined(exporter: ModuleType) -> None:
    package = {
        "name": "a",
        "version": "1",
        "groups": ["one", "two", "three"],
        "markers": {"one": "x == 1", "two": "y == 1"},
        "files": [{"hash": "sha256:1"}],
    }
    render = exporter.render_role
    assert render([package], ("one",)) == "a==1 ; (x == 1) \\\n    --hash=sha256:1\n"
    assert "a==1 ; (x == 1) or (y == 1) \\" in render([package], ("one", "two"))
    assert render([package], ("one", "three")).startswith("a==1 \\")
    assert render([package], ("four",)) == ""


def test_check_tells_what_is_stale(
    exporter: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(exporter, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["requirements.py", "--check"])
    assert exporter.main() == 1
    assert "gateway.txt" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(sys, "argv", ["requirements.py"])
    assert exporter.main() == 0
    monkeypatch.setattr(sys, "argv", ["requirements.py", "--check"])
    assert exporter.main() == 0
