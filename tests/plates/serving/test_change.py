"""How one model version is changed for another, without a Triton: step by step."""

from pathlib import Path

import pytest
from version_folders import MODELS, PLATE, make_repository, publish, shown

from plates.serving import change
from plates.serving.change import TRIAL, change_version
from plates.serving.errors import RequestError, VersionError
from plates.serving.versions import View, find_versions


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

    def holds(self, model: str, version: int) -> bool:
        return version in self.loaded.get(model, set())

    def plates(self, photo: bytes, _: float, model: str) -> list[tuple[str, list[float]]]:
        assert photo == b"photo"
        (version,) = self.loaded[model]
        assert all(version in self.loaded[net] for net in ("yolo", "lprnet"))
        return self.reading[version]


BEFORE = {name: {1} for name in MODELS}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    repository = make_repository(tmp_path / "repository")
    publish(repository, 2)
    return repository


@pytest.fixture
def triton(repository: Path, tmp_path: Path) -> LoadingTriton:
    return LoadingTriton(View(tmp_path / "view", find_versions(repository)[1]))


def change_to_2(triton: LoadingTriton, repository: Path) -> None:
    new, old = find_versions(repository)
    change_version(triton, triton.view, old, new)  # type: ignore[arg-type]


def test_a_good_version_is_loaded_beside_tried_and_served(
    triton: LoadingTriton, repository: Path
) -> None:
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


@pytest.mark.parametrize("model", ["yolo", TRIAL])
def test_a_version_that_can_not_be_loaded_leaves_all_as_it_was(
    triton: LoadingTriton, repository: Path, model: str
) -> None:
    triton.broken[model, 2] = RequestError("load failed:\n  no memory", 400)
    with pytest.raises(VersionError, match="load failed: no memory"):
        change_to_2(triton, repository)
    assert shown(triton.view) == triton.loaded == BEFORE


def test_a_version_that_misreads_is_never_served(triton: LoadingTriton, repository: Path) -> None:
    triton.reading[2] = [("X999XX99", PLATE[1])]
    with pytest.raises(VersionError, match=r"must read A123BC77 .* read X999XX99"):
        change_to_2(triton, repository)
    assert "plate_recognition [2]" not in triton.journal
    assert shown(triton.view) == triton.loaded == BEFORE


@pytest.mark.parametrize("file", ["lprnet/2/model.onnx", "yolo/2/model.onnx"])
def test_a_damaged_file_is_not_even_loaded(
    triton: LoadingTriton, repository: Path, file: str
) -> None:
    (repository / file).write_text("cut off")
    with pytest.raises(VersionError, match="is not what was exported"):
        change_to_2(triton, repository)
    assert f"{file.partition('/')[0]} [1, 2]" not in triton.journal
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
    monkeypatch.setattr(change, "_POLL_S", 0.0)
    change_to_2(triton, repository)
    assert asked.count("plate_recognition 1") == 3
