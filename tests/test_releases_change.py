"""How one release is changed for another, without a Triton: step by step."""

from pathlib import Path

import pytest
from patience import wait_until
from release_folders import CONFIG, MODELS, PLATE, make_repository, publish

from plates.serving.change import Change
from plates.serving.errors import ReleaseError, RequestError
from plates.serving.releases import Release, Repository
from plates.serving.view import TRIAL, View


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(make_repository(tmp_path / "repository"), "cpu")


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
