"""Releases without a Triton: which are there, and which is chosen."""

import logging
import os
from pathlib import Path

import pytest
from release_folders import MODELS, PLATE, make_repository, publish

from plates.serving import choosing
from plates.serving.choosing import Releases
from plates.serving.errors import ReleaseError, StartError
from plates.serving.releases import Plates, Release, Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(make_repository(tmp_path / "repository"), "cpu")


def versions(repository: Repository) -> list[int]:
    return [release.version for release in repository.releases()]


# --- what is there ---


def test_a_release_is_what_its_profile_serves(repository: Repository) -> None:
    (release,) = repository.releases()
    assert release.version == 1 and release.plates == [PLATE]
    assert release.models == ["lprnet", "yolo", "plate_recognition"]
    files = {"model.py", "golden.jpg", "exported.json"}
    nets = {"yolo/1/model.onnx", "lprnet/1/model.onnx"}
    assert set(release.files) == nets | {f"plate_recognition/1/{name}" for name in files}
    (on_gpu,) = Repository(repository.folder, "gpu").releases()
    assert "yolo/1/model.pt" in on_gpu.files and "yolo/1/model.onnx" not in on_gpu.files


def test_releases_are_ordered_by_number(repository: Repository) -> None:
    for version in (10, 9, 2):
        publish(repository.folder, version)
    assert versions(repository) == [10, 9, 2, 1]


@pytest.mark.parametrize(
    "missing",
    ["plate_recognition/2/exported.json", "plate_recognition/2/model.py", "lprnet/2/model.onnx"],
)
def test_what_is_still_being_copied_is_no_release(repository: Repository, missing: str) -> None:
    publish(repository.folder, 2)
    (repository.folder / missing).unlink()
    assert versions(repository) == [1]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"artifacts": {"a/2/b": "c"}}'])
def test_what_is_no_manifest_makes_no_release(repository: Repository, content: str) -> None:
    publish(repository.folder, 2)
    (repository.folder / "plate_recognition" / "2" / "exported.json").write_text(content)
    assert versions(repository) == [1]


def test_folders_with_other_names_are_none(repository: Repository) -> None:
    publish(repository.folder, 2)
    for model in MODELS:
        (repository.folder / model / "2").rename(repository.folder / model / "2.off")
    assert versions(repository) == [1]


@pytest.mark.parametrize(
    "found",
    [
        [],
        [("A123BC78", PLATE[1])],
        [(PLATE[0], [10.0, 20.0, 110.0, 54.0])],
        [("", PLATE[1])],
    ],
)
def test_another_reading_is_refused(repository: Repository, found: Plates) -> None:
    (release,) = repository.releases()
    with pytest.raises(ReleaseError, match=r"must read A123BC77 at \[10, 20, 110, 44\], it read"):
        release.check(found)


def test_the_same_reading_may_be_elsewhere_by_a_hair_and_among_others(
    repository: Repository,
) -> None:
    (release,) = repository.releases()
    release.check([("", [0.0, 0.0, 5.0, 5.0]), (PLATE[0], [11.0, 19.0, 112.0, 43.0])])


# --- which one is chosen ---


@pytest.fixture
def releases(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Releases:
    monkeypatch.setattr(choosing, "LOOK_PAUSE_S", 0.0)
    return Releases(repository)


def start(releases: Releases, folder: Path) -> Release:
    folder.mkdir()
    releases.lay_out(folder)
    assert releases.serving is not None
    return releases.serving


def test_a_start_tries_the_newest_and_then_older_ones(
    repository: Repository, releases: Releases, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publish(repository.folder, 2)
    assert start(releases, tmp_path / "first").version == 2
    log = "line\n... failed to load 'yolo' version 2: out of memory\nline"
    assert releases.give_up_start(f"Triton ended:\n{log}")
    assert "Release 2 is refused, trying an older one: Triton ended: ... failed" in caplog.text
    assert start(releases, tmp_path / "second").version == 1
    assert releases.give_up_start("it hung")
    with pytest.raises(StartError, match=r"(?s)can be served:.*- 2: Triton ended.*- 1: it hung"):
        start(releases, tmp_path / "third")


def test_the_only_release_is_tried_again(releases: Releases, tmp_path: Path) -> None:
    start(releases, tmp_path / "first")
    assert not releases.give_up_start("it ended")
    assert start(releases, tmp_path / "second").version == 1 and releases.refused == {}


def test_a_repository_without_releases_is_served_as_it_is(tmp_path: Path) -> None:
    releases = Releases(Repository(tmp_path, "cpu"))
    assert releases.lay_out(tmp_path / "server") == tmp_path
    assert releases.due() is None and not releases.give_up_start("it ended")


def test_what_was_served_is_started_again_and_then_changed(
    repository: Repository, releases: Releases, tmp_path: Path
) -> None:
    releases.prove(start(releases, tmp_path / "first"))
    publish(repository.folder, 2)
    assert start(releases, tmp_path / "second").version == 1
    assert [r.version if (r := releases.due()) else None for _ in range(2)] == [None, 2]
    # One crash of what has been served may have other reasons; it is not given up for that.
    assert releases.give_up_start("killed") and releases.refused == {}


def test_a_newer_release_is_due_once_its_files_rest(
    repository: Repository, releases: Releases, tmp_path: Path
) -> None:
    releases.prove(start(releases, tmp_path / "view"))
    assert releases.due() is None
    publish(repository.folder, 2)
    assert releases.due() is None
    weights = repository.folder / "yolo" / "2" / "model.onnx"
    os.utime(weights, (1, 1))
    assert releases.due() is None, "it has changed since the last look"
    found = releases.due()
    assert found is not None and found.version == 2


def test_a_refused_release_is_tried_again_only_when_its_files_change(
    repository: Repository, releases: Releases, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    releases.prove(start(releases, tmp_path / "view"))
    publish(repository.folder, 2)
    bad = repository.releases()[0]
    releases.refuse(bad, "it misreads")
    assert "Release 2 is refused, 1 stays: it misreads" in caplog.text
    assert [releases.due() for _ in range(3)] == [None] * 3
    assert releases.refused == {"2": "it misreads"}
    os.utime(repository.folder / "lprnet" / "2" / "model.onnx", (1, 1))
    releases.due()
    assert releases.due() is not None and releases.refused == {}


def test_an_interrupted_release_is_tried_once_more(
    repository: Repository, releases: Releases, tmp_path: Path
) -> None:
    releases.prove(start(releases, tmp_path / "view"))
    publish(repository.folder, 2)
    for refused in ({}, {"2": "killed"}):
        releases.interrupt(repository.releases()[0], "killed")
        assert releases.refused == refused


def test_without_the_newest_the_one_before_is_due(
    repository: Repository, releases: Releases, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    publish(repository.folder, 2)
    releases.prove(start(releases, tmp_path / "view"))
    pipeline = repository.folder / "plate_recognition"
    (pipeline / "2").rename(pipeline / "2.off")
    releases.due()
    found = releases.due()
    assert found is not None and found.version == 1
    assert "Changing from release 2 to 1." in caplog.text
    (pipeline / "1").rename(pipeline / "1.off")
    assert [releases.due() for _ in range(2)] == [None, None], "the last one stays"
