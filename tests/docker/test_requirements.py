"""The requirement files say what poetry.lock says."""

import re
import sys

from support import ROOT, load_script

FOLDER = ROOT / "docker" / "requirements"
EXPORTER = load_script("docker/requirements.py")


def names_in(text: str) -> dict[str, set[str]]:
    """Package names and their versions in a requirement file."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


def test_what_is_locked_is_what_each_role_needs():
    locked = list(EXPORTER.read_lock())
    # Read independently of the EXPORTER.
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


def test_check_names_what_is_stale(tmp_path, monkeypatch, capsys):
    def main(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["requirements.py", *words])
        return int(EXPORTER.main())

    assert main("--check") == 0, "run `make requirements`"
    monkeypatch.setattr(EXPORTER, "FOLDER", tmp_path)
    assert main("--check") == 1
    assert "gateway.txt" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert main() == 0 == main("--check")
