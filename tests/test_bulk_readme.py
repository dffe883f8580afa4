"""What the README shows of an archive's result runs, on an archive."""

import os
import re
import subprocess
import sys
from pathlib import Path

import bulk_cases
import pytest
from bulk_cases import archive, job_for, listed, reader
from test_readme import FENCE, ROOT

from plates.bulk import chunks

HEADING = "## An archive"
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTION = README.partition(HEADING)[2].partition("\n## ")[0]
BLOCKS = [body for kind, body in FENCE.findall(SECTION) if kind == "python"]


@pytest.mark.skipif(not SECTION, reason=f"README.md has no {HEADING!r} yet")
def test_what_is_shown_of_an_archive_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert any("read_parquet" in block for block in BLOCKS)
    monkeypatch.setattr(chunks, "read_file", bulk_cases.read_file)
    source = archive(tmp_path / "photos", 9)
    for hour, path in enumerate(sorted(source.rglob("*.jpg"))):
        os.utime(path, (1_700_000_000 + 3600 * hour,) * 2)
    out = tmp_path / "archive"
    for chunk in range(listed(source, out).chunks):
        reader(job_for(source, out)).read(chunk)
    code = "\n".join(BLOCKS)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"B840CK197\s+9\b", done.stdout)
    assert list(tmp_path.glob("*.png"))


@pytest.mark.skipif(not SECTION, reason=f"README.md has no {HEADING!r} yet")
def test_its_columns_are_those_that_are_written() -> None:
    from plates.bulk.rows import schema

    named = set(
        re.findall(r"`(\w+)`", " ".join(re.findall(r"^\|([^|]*)\|", SECTION, re.MULTILINE)))
    )
    assert named == set(schema().names)
