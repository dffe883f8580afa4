"""A run from listing to manifest, with readers in this process instead of Ray's."""

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

from plates.bulk import BulkError, OutputError, SourceError, chunks, running
from plates.bulk.chunks import Job, Outcome
from plates.bulk.manifest import Manifest
from plates.bulk.running import Request


class InProcess:
    """Stands in for the cluster; notes which chunks were asked for."""

    workers = 1
    asked: list[int]

    def __init__(self) -> None:
        self.asked = []
        self.stop_after: int | None = None

    def read(self, job: Job, wanted: Sequence[int]) -> Iterator[Outcome]:
        self.asked += wanted
        reads = reader(job)
        for count, chunk in enumerate(wanted):
            if count == self.stop_after:
                raise KeyboardInterrupt
            yield reads.read(chunk)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> InProcess:
    inside = InProcess()
    monkeypatch.setattr(chunks, "read_file", bulk_cases.read_file)
    monkeypatch.setattr(running, "prepare", lambda _: WEIGHTS)
    monkeypatch.setattr(running, "started", lambda *_: contextlib.nullcontext(inside))
    return inside


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request(str(archive(tmp_path / "photos", 12)), tmp_path / "out", chunk=4)


def run(request: Request) -> Manifest:
    return running.run(request, lambda _: None)


def failed_in(request: Request) -> dict[str, str]:
    lines = (request.out / "failed.csv").read_text(encoding="utf-8").splitlines()
    return {Path(row["photo"]).name: row["reason"] for row in csv.DictReader(lines)}


def photos_of(request: Request) -> list[str]:
    """Photos with rows, each as often as it was counted."""
    rows = pandas.read_parquet(request.out / "plates")
    assert not rows.duplicated(["photo", "plate"]).any()
    return sorted({Path(photo).name for photo in rows["photo"]})


def test_a_finished_run_has_nothing_left_to_do(cluster: InProcess, request_: Request) -> None:
    done = run(request_)
    assert (done.state, done.photos, done.done, done.failed) == ("complete", 12, 12, 0)
    assert cluster.asked == [0, 1, 2]
    again = run(request_)
    assert cluster.asked == [0, 1, 2]
    assert (again.state, again.done, again.plates) == ("complete", 12, done.plates)


def test_a_stopped_run_goes_on(cluster: InProcess, request_: Request) -> None:
    cluster.stop_after = 2
    with pytest.raises(KeyboardInterrupt):
        run(request_)
    kept = json.loads((request_.out / "manifest.json").read_text())
    assert (kept["state"], kept["counts"]["done"]) == ("stopped", 8)
    cluster.stop_after = None
    assert run(request_).state == "complete"
    assert cluster.asked == [0, 1, 2, 2]
    assert len(photos_of(request_)) == 12


def test_other_settings_are_refused(cluster: InProcess, request_: Request) -> None:
    run(request_)
    with pytest.raises(OutputError, match="chunk 4"):
        run(replace(request_, chunk=5))
    assert run(request_).state == "complete"


def test_new_photos_are_read_when_asked_for(cluster: InProcess, request_: Request) -> None:
    run(request_)
    archive(Path(request_.source), 14)
    assert run(request_).photos == 12
    extended = run(replace(request_, extend=True))
    assert (extended.photos, extended.done, extended.state) == (14, 14, "complete")
    assert cluster.asked == [0, 1, 2, 3]
    assert len(photos_of(request_)) == 14


def test_a_source_that_went_away_spoils_nothing(cluster: InProcess, request_: Request) -> None:
    run(request_)
    Path(request_.source).rename(request_.out.parent / "elsewhere")
    with pytest.raises(SourceError, match="no such file"):
        run(replace(request_, extend=True))
    assert json.loads((request_.out / "manifest.json").read_text())["counts"]["done"] == 12
    assert failed_in(request_) == {}


def test_limits_and_extensions_exclude_each_other(cluster: InProcess, request_: Request) -> None:
    limited = replace(request_, limit=5)
    assert run(limited).photos == 5
    with pytest.raises(BulkError, match="leave one of them out"):
        run(replace(limited, extend=True))


def test_failures_are_read_again_when_asked_for(cluster: InProcess, request_: Request) -> None:
    folder = Path(request_.source)
    (folder / "day0" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    lost = folder / "day1" / "001.jpg"
    away = lost.with_suffix(".away")
    (folder / "dangling.jpg").symlink_to(away)  # no file: not listed
    listed = request_.out.parent / "listed"
    lost.rename(listed)
    (folder / "late.jpg").write_bytes(jpeg(15))
    done = run(request_)
    assert failed_in(request_) == {"broken.jpg": "broken-image"}
    assert done.failed == 1
    # The same again, where a photo vanished between listing and reading.
    other = replace(request_, out=request_.out.parent / "other")
    photo = folder / "late.jpg"
    reads = running._follow

    def vanish(*arguments: object) -> None:
        photo.rename(away)
        reads(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "_follow", vanish)
        assert run(other).failed == 2
    assert failed_in(other) == {"broken.jpg": "broken-image", "late.jpg": "missing"}
    away.rename(photo)
    assert run(other).failed == 2
    cluster.asked.clear()
    again = run(replace(other, retry_failed=True))
    assert len(cluster.asked) == 1  # the chunk that may come out better, and no other
    assert (again.failed, again.done, again.state) == (1, 13, "complete")
    assert failed_in(other) == {"broken.jpg": "broken-image"}
    assert photos_of(other) == photos_of(request_)


def test_a_full_disk_costs_the_chunk_and_the_next_run_writes_it(
    cluster: InProcess, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, said = chunks.commit, []

    def full(output: object, account: object, rows: object) -> None:
        if account.chunk == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        commit(output, account, rows)

    with monkeypatch.context() as patched:
        patched.setattr(chunks, "commit", full)
        done = running.run(request_, said.append)
    assert (done.state, done.done) == ("incomplete", 8)
    kept = json.loads((request_.out / "manifest.json").read_text())
    (chunk,) = kept["not_written"]
    assert (chunk["chunk"], chunk["problem"]) == (1, "No space left on device")
    assert run(request_).state == "complete"
    assert cluster.asked == [0, 1, 2, 1]
    assert len(photos_of(request_)) == 12


def test_a_disk_without_room_for_the_manifest_stops_nothing(
    cluster: InProcess, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(request_)
    (request_.out / "plates" / "part-00000001.parquet").unlink()
    said: list[str] = []

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Manifest, "write", full)
    assert running.run(request_, said.append).state == "complete"
    assert any("No space left" in line for line in said)
    assert len(photos_of(request_)) == 12
