"""The requirement files say what poetry.lock says, and the lock what pyproject.toml asks."""

import importlib.util
import re
import sys
import tomllib
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


def test_what_is_locked_is_what_each_role_needs(locked):
    # Read independently of the exporter.
    versions = {(package["name"], package["version"]) for package in locked}
    hashes = {file["hash"] for package in locked for file in package["files"]}
    texts = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt")}
    for role, text in texts.items():
        pairs = {(n, v) for n, all_versions in names_in(text).items() for v in all_versions}
        assert pairs and pairs <= versions
        assert set(re.findall(r"--hash=(\S+)", text)) <= hashes
        heavy = {n for n in names_in(text) if re.match("torch|triton$|cuda|nvidia-cu", n)}
        assert heavy == ({"torch"} if role == "torch" else set()), role
    # Which build of torch it is, is chosen by the index.
    assert names_in(texts["torch"]).keys() == {"torch"} and "hash" not in texts["torch"]


def test_the_lock_satisfies_pyproject(locked):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = {"main": project["project"]["dependencies"], **project["dependency-groups"]}
    for group, lines in groups.items():
        for requirement in map(Requirement, lines):
            name = canonicalize_name(requirement.name)
            found = [p for p in locked if p["name"] == name and group in p["groups"]]
            assert found, f"{name} is not locked for {group}: run `make lock`"
            assert all(requirement.specifier.contains(p["version"]) for p in found), name


def test_check_names_what_is_stale(exporter, tmp_path, monkeypatch, capsys):
    def main(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["requirements.py", *words])
        return int(exporter.main())

    assert main("--check") == 0, "run `make requirements`"
    monkeypatch.setattr(exporter, "FOLDER", tmp_path)
    assert main("--check") == 1
    assert "gateway.txt" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert main() == 0 == main("--check")
