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


def test_torch_and_cuda_come_from_no_hashed_file():
    """Which build of torch it is, is chosen by the index; its CUDA libraries come with it."""
    for path in FOLDER.glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        names = names_in(text)
        assert names
        if path.stem == "torch":
            assert names.keys() == {"torch"} and "hash" not in text
        else:
            assert not [n for n in names if re.match("torch|triton$|cuda|nvidia-cu", n)], path


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
