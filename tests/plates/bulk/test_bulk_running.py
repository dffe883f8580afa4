"""A run from listing to manifest, with a reader in this process instead of Ray's."""

import contextlib
import csv
import errno
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import bulk_cases
import pandas
import pytest
from bulk_cases import WEIGHTS, archive, jpeg, reader
from photo_files import BAD

from plates.bulk import BulkError, OutputError, Request, reading, running
from plates.bulk.output import Output
from plates.bulk.reading import Journal, Outcome


class InProcess:
    """Stands in for Ray; notes which chunks were asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.stop_after: int | None = None

    def read(self, request: Request, _: str, wanted: Sequence[int]) -> Iterator[Outcome]:
        self.asked += wanted
        reads = reader(request.source, request.out)
        for count, chunk in enumerate(wanted):
            if count == self.stop_after:
                # As a process that is killed with the run leaves it.
                with contextlib.suppress(OSError):
                    journal = Journal(request.out / "work", chunk).__enter__()
                    journal.begin(1)
                raise KeyboardInterrupt
            yield reads.read(chunk)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> InProcess:
    inside = InProcess()
    monkeypatch.setattr(reading, "read_file", bulk_cases.read_file)
    monkeypatch.setattr(running, "prepare", lambda _: WEIGHTS)
    monkeypatch.setattr(running, "read_chunks", inside.read)
    return inside


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request(str(archive(tmp_path / "photos", 12)), tmp_path / "out", chunk=4)


def run(request: Request, said: list[str] | None = None) -> dict[str, object]:
    """The counts of a run, with its state."""
    done = running.run(request, (said if said is not None else []).append)
    assert json.loads((request.out / "manifest.json").read_text()).keys() >= {"written", "began"}
    return {"state": done["state"], **done["counts"]}


def failed_in(request: Request) -> dict[str, str]:
    lines = (request.out / "failed.csv").read_text(encoding="utf-8").splitlines()
    return {Path(row["photo"]).name: row["reason"] for row in csv.DictReader(lines)}


def photos_of(request: Request) -> list[str]:
    """Photos with rows, each as often as it was counted."""
    rows = pandas.read_parquet(request.out / "plates")
    assert not rows.duplicated(["photo", "plate"]).any()
    return sorted({Path(photo).name for photo in rows["photo"]})


def test_a_finished_run_has_nothing_left_to_do(ray: InProcess, request_: Request) -> None:
    done = run(request_)
    assert (done["state"], done["photos"], done["done"], done["failed"]) == ("complete", 12, 12, 0)
    assert ray.asked == [0, 1, 2]
    again = run(request_)
    assert ray.asked == [0, 1, 2]
    assert again == done


def test_a_stopped_run_goes_on_and_blames_no_photo(ray: InProcess, request_: Request) -> None:
    ray.stop_after = 2
    for _ in range(reading.DEATHS_ALLOWED):
        with pytest.raises(KeyboardInterrupt):
            run(request_)
        kept = json.loads((request_.out / "manifest.json").read_text())
        assert (kept["state"], kept["counts"]["done"]) == ("stopped", 8)
        ray.stop_after = 0
    ray.stop_after = None
    said: list[str] = []
    done = run(request_, said)
    assert (done["state"], done["process_deaths"], done["failed"]) == ("complete", 0, 0)
    assert not any("died" in line for line in said)
    assert ray.asked == [0, 1, 2, 2, 2, 2]
    assert len(photos_of(request_)) == 12


def test_files_are_chosen_by_their_bytes(ray: InProcess, request_: Request) -> None:
    folder = Path(request_.source) / "day0"
    (folder / "without_extension").write_bytes(jpeg(15))
    (folder / "photo.dat").write_bytes(jpeg(15))
    (folder / "burst.heics").write_bytes(BAD["heic sequence"][0])
    (folder / "phone").write_bytes(BAD["avif"][0])
    (folder / "raw.dng").write_bytes(bytes.fromhex("49492a00080000000100fe0004000100000001000000"))
    (folder / "words.jpg").write_bytes(b"no photo, but its name says so")
    (folder / "drive.mp4").write_bytes(b"\0\0\0\x18ftypisom" + bytes(100))
    (folder / "letter.doc").write_bytes(b"\xd0\xcf\x11\xe0" + bytes(100))
    (folder / "table.csv").write_bytes(b"companions are left out")
    (folder / ".thumbnail").write_bytes(jpeg(15))
    done = run(request_)
    assert {"without_extension", "photo.dat"} < set(photos_of(request_))
    unread = ("burst.heics", "phone", "raw.dng", "words.jpg")
    assert failed_in(request_) == dict.fromkeys(unread, "unsupported-type")
    assert (done["photos"], done["failed"], done["others"]) == (20, 4, 2)
    kept = json.loads((request_.out / "manifest.json").read_text())
    assert {Path(name).name for name in kept["other_files"]} == {"drive.mp4", "letter.doc"}


def test_a_wrong_source_does_not_claim_the_folder(ray: InProcess, request_: Request) -> None:
    (request_.out.parent / "empty").mkdir()
    for source, message in (("typo", "no such file or folder"), ("empty", "no photos there")):
        with pytest.raises(BulkError, match=message):
            run(replace(request_, source=str(request_.out.parent / source)))
        assert not request_.out.exists()
    assert run(request_)["state"] == "complete"


def test_a_listing_that_fails_midway_does_not_claim_the_folder(
    ray: InProcess, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = running.find_photos

    def cut_off(source: str) -> Iterator[object]:
        yield from find(source)
        raise BulkError("the server went away")

    with monkeypatch.context() as patched, pytest.raises(BulkError, match="went away"):
        patched.setattr(running, "find_photos", cut_off)
        run(request_)
    other = replace(request_, source=str(archive(request_.out.parent / "other", 5)))
    assert run(other)["photos"] == 5


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"source": "/"}, "source '.*photos'"),
        ({"chunk": 5}, "chunk 4"),
        ({"limit": 10}, "limit None"),
        ({"engine": "torch"}, "engine 'served'"),
    ],
)
def test_other_settings_are_refused_by_name(
    ray: InProcess, request_: Request, change: dict[str, object], named: str
) -> None:
    run(request_)
    with pytest.raises(OutputError, match=named):
        run(replace(request_, **change))
    assert run(request_)["state"] == "complete"


def test_other_weights_are_refused(
    ray: InProcess, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(request_)
    monkeypatch.setattr(running, "prepare", lambda _: "sha256:1")
    with pytest.raises(OutputError, match="weights 'sha256:0'"):
        run(request_)


def test_a_folder_of_something_else_is_refused(ray: InProcess, request_: Request) -> None:
    (request_.out / "plates").mkdir(parents=True)
    (request_.out / "plates" / "part-00000000.parquet").write_bytes(b"")
    with pytest.raises(OutputError, match="Give another --out"):
        run(request_)


def test_new_photos_are_read_when_asked_for(ray: InProcess, request_: Request) -> None:
    run(request_)
    archive(Path(request_.source), 14)
    assert run(request_)["photos"] == 12
    extended = run(replace(request_, extend=True))
    counts = extended["photos"], extended["done"], extended["state"]
    assert counts == (14, 14, "complete")
    assert ray.asked == [0, 1, 2, 3]
    assert len(photos_of(request_)) == 14


def test_a_source_that_went_away_spoils_nothing(ray: InProcess, request_: Request) -> None:
    run(request_)
    Path(request_.source).rename(request_.out.parent / "elsewhere")
    with pytest.raises(BulkError, match="no such file"):
        run(replace(request_, extend=True))
    assert json.loads((request_.out / "manifest.json").read_text())["counts"]["done"] == 12
    assert failed_in(request_) == {}


def test_limits_and_extensions_exclude_each_other(ray: InProcess, request_: Request) -> None:
    limited = replace(request_, limit=5)
    assert run(limited)["photos"] == 5
    with pytest.raises(BulkError, match="leave one out"):
        run(replace(limited, extend=True))


def test_failures_are_read_again_when_asked_for(
    ray: InProcess, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(request_.source)
    (folder / "day0" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    (folder / "dangling.jpg").symlink_to(folder / "nowhere")  # no file: not listed
    photo, away = folder / "late.jpg", folder / "late.away"
    photo.write_bytes(jpeg(15))
    read = running.read_chunks

    def vanish(*arguments: object) -> Iterator[Outcome]:  # between listing and reading
        photo.rename(away)
        return read(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(running, "read_chunks", vanish)
        assert run(request_)["failed"] == 2
    assert failed_in(request_) == {"broken.jpg": "broken-image", "late.jpg": "missing"}
    away.rename(photo)
    assert run(request_)["failed"] == 2
    ray.asked.clear()
    again = run(replace(request_, retry_failed=True))
    assert len(ray.asked) == 1  # the chunk that may come out better, and no other
    assert (again["failed"], again["done"], again["state"]) == (1, 14, "complete")
    assert failed_in(request_) == {"broken.jpg": "broken-image"}
    assert len(photos_of(request_)) == 13


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_costs_the_chunk_and_the_next_run_writes_it(
    ray: InProcess, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Output.commit

    def full(output: Output, account: object, rows: object) -> None:
        commit(output, account, rows) if account.chunk != 1 else full_disk()

    with monkeypatch.context() as patched:
        patched.setattr(Output, "commit", full)
        done = run(request_)
    assert (done["state"], done["done"]) == ("incomplete", 8)
    kept = json.loads((request_.out / "manifest.json").read_text())
    (chunk,) = kept["not_written"]
    assert (chunk["chunk"], chunk["problem"]) == (1, "No space left on device")
    assert run(request_)["state"] == "complete"
    assert ray.asked == [0, 1, 2, 1]
    assert len(photos_of(request_)) == 12


def test_a_disk_without_room_for_the_manifest_stops_nothing(
    ray: InProcess, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(request_)
    (request_.out / "plates" / "part-00000001.parquet").unlink()
    said: list[str] = []
    monkeypatch.setattr(running, "write_json", full_disk)
    assert run(request_, said)["state"] == "complete"
    assert any("No space left" in line for line in said)
    assert len(photos_of(request_)) == 12


def test_without_a_terminal_progress_is_lines(
    ray: InProcess,
    request_: Request,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(running, "_REPORT_EVERY_S", 0)
    said: list[str] = []
    run(request_, said)
    assert "12 of 12 files are done, 0 could not be read" in said
    assert capfd.readouterr().err == ""


def test_two_runs_into_one_folder_are_refused(tmp_path: Path) -> None:
    with (
        Output(tmp_path).locked(),
        pytest.raises(OutputError, match=f"process {os.getpid()} .*another --out"),
        Output(tmp_path).locked(),
    ):
        pass
    with Output(tmp_path).locked():  # and it is free again
        pass
