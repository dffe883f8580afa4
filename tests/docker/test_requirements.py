"""The requirement files say what poetry.lock says."""

import importlib.util
import re
import sys
from types import ModuleType
from typing import Any

import pytest
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


def test_no_index_is_named():
    for path in (ROOT / "poetry.lock", *FOLDER.glob("*.txt")):
        # What packages say of themselves may name their homes.
        lines = [line for line in path.read_text().splitlines() if "description = " not in line]
        assert not re.search(r"https?://|--(extra-)?index-url|file:", "\n".join(lines)), path


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
