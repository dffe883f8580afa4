"""Releases without a Triton: which are there, which is chosen, and how it is changed."""

import hashlib
import json
import logging
import os
from pathlib import Path

import pytest
from patience import wait_until

from api.embedded import choosing
from api.embedded.change import Change
from api.embedded.choosing import Releases
from api.embedded.errors import ReleaseError, RequestError, StartError
from api.embedded.releases import Plates, Release, Repository
from api.embedded.view import TRIAL, View

CONFIG = 'backend: "{}"\nmax_batch_size: 1\n'
MODELS = {"yolo": "openvino", "lprnet": "onnxruntime", "plate_recognition": "python"}
PLATE = ("A123BC77", [10.0, 20.0, 110.0, 44.0])


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    folder = tmp_path / "repository"
    for model, backend in MODELS.items():
        (folder / model / "configs").mkdir(parents=True)
        (folder / model / "config.pbtxt").write_text(CONFIG.format("pytorch"))
        (folder / model / "configs" / "cpu.pbtxt").write_text(CONFIG.format(backend))
    publish(folder, 1)
    return Repository(folder, "cpu")


def publish(folder: Path, version: int, plate: tuple[str, list[float]] = PLATE) -> None:
    hashes = {}
    for net in ("yolo", "lprnet"):
        for kind in ("onnx", "pt"):
            name = f"{net}/{version}/model.{kind}"
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(name)
            hashes[name] = hashlib.sha256(name.encode()).hexdigest()
    pipeline = folder / "plate_recognition" / str(version)
    pipeline.mkdir(exist_ok=True)
    (pipeline / "model.py").write_text("pass")
    (pipeline / "golden.jpg").write_bytes(b"photo")
    golden = [{"text": plate[0], "box": plate[1]}]
    manifest = {"artifacts": hashes, "golden": golden}
    (pipeline / "exported.json").write_text(json.dumps(manifest))


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


# --- the view ---


def test_a_view_shows_one_release_and_what_belongs_to_none(
    repository: Repository, tmp_path: Path
) -> None:
    publish(repository.folder, 2)
    (repository.folder / "other" / "7").mkdir(parents=True)
    (repository.folder / "other" / "config.pbtxt").write_text(CONFIG.format("python"))
    newest, old = repository.releases()
    view = View(repository, tmp_path / "view", old)
    assert shown(view) == {"yolo": {1}, "lprnet": {1}, "plate_recognition": {1}, "other": {7}}
    for name in ("config.pbtxt", "configs/cpu.pbtxt"):
        ours = (repository.folder / "yolo" / name).read_text()
        assert (view.folder / "yolo" / name).read_text().startswith(ours)
        assert "version_policy { all { } }" in (view.folder / "yolo" / name).read_text()
    view.add(newest, "yolo")
    assert shown(view)["yolo"] == {1, 2}
    view.set_aside("yolo", old)
    assert shown(view)["yolo"] == {2}
    view.bring_back("yolo", old)
    view.drop("yolo", newest)
    assert shown(view)["yolo"] == {1}


def test_a_view_takes_only_what_was_exported(repository: Repository, tmp_path: Path) -> None:
    (repository.folder / "yolo" / "1" / "model.onnx").write_text("damaged")
    (release,) = repository.releases()
    with pytest.raises(ReleaseError, match=r"yolo/1/model.onnx is not what was exported: expected"):
        View(repository, tmp_path / "view", release)


def shown(view: View) -> dict[str, set[int]]:
    return {
        model.name: {int(version.name) for version in model.glob("[0-9]*")}
        for model in view.folder.iterdir()
    }


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


# --- the change ---


class LoadingTriton:
    """Loads what a view shows; keeps a model as it was when one of its versions is broken.

    Attributes:
        loaded: Model to its versions.
        broken: (model, version) that can't be loaded, to the error.
        reading: What the photo shows to each release's nets.
        journal: What was loaded after each call.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.loaded = shown(view)
        self.broken: dict[tuple[str, int], RequestError] = {}
        self.reading = {1: [PLATE], 2: [PLATE]}
        self.journal: list[str] = []

    def load(self, model: str, _: float) -> None:
        wanted = shown(self.view)[model]
        self.journal.append(f"{model} {sorted(wanted)}")
        for version in wanted:
            if error := self.broken.get((model, version)):
                raise error
        self.loaded[model] = wanted

    def unload(self, model: str, _: float) -> None:
        self.journal.append(f"{model} []")
        if self.loaded.pop(model, None) is None:
            raise RequestError("there is no such model", 400)

    def is_held(self, model: str, version: int) -> bool:
        return version in self.loaded.get(model, set())

    def plates(self, photo: bytes, _: float, model: str) -> list[tuple[str, list[float]]]:
        assert photo == b"photo"
        (version,) = self.loaded[model]
        assert all(version in self.loaded[net] for net in ("yolo", "lprnet"))
        return self.reading[version]


def change_to_2(repository: Repository, folder: Path) -> tuple[LoadingTriton, View, list[Release]]:
    publish(repository.folder, 2)
    new, old = repository.releases()
    view = View(repository, folder / "view", old)
    return LoadingTriton(view), view, [old, new]


def ended(changing: Change) -> Change:
    wait_until(lambda: changing.outcome)
    return changing


def test_a_good_release_is_loaded_beside_tried_and_served(
    repository: Repository, tmp_path: Path
) -> None:
    triton, view, pair = change_to_2(repository, tmp_path)
    assert ended(Change(triton, view, *pair)).outcome == "changed"
    assert triton.journal == [
        "lprnet [1, 2]",
        "yolo [1, 2]",
        f"{TRIAL} [2]",
        f"{TRIAL} []",
        "plate_recognition [2]",
        "lprnet [2]",
        "yolo [2]",
    ]
    assert shown(view) == triton.loaded == {name: {2} for name in MODELS}


BEFORE = {name: {1} for name in MODELS}


@pytest.mark.parametrize("model", ["yolo", TRIAL, "plate_recognition"])
def test_a_release_that_can_not_be_loaded_leaves_all_as_it_was(
    repository: Repository, tmp_path: Path, model: str
) -> None:
    triton, view, pair = change_to_2(repository, tmp_path)
    triton.broken[model, 2] = RequestError("load failed:\n  no memory", 400)
    changing = ended(Change(triton, view, *pair))
    assert (changing.outcome, changing.reason) == ("refused", "load failed: no memory")
    assert shown(view) == triton.loaded == BEFORE


def test_a_release_that_misreads_is_never_served(repository: Repository, tmp_path: Path) -> None:
    triton, view, pair = change_to_2(repository, tmp_path)
    triton.reading[2] = [("X999XX99", PLATE[1])]
    changing = ended(Change(triton, view, *pair))
    assert changing.outcome == "refused"
    assert "must read A123BC77" in changing.reason and "read X999XX99" in changing.reason
    assert "plate_recognition [2]" not in triton.journal
    assert shown(view) == triton.loaded == BEFORE


def test_a_damaged_file_is_not_even_loaded(repository: Repository, tmp_path: Path) -> None:
    triton, view, pair = change_to_2(repository, tmp_path)
    (repository.folder / "lprnet" / "2" / "model.onnx").write_text("cut off")
    changing = ended(Change(triton, view, *pair))
    assert changing.outcome == "refused" and "is not what was exported" in changing.reason
    assert "lprnet [1, 2]" not in triton.journal
    assert shown(view) == triton.loaded == BEFORE


def test_without_an_answer_nobody_knows_what_is_loaded(
    repository: Repository, tmp_path: Path
) -> None:
    triton, view, pair = change_to_2(repository, tmp_path)
    triton.broken["yolo", 2] = RequestError("no answer")
    changing = ended(Change(triton, view, *pair))
    assert (changing.outcome, changing.reason) == ("broken", "no answer")


def test_a_change_is_broken_off_where_something_died(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton, view, pair = change_to_2(repository, tmp_path)
    load = triton.load

    def slow(model: str, timeout_s: float) -> None:
        wait_until(lambda: changing)
        changing[0].cancel()
        load(model, timeout_s)

    changing: list[Change] = []
    monkeypatch.setattr(triton, "load", slow)
    changing.append(Change(triton, view, *pair))
    assert ended(changing[0]).outcome == "refused"
    assert changing[0].reason == "a process died while it was loaded"
    assert shown(view) == triton.loaded == BEFORE
