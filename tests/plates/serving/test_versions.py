"""Model versions without a Triton: which are there, what Triton is shown, how one is changed."""

import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock, call

import pytest
from serving_support import BOX, MODELS, PLATE, make_repository, publish, shown

from plates.serving import versions
from plates.serving.client import TritonHttp
from plates.serving.errors import RequestError, VersionError
from plates.serving.versions import TRIAL, Versions, View, change_version, find_versions


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path / "repository")


# --- which are there ---


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *(("exported.json", None), ("exported.json", ""), ("exported.json", "{")),
        *(("exported.json", "[]"), ("exported.json", "{}"), ("model.py", None)),
        ("exported.json", '{"artifacts": {"a/2/b": "c"}}'),
        ("../../lprnet/2/model.onnx", None),
    ],
)
def test_versions_are_ordered_by_number_and_what_is_not_complete_is_none(repository, file, content):
    for number in (10, 9, 2, 3):
        publish(repository, number)
    for model in MODELS:
        (repository / model / "3").rename(repository / model / "3.off")
    (repository / "plate_recognition" / "2" / file).unlink()
    if content is not None:
        (repository / "plate_recognition" / "2" / file).write_text(content)
    assert [version.number for version in find_versions(repository)] == [10, 9, 1]


# --- which one is chosen ---


@pytest.fixture
def chosen(repository, monkeypatch):
    monkeypatch.setattr(versions, "LOOK_PAUSE_S", 0.0)
    return Versions(repository)


def due(chosen: Versions) -> int | None:
    version = chosen.due()
    return version.number if version else None


def test_a_newer_version_is_due_once_its_files_rest_and_the_older_one_without_it(
    repository, chosen
):
    chosen.prove(find_versions(repository)[0])
    assert due(chosen) is None
    publish(repository, 2)
    newer = find_versions(repository)[0]
    assert chosen.choose() != newer, "what was served is started again"
    assert due(chosen) is None
    os.utime(repository / "yolo" / "2" / "model.onnx", (1, 1))
    assert due(chosen) is None, "it has changed since the last look"
    assert due(chosen) == 2
    chosen.prove(newer)
    pipeline = repository / "plate_recognition"
    (pipeline / "2").rename(pipeline / "2.off")
    assert [due(chosen), due(chosen)] == [None, 1]
    (pipeline / "1").rename(pipeline / "1.off")
    assert [due(chosen), due(chosen)] == [None, None], "the last one stays"


# --- how one is changed for another ---

Spoil = Callable[[Mock, Path], object]


@pytest.fixture
def view(repository, tmp_path):
    """It shows version 1; 2 is there as well."""
    view = View(tmp_path / "view", find_versions(repository)[0])
    publish(repository, 2)
    return view


@pytest.fixture
def triton():
    """Loads everything; what it reads differs a little from what is expected: it may."""
    triton = Mock(spec=TritonHttp)
    triton.plates.return_value = [("", BOX), (PLATE[0], [11.0, 19.0, 112.0, 43.0])]
    triton.holds.return_value = False
    return triton


def unloadable(model: str, message: str, status: int | None = None) -> Spoil:
    def load(name: str) -> None:
        if name == model:
            raise RequestError(message, status)

    return lambda triton, _: setattr(triton.load, "side_effect", load)


def misread(*plates: tuple[str, list[float]]) -> Spoil:
    return lambda triton, _: setattr(triton.plates, "return_value", plates)


MISREAD = r"must read A123BC77 at \[10, 20, 110, 44\], it read"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (unloadable(TRIAL, "load failed:\n  no memory", 400), "load failed: no memory"),
        (lambda _, path: (path / "yolo/2/model.onnx").write_text("cut"), "not what was exported"),
        (lambda _, path: (path / "plate_recognition/2/golden.jpg").unlink(), "golden.jpg"),
        (misread(), f"{MISREAD} nothing"),
        (misread(("A123BC78", BOX)), f"{MISREAD} A123BC78"),
        (misread((PLATE[0], [10.0, 20.0, 110.0, 54.0])), MISREAD),
        (misread(("", BOX)), f"{MISREAD} an unreadable plate"),
    ],
)
def test_a_version_that_can_not_be_served_leaves_all_as_it_was(
    repository, view, triton, spoil, reason
):
    spoil(triton, repository)
    with pytest.raises(VersionError, match=reason):
        change_version(triton, view, find_versions(repository)[0])
    assert call.load("plate_recognition") not in triton.mock_calls
    assert triton.load.mock_calls[-2:] == [call("lprnet"), call("yolo")]
    assert call.unload(TRIAL) in triton.mock_calls
    assert shown(view) == {name: {1} for name in MODELS}


# The last one has just been tried under another name.
@pytest.mark.parametrize(
    ("model", "status"), [("yolo", None), (TRIAL, None), ("plate_recognition", 400)]
)
def test_triton_must_be_restarted_where_it_is_unknown_what_is_loaded(
    repository, view, triton, model, status
):
    unloadable(model, "no answer", status)(triton, repository)
    with pytest.raises(RequestError, match="no answer"):
        change_version(triton, view, find_versions(repository)[0])
