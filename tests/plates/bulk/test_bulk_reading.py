"""Chunks of an archive: what is committed, what is not, and what a death leaves."""

import errno
import io
import os
import re
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path

import bulk_cases
import pandas
import pytest
from bulk_cases import DEATHS, archive, jpeg, listed, reader
from photo_files import BAD
from PIL import Image

from plates.bulk import BulkError, OutputError, output, reading
from plates.bulk.output import Output, schema
from plates.bulk.reading import DEATHS_ALLOWED, Journal


@pytest.fixture(autouse=True)
def no_nets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "read_file", bulk_cases.read_file)


def photos_in(out: Path) -> Counter[str]:
    """How many rows each photo has."""
    return Counter(pandas.read_parquet(out / "plates")["photo"])


def test_rows_have_the_columns_of_the_schema(tmp_path: Path) -> None:
    source, out = tmp_path / "photos", tmp_path / "out"
    source.mkdir()
    (source / "two.jpg").write_bytes(jpeg(25))
    (source / "none.jpg").write_bytes(jpeg(5))
    listed(source, out)
    assert reader(source, out).read(0).problem is None
    table = pandas.read_parquet(out / "plates", dtype_backend="pyarrow")
    assert tuple(table.columns) == tuple(schema().names)
    none, first, second = table.sort_values(["photo", "plate"]).itertuples()
    assert (first.plate, second.plate) == (0, 1)
    assert first.text_native == "В840СК197"
    assert (first.region_code, first.region_name) == ("197", "Moscow")
    assert (first.x0, first.y0, first.x1, first.y1) == (1, 2, 3, 4)
    assert len(first.quad) == 8
    assert [candidate["text"] for candidate in first.candidates] == ["B840CK197", "B840CK797"]
    assert none.plate is pandas.NA and (none.width, none.height) == (32, 24)


def test_a_chunk_holds_plates_photos_without_and_failures(tmp_path: Path) -> None:
    source = archive(tmp_path / "photos", 6)
    (source / "broken.jpg").write_bytes(BAD["truncated jpeg"][0])
    (source / "words.png").write_bytes(b"not an image")
    (source / "empty.gif").write_bytes(b"")
    (source / "notes.txt").write_bytes(b"no photo by its name")
    out = tmp_path / "out"
    listing = listed(source, out, chunk=100)
    assert (listing.photos, listing.chunks) == (9, 1)
    outcome = reader(source, out).read(0)
    assert (outcome.photos, outcome.failed, outcome.problem) == (9, 3, None)
    rows = photos_in(out)
    assert sorted(rows.values()) == [1, 1, 1, 1, 2, 2]  # none and one plate: one row each
    account = Output(out).account(0)
    assert {Path(f.photo).name: f.reason for f in account.failures} == {
        "broken.jpg": "broken-image",
        "words.png": "unsupported-type",
        "empty.gif": "empty-image",
    }
    assert account.plates == 6
    assert not set(rows) & {failure.photo for failure in account.failures}


def test_a_chunk_of_failures_alone_is_committed(tmp_path: Path) -> None:
    source = tmp_path / "photos"
    source.mkdir()
    (source / "a.jpg").write_bytes(b"")
    out = tmp_path / "out"
    listed(source, out)
    assert reader(source, out).read(0).failed == 1
    assert Output(out).committed() == [0]
    assert len(pandas.read_parquet(out / "plates")) == 0


@pytest.mark.parametrize("place", DEATHS)
def test_a_death_anywhere_loses_nothing_and_doubles_nothing(tmp_path: Path, place: str) -> None:
    source, out = archive(tmp_path / "photos", 8), tmp_path / "out"
    listed(source, out)
    words = (str(source), str(out), "0", place)
    done = subprocess.run([sys.executable, bulk_cases.__file__, *words], capture_output=True)
    assert done.returncode == -9, done.stderr.decode()
    output = Output(out)
    assert output.committed() == ([0] if place == "after the rename" else [])
    left = [path for path in output.plates.iterdir() if path.name.startswith(".")]
    assert len(left) == (place in ("before the sync", "before the rename"))
    with output.locked():
        assert not any(path.exists() for path in left)
    reads = reader(source, out)
    for chunk in {0, 1}.difference(output.committed()):
        assert reads.read(chunk).problem is None
    rows = photos_in(out)
    assert set(rows) == {str(path) for path in source.rglob("*.jpg")}
    assert sorted(rows.values()) == [1, 1, 1, 1, 1, 1, 2, 2]
    if place != "after the rename":  # there the journal outlives its chunk, and does no harm
        assert not list(output.work.iterdir())


def test_a_photo_that_kills_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    source, out = archive(tmp_path / "photos", 4), tmp_path / "out"
    listing = listed(source, out)
    for _ in range(DEATHS_ALLOWED):
        words = (str(source), str(out), "0", "third photo")
        done = subprocess.run([sys.executable, bulk_cases.__file__, *words], capture_output=True)
        assert done.returncode == -9
    outcome = reader(source, out).read(0)
    assert (outcome.failed, outcome.deaths, outcome.problem) == (1, DEATHS_ALLOWED, None)
    (failure,) = Output(out).account(0).failures
    assert failure.photo == listing.chunk(0)[2].name
    assert failure.reason == "crashes-the-reader"
    assert len(photos_in(out)) == 3


def test_deaths_at_different_photos_are_no_photos_fault(tmp_path: Path) -> None:
    (tmp_path / "chunk-00000007.journal").write_text(
        "attempt\n0\n1\nattempt\n0\nattempt\n0\n1\n2\n"
    )
    assert Journal(tmp_path, 7).deaths_at == {0: 1, 1: 1, 2: 1}


@pytest.mark.parametrize("damage", ["", "\0\0\0", "attempt\n1\n\0\0", "attempt\n"])
def test_a_damaged_journal_is_no_obstacle(tmp_path: Path, damage: str) -> None:
    (tmp_path / "chunk-00000007.journal").write_text(damage)
    with Journal(tmp_path, 7) as journal:
        journal.begin(1)
    assert not list(tmp_path.iterdir())


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_names_the_chunk_and_the_next_run_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = archive(tmp_path / "photos", 4), tmp_path / "out"
    listed(source, out)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_disk)
        outcome = reader(source, out).read(0)
    assert outcome.problem == "No space left on device"
    assert not list((out / "plates").iterdir())
    assert reader(source, out).read(0).problem is None
    assert len(photos_in(out)) == 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts file systems")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    source, out = archive(tmp_path / "photos", 4), tmp_path / "out"
    out.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(out)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount here")
    try:
        listed(source, out)
        filler = out / "filler"
        with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        outcome = reader(source, out).read(0)
        assert outcome.problem == "No space left on device"
        filler.unlink()
        assert reader(source, out).read(0).problem is None
        assert len(photos_in(out)) == 4
    finally:
        subprocess.run(["umount", "-l", str(out)], check=True)


def test_what_was_there_stays_where_a_file_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "manifest.json"
    output.write_json(path, {"state": "running"})
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        output.write_json(path, {"state": "complete"})
    assert output.read_json(path) == {"state": "running"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifest.json"]


def test_a_damaged_chunk_is_named(tmp_path: Path) -> None:
    source, out = archive(tmp_path / "photos", 4), tmp_path / "out"
    listed(source, out)
    reader(source, out).read(0)
    path = out / "plates" / "part-00000000.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(OutputError, match=f"{path}.*Remove the file"):
        Output(out).account(0)


def test_readers_without_the_listing_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(BulkError, match="all machines share"):
        reader(tmp_path, tmp_path / "elsewhere")


def test_photos_tell_their_time(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = "2024:05:06 07:08:09"
    buffer = io.BytesIO()
    Image.new("RGB", (32, 24)).save(buffer, "JPEG", exif=exif)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(buffer.getvalue())
    (tmp_path / "photos" / "b.jpg").write_bytes(jpeg(5))
    os.utime(tmp_path / "photos" / "b.jpg", (1_700_000_000, 1_700_000_000))
    out = tmp_path / "out"
    listed(tmp_path / "photos", out)
    reader(tmp_path / "photos", out).read(0)
    rows = pandas.read_parquet(out / "plates").sort_values("photo")
    assert rows["time_source"].tolist() == ["exif", "file"]
    assert rows["time"].tolist() == [
        datetime(2024, 5, 6, 7, 8, 9),
        datetime(2023, 11, 14, 22, 13, 20),
    ]


ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "archive.md").read_text(encoding="utf-8")


def test_what_the_page_shows_of_an_archive_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert any("read_parquet" in block for block in blocks)
    source, out = archive(tmp_path / "photos", 9), tmp_path / "archive"
    for hour, path in enumerate(sorted(source.rglob("*.jpg"))):
        os.utime(path, (1_700_000_000 + 3600 * hour,) * 2)
    for chunk in range(listed(source, out).chunks):
        reader(source, out).read(chunk)
    code = "\n".join(blocks)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"B840CK197\s+9\b", done.stdout)
    assert list(tmp_path.glob("*.png"))


def test_the_pages_columns_are_those_that_are_written() -> None:
    cells = re.findall(r"^\|([^|]*)\|", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == set(schema().names)
