"""Chunks of an archive: their rows, commits, failures, and the recovery after a process died."""

import os
import re
import subprocess
import sys
from collections import Counter
from datetime import datetime

import bulk_cases
import pandas
import pytest
from bulk_cases import WEIGHTS, archive, jpeg, reader, take_listing_of
from PIL import Image
from support import ROOT

from plate_models.spec import MODEL_VERSION
from plates.bulk import BulkError, OutputError
from plates.bulk.output import SCHEMA, Output
from plates.bulk.reading import DEATHS_ALLOWED, Journal

PAGE = (ROOT / "docs" / "archive.md").read_text(encoding="utf-8")


@pytest.fixture
def source(tmp_path):
    (tmp_path / "photos").mkdir()
    return tmp_path / "photos"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "archive"


def die(source, out, place):
    """Run a process that dies in chunk 0."""
    words = (str(source), str(out), "0", place)
    done = subprocess.run([sys.executable, bulk_cases.__file__, *words], capture_output=True)
    assert done.returncode == -9, done.stderr.decode()


def test_rows_have_the_columns_of_the_schema(source, out):
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = "2024:05:06 07:08:09"
    Image.new("L", (32, 24), 25).save(source / "two.jpg", exif=exif)
    (source / "none.jpg").write_bytes(jpeg(5))
    os.utime(source / "none.jpg", (1_700_000_000, 1_700_000_000))
    take_listing_of(source, out)
    assert reader(source, out).read(0) == ""
    table = pandas.read_parquet(out / "plates", dtype_backend="pyarrow")
    assert tuple(table.columns) == tuple(SCHEMA.names)
    none, first, second = table.sort_values(["photo", "plate"]).itertuples()
    assert (first.plate, second.plate) == (0, 1)
    assert (first.text, first.text_native) == ("B840CK197", "В840СК197")
    assert (first.score, first.detection_score) == pytest.approx((0.9, 0.8))
    assert (first.readable, first.lines) == (True, 1)
    assert (first.model_version, first.weights) == (MODEL_VERSION, WEIGHTS)
    assert (first.region_code, first.region_name) == ("197", "Moscow")
    assert (first.x0, first.y0, first.x1, first.y1) == (1, 2, 3, 4)
    assert list(first.quad) == [1, 2, 3, 2, 3, 4, 1, 4]
    assert [candidate["text"] for candidate in first.candidates] == ["B840CK197", "B840CK797"]
    assert first.candidates[1]["score"] == pytest.approx(0.05)
    assert none.plate is pandas.NA and (none.width, none.height) == (32, 24)
    assert (first.time_source, first.time) == ("exif", datetime(2024, 5, 6, 7, 8, 9))
    assert (none.time_source, none.time) == ("file", datetime(2023, 11, 14, 22, 13, 20))


@pytest.mark.parametrize("place", ["third photo", "before the rename", "after the rename"])
def test_no_photo_is_lost_or_doubled_wherever_a_process_dies(source, out, place):
    archive(source, 8)
    take_listing_of(source, out)
    die(source, out, place)
    output = Output(out)
    assert output.committed() == ([0] if place == "after the rename" else [])
    left = [path for path in output.plates.iterdir() if path.name.startswith(".")]
    assert len(left) == (place == "before the rename")
    with output.locked():
        assert not any(path.exists() for path in left)
    reads = reader(source, out)
    for chunk in {0, 1}.difference(output.committed()):
        assert reads.read(chunk) == ""
    rows = Counter(pandas.read_parquet(out / "plates")["photo"])
    assert set(rows) == {str(path) for path in source.rglob("*.jpg")}
    assert sorted(rows.values()) == [1, 1, 1, 1, 1, 1, 2, 2]
    if place != "after the rename":  # then the journal is left, harmlessly
        assert not list(output.work.iterdir())


def test_a_photo_that_crashes_its_reader_is_a_failure_and_the_others_are_read(source, out):
    listing = take_listing_of(archive(source, 4), out)
    for _ in range(DEATHS_ALLOWED):
        die(source, out, "third photo")
    assert reader(source, out).read(0) == ""
    account = Output(out).account(0)
    (failure,) = account.failures
    assert failure.photo == listing.chunk(0)[2].name
    assert (failure.reason, account.deaths) == ("crashes-the-reader", DEATHS_ALLOWED)
    assert pandas.read_parquet(out / "plates")["photo"].nunique() == 3


@pytest.mark.parametrize(
    ("text", "deaths_at"), [("\0\0\0", {}), ("attempt\n0\n1\nattempt\n2\n\0\0", {1: 1, 2: 1})]
)
def test_a_damaged_journal_is_read_up_to_the_damage(tmp_path, text, deaths_at):
    (tmp_path / "chunk-00000007.journal").write_text(text)
    assert Journal(tmp_path, 7).deaths_at == deaths_at


def test_errors_name_a_damaged_part_and_a_missing_listing(source, out):
    with pytest.raises(BulkError, match="all machines share"):
        reader(source, out)
    take_listing_of(archive(source, 4), out)
    reader(source, out).read(0)
    path = out / "plates" / "part-00000000.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(OutputError, match=f"{path}.*Remove the file"):
        Output(out).account(0)


def test_the_code_blocks_of_the_archive_page_run(source, out):
    cells = re.findall(r"^\|([^|]*)\|", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == set(SCHEMA.names)
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for hour, path in enumerate(sorted(archive(source, 9).rglob("*.jpg"))):
        os.utime(path, (1_700_000_000 + 3600 * hour,) * 2)
    for chunk in range(take_listing_of(source, out).chunks):
        reader(source, out).read(chunk)
    command = [sys.executable, "-c", "\n".join(blocks)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=out.parent)
    assert done.returncode == 0, done.stderr
    assert re.search(r"B840CK197\s+9\b", done.stdout)
    assert list(out.parent.glob("*.png"))
