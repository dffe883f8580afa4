"""Chunks and runs of an archive, with a reader in this process instead of Ray's workers."""

import errno
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import bulk_cases
import pandas
import pytest
from bulk_cases import WEIGHTS, archive, jpeg, reader, take_listing_of
from photo_files import BAD
from PIL import Image
from support import ROOT, files_limited_to, forbid, write_files

from plate_models.spec import MODEL_VERSION, Limits
from plates.bulk import BulkError, OutputError, Request, running
from plates.bulk.output import SCHEMA, Output
from plates.bulk.reading import DEATHS_ALLOWED, Journal
from plates.cli.main import main


@pytest.fixture(autouse=True)
def ray(monkeypatch):
    """A fake of Ray that records the requested chunks."""

    def read(request, _, wanted):
        ray.requested += wanted
        reads = reader(request.source, request.out)
        for count, chunk in enumerate(wanted):
            if count == ray.stop_after:
                raise KeyboardInterrupt
            yield chunk, reads.read(chunk)

    ray = SimpleNamespace(requested=[], stop_after=None, read=read)
    monkeypatch.setattr(running, "prepare", lambda _: WEIGHTS)
    monkeypatch.setattr(running, "read_chunks", read)
    return ray


@pytest.fixture
def request_(tmp_path):
    return Request(str(archive(tmp_path / "photos", 12)), tmp_path / "out", chunk=4)


def run(request, say=lambda _: None):
    """Run, and return the state with the counts."""
    done = running.run(request, say)
    return {"state": done["state"], **done["counts"]}


def manifest_of(request):
    return json.loads((request.out / "manifest.json").read_text())


def failed_in(request):
    table = pandas.read_csv(request.out / "failed.csv")
    return {Path(photo).name: why for photo, why in zip(table.photo, table.reason, strict=True)}


def photos_of(request):
    """The names of photos with rows."""
    rows = pandas.read_parquet(request.out / "plates")
    assert not rows.duplicated(["photo", "plate"]).any()
    return {Path(photo).name for photo in rows["photo"]}


def test_a_finished_run_has_nothing_left_to_do(ray, request_, monkeypatch, capfd):
    monkeypatch.setattr(running, "_REPORT_EVERY_S", 0)
    find = running.find_photos  # a web page may link to a photo twice
    monkeypatch.setattr(running, "find_photos", lambda url: (p for p in find(url) for _ in "12"))
    said = []
    done = run(request_, said.append)
    assert (done["state"], done["photos"], done["done"], done["failed"]) == ("complete", 12, 12, 0)
    # Without a terminal, progress is reported in lines.
    assert "12 of 12 files are done, 0 could not be read" in said
    assert capfd.readouterr().err == ""
    assert run(request_) == done
    assert ray.requested == [0, 1, 2]


def test_photos_are_recognized_by_their_first_bytes_not_their_names(request_, monkeypatch, capsys):
    for module in ("reading", "source"):
        monkeypatch.setattr(f"plates.bulk.{module}.LIMITS", Limits(max_bytes=5000))
    files = {
        "huge.jpg": jpeg(15) + bytes(5000),
        **{"without_extension": jpeg(15), "photo.dat": jpeg(15), ".thumbnail": jpeg(15)},
        "burst.heics": BAD["heic sequence"][0],
        "phone": BAD["avif"][0],
        "raw.dng": bytes.fromhex("49492a00080000000100fe0004000100000001000000"),
        "words.JPG": b"no photo, but its name says so",
        "\x1bж.mp4": b"\0\0\0\x18ftypisom" + bytes(100),
        "letter.doc": b"\xd0\xcf\x11\xe0" + bytes(100),
        "table.csv": b"companions are left out",
    }
    write_files(Path(request_.source, "day0"), files)
    done = run(request_)
    assert photos_of(request_) > {"without_extension", "photo.dat"}
    unread = ("burst.heics", "phone", "raw.dng", "words.JPG")
    reasons = dict.fromkeys(unread, "unsupported-type") | {"huge.jpg": "too-many-bytes"}
    assert failed_in(request_) == reasons
    assert (done["photos"], done["failed"], done["others"]) == (21, 5, 2)
    others = {Path(name).name for name in manifest_of(request_)["other_files"]}
    assert others == {"\x1bж.mp4", "letter.doc"}
    assert main(["bulk", request_.source, "--out", str(request_.out), "--chunk=4"]) == 1
    assert r"\x1bж.mp4" in capsys.readouterr().out


def test_a_failed_listing_leaves_the_output_folder_for_another_source(request_, monkeypatch):
    (request_.out.parent / "empty").mkdir()
    bad = os.fsdecode(b"\xff")
    for source, message in (("typo", "No such file"), ("empty", "no photos there"), (bad, "UTF-8")):
        with pytest.raises(BulkError, match=message):
            run(replace(request_, source=str(request_.out.parent / source)))
        assert not request_.out.exists()
    find = running.find_photos

    def cut_off(source):
        yield from find(source)
        raise BulkError("the server went away")

    with monkeypatch.context() as patched, pytest.raises(BulkError, match="went away"):
        patched.setattr(running, "find_photos", cut_off)
        run(request_)
    other = archive(request_.out.parent / "other", 9)
    limited = replace(request_, source=str(other), limit=5)
    assert run(limited)["photos"] == 5
    with pytest.raises(BulkError, match="begun with --limit"):
        run(replace(limited, extend=True))


def test_an_output_folder_refuses_other_sources_settings_and_weights(request_, monkeypatch):
    for name in ("plates/part-00000000.parquet", "manifest.json"):
        write_files(request_.out, {name: b"{}"})
        with pytest.raises(OutputError, match="Give another --out"):
            run(request_)
        (request_.out / name).unlink()
    run(request_)
    for change, named in (
        ({"source": "/"}, "source '.*photos'"),
        ({"chunk": 5}, "chunk 4"),
        ({"limit": 10}, "limit None"),
        ({"engine": "torch"}, "engine 'served'"),
        ({"countries": ("lt", "lv")}, "countries None, now it is 'lt,lv'"),
    ):
        with pytest.raises(OutputError, match=named):
            run(replace(request_, **change))
    assert run(request_)["state"] == "complete"
    (request_.out / "listing.parquet").unlink()
    with pytest.raises(OutputError, match=r"listing\.parquet: expected .* Give another --out"):
        run(request_)
    monkeypatch.setattr(running, "prepare", lambda _: "sha256:1")
    with pytest.raises(OutputError, match="weights 'sha256:0'"):
        run(request_)


def test_ray_gets_each_chunk_once_in_rounds_of_limited_size(request_, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(running, "_ray", started := MagicMock())
    monkeypatch.setattr(running, "_CHUNKS_PER_ROUND", 200)
    make = started.return_value.__enter__.return_value.data.from_items
    batches = make.return_value.map_batches
    batches.return_value.iter_rows = lambda: [n | {"problem": ""} for n in make.call_args.args[0]]
    request, wanted = replace(request_, workers=2, gpus=1), range(3, 453)
    assert list(running.read_chunks(request, WEIGHTS, wanted)) == [(n, "") for n in wanted]
    assert [len(each.args[0]) for each in make.call_args_list] == [200, 200, 50]
    assert batches.call_args.kwargs["num_gpus"] == 0.5


def test_extend_reads_new_photos(ray, request_):
    run(request_)
    archive(Path(request_.source), 14)
    assert run(request_)["photos"] == 12
    extended = run(replace(request_, extend=True))
    assert (extended["photos"], extended["done"], extended["state"]) == (14, 14, "complete")
    assert ray.requested == [0, 1, 2, 3]
    assert len(photos_of(request_)) == 14
    Path(request_.source).rename(request_.out.parent / "elsewhere")
    with pytest.raises(BulkError, match="No such file"):
        run(replace(request_, extend=True))
    assert manifest_of(request_)["counts"]["done"] == 14 and failed_in(request_) == {}


def test_every_run_names_the_folders_that_could_not_be_listed(request_, monkeypatch):
    with monkeypatch.context() as patched:
        forbid(patched, "scandir", "day0")
        run(request_)
        forbid(patched, "scandir", "day1")
        with pytest.raises(BulkError, match="no photos in the folders that can be read"):
            run(replace(request_, out=request_.out / "other"))
    assert run(request_)["folders_not_listed"] == 1
    assert failed_in(request_) == {"day0": "forbidden"}


def test_retry_failed_reads_photos_again_that_may_be_readable_now(ray, request_, monkeypatch):
    folder, photo = Path(request_.source), Path(request_.source, "late.jpg")
    write_files(folder, {"broken.jpg": b"\xff\xd8\xff", photo.name: jpeg(15)})

    def vanish(*arguments):  # between listing and reading
        photo.unlink()
        return ray.read(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(running, "read_chunks", vanish)
        assert run(request_)["failed"] == 2
    assert failed_in(request_) == {"broken.jpg": "broken-image", "late.jpg": "missing"}
    folder.rename(folder.with_name("unmounted"))  # rows of photos that are gone stay
    write_files(folder, {photo.name: jpeg(15)})
    assert run(request_)["failed"] == 2
    ray.requested.clear()
    again = run(replace(request_, retry_failed=True))
    assert len(ray.requested) == 1  # only the chunk with a photo that may be readable now
    assert (again["failed"], again["done"], again["state"]) == (1, 14, "complete")
    assert failed_in(request_) == {"broken.jpg": "broken-image"}
    assert (len(photos_of(request_)), again["plates"]) == (13, 13)


def test_after_a_full_disk_another_run_completes_the_archive(ray, request_, monkeypatch):
    full = "No space left on device"
    mine = write_files(request_.out, {"work/mine.jpg": b"", ".mine.tmp": b""}).rglob("*mine*")
    with files_limited_to(0), pytest.raises(OutputError, match=f"{request_.out}: "):
        run(request_)
    ray.stop_after = 1
    with pytest.raises(KeyboardInterrupt):
        run(request_)
    ray.stop_after = None
    before, said = set(request_.out.rglob("*")), list[str]()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, full)))
        done = running.run(request_, said.append)
    assert (done["state"], done["counts"]["done"]) == ("incomplete", 4)
    assert [(one["chunk"], one["problem"]) for one in done["not_written"]] == [(1, full), (2, full)]
    assert all(any(name in line and full in line for line in said) for name in ("manifest", "csv"))
    # Files from before are unchanged, and no temporary ones are left.
    assert set(request_.out.rglob("*")) == before
    assert manifest_of(request_)["state"] == "stopped"
    assert run(request_)["state"] == "complete" and len(photos_of(request_)) == 12
    assert sorted(path.name for path in mine) == [".mine.tmp", "mine.jpg"]  # a lazy search, run now


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
