"""Model versions without a Triton: which are there, what Triton is shown, which one is chosen."""

import logging
import os
from pathlib import Path

import pytest
from version_folders import BOX, CONFIG, MODELS, PLATE, make_repository, publish, shown

from plates.serving import versions
from plates.serving.errors import StartError, VersionError
from plates.serving.versions import ModelVersion, Plates, Versions, View, find_versions


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository")


def numbers(repository: Path) -> list[int]:
    return [version.number for version in find_versions(repository)]


# --- what is there ---


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


def test_versions_are_ordered_by_number(repository: Path) -> None:
    for number in (10, 9, 2):
        publish(repository, number)
    assert numbers(repository) == [10, 9, 2, 1]


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
    assert numbers(repository) == [1]


def test_folders_with_other_names_are_none(repository: Path) -> None:
    publish(repository, 2)
    for model in MODELS:
        (repository / model / "2").rename(repository / model / "2.off")
    assert numbers(repository) == [1]


@pytest.mark.parametrize(
    "found",
    [[], [("A123BC78", BOX)], [(PLATE[0], [10.0, 20.0, 110.0, 54.0])], [("", BOX)]],
)
def test_another_reading_is_refused(repository: Path, found: Plates) -> None:
    (version,) = find_versions(repository)
    with pytest.raises(VersionError, match=r"must read A123BC77 at \[10, 20, 110, 44\], it read"):
        version.check(found)


def test_the_same_reading_may_differ_by_pixels_and_have_company(repository: Path) -> None:
    (version,) = find_versions(repository)
    version.check([("", [0.0, 0.0, 5.0, 5.0]), (PLATE[0], [11.0, 19.0, 112.0, 43.0])])


# --- what Triton is shown ---


def test_a_view_shows_one_version_and_what_belongs_to_none(
    repository: Path, tmp_path: Path
) -> None:
    publish(repository, 2)
    (repository / "other" / "7").mkdir(parents=True)
    (repository / "other" / "config.pbtxt").write_text(CONFIG.format("python"))
    newest, old = find_versions(repository)
    view = View(tmp_path / "view", old)
    assert shown(view) == {"yolo": {1}, "lprnet": {1}, "plate_recognition": {1}, "other": {7}}
    for name in ("config.pbtxt", "configs/cpu.pbtxt"):
        text = (view.folder / "yolo" / name).read_text()
        assert text.startswith((repository / "yolo" / name).read_text())
        assert "version_policy { all { } }" in text
    view.add(newest, "yolo")
    assert shown(view)["yolo"] == {1, 2}
    view.drop("yolo", old)
    assert shown(view)["yolo"] == {2}


def test_a_view_takes_only_what_was_exported(repository: Path, tmp_path: Path) -> None:
    (repository / "yolo" / "1" / "model.onnx").write_text("damaged")
    (version,) = find_versions(repository)
    with pytest.raises(VersionError, match=r"yolo/1/model.onnx is not what was exported: expected"):
        View(tmp_path / "view", version)


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


def test_the_newest_is_tried_first_and_the_last_one_is_never_given_up(
    repository: Path, chosen: Versions, caplog: pytest.LogCaptureFixture
) -> None:
    publish(repository, 2)
    log = "line\n... failed to load 'yolo' version 2: out of memory\nline"
    assert choose(chosen).number == 2 and chosen.give_up(choose(chosen), f"Triton ended:\n{log}")
    expected = "Model version 2 is refused, trying an older one: Triton ended: ... failed to load"
    assert expected in caplog.text
    assert choose(chosen).number == 1 and not chosen.give_up(choose(chosen), "it hung")
    assert choose(chosen).number == 1


def test_refused_versions_alone_can_not_be_started(repository: Path, chosen: Versions) -> None:
    chosen.refuse(choose(chosen), "it misreads")
    with pytest.raises(StartError, match=r"No model version in .* can be served:\n- 1: it misread"):
        chosen.choose()


def test_what_was_served_is_started_again_and_then_changed(
    repository: Path, chosen: Versions
) -> None:
    before = serve(chosen)
    publish(repository, 2)
    assert choose(chosen) == before
    assert [due(chosen), due(chosen)] == [None, 2]
    # One crash of what has been served may have other reasons; it is not refused for that.
    assert chosen.give_up(before, "killed") and chosen.refused == {}


def test_a_newer_version_is_due_once_its_files_rest(repository: Path, chosen: Versions) -> None:
    serve(chosen)
    assert due(chosen) is None
    publish(repository, 2)
    assert due(chosen) is None
    os.utime(repository / "yolo" / "2" / "model.onnx", (1, 1))
    assert due(chosen) is None, "it has changed since the last look"
    assert due(chosen) == 2


def test_a_refused_version_is_tried_again_only_when_its_files_change(
    repository: Path, chosen: Versions, caplog: pytest.LogCaptureFixture
) -> None:
    serve(chosen)
    publish(repository, 2)
    chosen.refuse(find_versions(repository)[0], "it misreads")
    assert "Model version 2 is refused, 1 stays: it misreads" in caplog.text
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
