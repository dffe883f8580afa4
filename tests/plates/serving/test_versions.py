"""Model versions without a Triton: which are there, what Triton is shown, how one is changed."""

import logging
import os
from pathlib import Path

import pytest
from serving_support import BOX, CONFIG, MODELS, PLATE, make_repository, publish, shown

from plates.serving import versions
from plates.serving.errors import RequestError, StartError, VersionError
from plates.serving.versions import (
    TRIAL,
    ModelVersion,
    Plates,
    Versions,
    View,
    change_version,
    find_versions,
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository")


# --- which are there ---


def test_a_version_is_what_its_manifest_names_and_what_lies_beside(repository: Path) -> None:
    (repository / "yolo" / "1" / "model.plan").touch()
    (repository / "yolo" / "1" / ".hidden").touch()
    (version,) = find_versions(repository)
    assert version.number == 1 and version.plates == [PLATE]
    assert version.nets == ["lprnet", "yolo"]
    nets = {f"{net}/1/model.{kind}" for net in ("yolo", "lprnet") for kind in ("onnx", "pt")}
    files = {"model.py", "golden.jpg", "exported.json", "sleep.py", "text"}
    pipeline = {f"plate_recognition/1/{name}" for name in files}
    assert set(version.files) == nets | pipeline | {"yolo/1/model.plan"}


def test_versions_are_ordered_by_number_and_folders_with_other_names_are_none(
    repository: Path,
) -> None:
    for number in (10, 9, 2, 3):
        publish(repository, number)
    for model in MODELS:
        (repository / model / "3").rename(repository / model / "3.off")
    assert [version.number for version in find_versions(repository)] == [10, 9, 2, 1]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("plate_recognition/2/exported.json", None),
        ("plate_recognition/2/model.py", None),
        ("lprnet/2/model.onnx", None),
        ("plate_recognition/2/exported.json", ""),
        ("plate_recognition/2/exported.json", "{"),
        ("plate_recognition/2/exported.json", "[]"),
        ("plate_recognition/2/exported.json", "{}"),
        ("plate_recognition/2/exported.json", '{"artifacts": {"a/2/b": "c"}}'),
    ],
)
def test_what_lacks_a_file_or_a_manifest_is_no_version(
    repository: Path, file: str, content: str | None
) -> None:
    publish(repository, 2)
    (repository / file).unlink()
    if content is not None:
        (repository / file).write_text(content)
    assert [version.number for version in find_versions(repository)] == [1]


def test_a_view_shows_one_version_and_what_belongs_to_none(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "other" / "7").mkdir(parents=True)
    (repository / "other" / "config.pbtxt").write_text(CONFIG.format("python"))
    (version,) = find_versions(repository)
    view = View(tmp_path / "view", version)
    assert shown(view) == {name: {1} for name in MODELS} | {"other": {7}}
    for name in ("config.pbtxt", "configs/cpu.pbtxt"):
        text = (view.folder / "yolo" / name).read_text()
        assert text.startswith((repository / "yolo" / name).read_text())
        assert "version_policy { all { } }" in text
    (repository / "yolo" / "1" / "model.onnx").write_text("damaged")
    with pytest.raises(VersionError, match=r"yolo/1/model.onnx is not what was exported: expected"):
        View(tmp_path / "another", version)


# --- which one is chosen ---


@pytest.fixture
def chosen(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Versions:
    monkeypatch.setattr(versions, "LOOK_PAUSE_S", 0.0)
    return Versions(repository)


def choose(chosen: Versions) -> ModelVersion:
    version = chosen.choose()
    assert version is not None
    return version


def serve(chosen: Versions) -> ModelVersion:
    chosen.prove(choose(chosen))
    return choose(chosen)


def due(chosen: Versions) -> int | None:
    version = chosen.due()
    return version.number if version else None


def test_the_newest_is_tried_first_and_where_all_were_refused_they_are_tried_anew(
    repository: Path, chosen: Versions, caplog: pytest.LogCaptureFixture
) -> None:
    publish(repository, 2)
    log = "line\n... failed to load 'yolo' version 2: out of memory\nline"
    assert choose(chosen).number == 2
    chosen.refuse(choose(chosen), f"Triton ended:\n{log}")
    short = "Triton ended: ... failed to load 'yolo' version 2: out of memory"
    assert f"Model version 2 is refused: {short}" in caplog.text
    assert chosen.refused == {"2": short}
    assert choose(chosen).number == 1
    chosen.refuse(choose(chosen), "it misreads")
    with pytest.raises(StartError, match=r"(?s)No model .* can be served:.*line\n- 1: it misread"):
        chosen.choose()
    assert choose(chosen).number == 2


def test_what_was_served_is_started_again_and_then_changed(
    repository: Path, chosen: Versions
) -> None:
    before = serve(chosen)
    publish(repository, 2)
    assert choose(chosen) == before
    assert [due(chosen), due(chosen)] == [None, 2]


def test_a_failure_that_may_have_another_cause_is_forgiven_once(
    repository: Path, chosen: Versions
) -> None:
    version = serve(chosen)
    for _ in range(2):
        chosen.refuse(version, "killed", forgive=True)
        assert chosen.refused == {}
        chosen.prove(version)
    chosen.refuse(version, "killed", forgive=True)
    chosen.refuse(version, "killed", forgive=True)
    assert chosen.refused == {"1": "killed"}


def test_a_newer_version_is_due_once_its_files_rest_and_a_refused_one_when_they_change(
    repository: Path, chosen: Versions
) -> None:
    serve(chosen)
    assert due(chosen) is None
    publish(repository, 2)
    assert due(chosen) is None
    os.utime(repository / "yolo" / "2" / "model.onnx", (1, 1))
    assert due(chosen) is None, "it has changed since the last look"
    assert due(chosen) == 2
    chosen.refuse(find_versions(repository)[0], "it misreads")
    assert [due(chosen) for _ in range(3)] == [None] * 3
    assert chosen.refused == {"2": "it misreads"}
    os.utime(repository / "lprnet" / "2" / "model.onnx", (1, 1))
    due(chosen)
    assert due(chosen) == 2 and chosen.refused == {}


def test_without_the_newest_the_one_before_is_due(
    repository: Path, chosen: Versions, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    publish(repository, 2)
    serve(chosen)
    pipeline = repository / "plate_recognition"
    (pipeline / "2").rename(pipeline / "2.off")
    assert [due(chosen), due(chosen)] == [None, 1]
    assert "Changing from model version 2 to 1." in caplog.text
    (pipeline / "1").rename(pipeline / "1.off")
    assert [due(chosen), due(chosen)] == [None, None], "the last one stays"


# --- how one is changed for another ---

BEFORE = {name: {1} for name in MODELS}


class LoadingTriton:
    """Loads what a view shows; keeps a model as it was when one of its versions is broken.

    Attributes:
        loaded: Model to its versions.
        broken: (model, version) that can't be loaded, to the error.
        reading: What the photo shows to each version's nets.
        journal: What was loaded after each call.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.loaded = shown(view)
        self.broken: dict[tuple[str, int], RequestError] = {}
        self.reading: dict[int, Plates] = {1: [PLATE], 2: [PLATE]}
        self.journal: list[str] = []

    def load(self, model: str) -> None:
        wanted = shown(self.view)[model]
        self.journal.append(f"{model} {sorted(wanted)}")
        for version in wanted:
            if error := self.broken.get((model, version)):
                raise error
        self.loaded[model] = wanted

    def unload(self, model: str) -> None:
        self.journal.append(f"{model} []")
        if self.loaded.pop(model, None) is None:
            raise RequestError("there is no such model", 400)

    def holds(self, model: str, version: int) -> bool:
        return version in self.loaded.get(model, set())

    def plates(self, photo: bytes, _: float, model: str) -> Plates:
        assert photo == b"photo"
        (version,) = self.loaded[model]
        assert all(version in self.loaded[net] for net in ("yolo", "lprnet"))
        return self.reading[version]


@pytest.fixture
def triton(repository: Path, tmp_path: Path) -> LoadingTriton:
    triton = LoadingTriton(View(tmp_path / "view", find_versions(repository)[0]))
    publish(repository, 2)
    return triton


def change_to_2(triton: LoadingTriton, repository: Path) -> None:
    change_version(triton, triton.view, find_versions(repository)[0])  # type: ignore[arg-type]


def test_a_good_version_is_loaded_beside_tried_and_served(
    triton: LoadingTriton, repository: Path
) -> None:
    # More plates are no fault, nor a box that is some pixels elsewhere.
    triton.reading[2] = [("", [0.0, 0.0, 5.0, 5.0]), (PLATE[0], [11.0, 19.0, 112.0, 43.0])]
    change_to_2(triton, repository)
    assert triton.journal == [
        "lprnet [1, 2]",
        "yolo [1, 2]",
        f"{TRIAL} [2]",
        f"{TRIAL} []",
        "plate_recognition [2]",
        "lprnet [2]",
        "yolo [2]",
    ]
    assert shown(triton.view) == triton.loaded == {name: {2} for name in MODELS}
    assert triton.view.version.number == 2


def test_a_version_that_can_not_be_loaded_or_is_damaged_leaves_all_as_it_was(
    triton: LoadingTriton, repository: Path
) -> None:
    for model in ("yolo", TRIAL):
        triton.broken = {(model, 2): RequestError("load failed:\n  no memory", 400)}
        with pytest.raises(VersionError, match="load failed: no memory"):
            change_to_2(triton, repository)
        assert shown(triton.view) == triton.loaded == BEFORE
    triton.journal.clear()
    (repository / "yolo/2/model.onnx").write_text("cut off")
    with pytest.raises(VersionError, match="is not what was exported"):
        change_to_2(triton, repository)
    assert "yolo [1, 2]" not in triton.journal
    assert shown(triton.view) == triton.loaded == BEFORE


@pytest.mark.parametrize(
    "found",
    [[], [("A123BC78", BOX)], [(PLATE[0], [10.0, 20.0, 110.0, 54.0])], [("", BOX)]],
)
def test_a_version_that_misreads_is_never_served(
    triton: LoadingTriton, repository: Path, found: Plates
) -> None:
    triton.reading[2] = found
    with pytest.raises(VersionError, match=r"must read A123BC77 at \[10, 20, 110, 44\], it read"):
        change_to_2(triton, repository)
    assert "plate_recognition [2]" not in triton.journal
    assert shown(triton.view) == triton.loaded == BEFORE


@pytest.mark.parametrize(
    ("model", "status"), [("yolo", None), (TRIAL, None), ("plate_recognition", 400)]
)
def test_triton_must_be_restarted_where_it_is_unknown_what_is_loaded(
    triton: LoadingTriton, repository: Path, model: str, status: int | None
) -> None:
    """So too where what has just been tried under another name can't be loaded."""
    triton.broken[model, 2] = RequestError("no answer", status)
    with pytest.raises(RequestError, match="no answer"):
        change_to_2(triton, repository)


def test_old_nets_stay_until_the_last_photo_is_read(
    triton: LoadingTriton, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def holds(model: str, version: int) -> bool:
        asked.append(f"{model} {version}")
        assert model != "plate_recognition" or 1 in triton.loaded["yolo"]
        return asked.count(f"{model} {version}") < 3

    monkeypatch.setattr(triton, "holds", holds)
    monkeypatch.setattr(versions, "_POLL_S", 0.0)
    change_to_2(triton, repository)
    assert asked.count("plate_recognition 1") == 3
