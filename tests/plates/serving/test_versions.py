"""Model versions without a Triton: which exist, which is chosen, the golden photo's check."""

import os
from dataclasses import replace
from unittest.mock import Mock

import pytest
from serving_support import BOX, TEXT, make_repository, publish
from support import write_files

from plates.serving import versions
from plates.serving.client import TritonHttp
from plates.serving.errors import StartError, VersionError

MODELS = ("lprnet", "yolo", "plate_recognition")


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path / "repository", MODELS)


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"artifacts": 1}'])
def test_versions_are_ordered_by_number_and_need_a_manifest(repository, content):
    for number in (10, 9, 2, 3):
        publish(repository, number)
    for model in MODELS:
        (repository / model / "3").rename(repository / model / "3.off")
    manifest = repository / "plate_recognition" / "2" / "exported.json"
    manifest.unlink()
    assert [version.number for version in versions.find_versions(repository)] == [10, 9, 1]
    if content is not None:
        manifest.write_text(content)
        _, _, damaged, _ = versions.find_versions(repository)
        with pytest.raises(VersionError, match=r"2/exported.json can't be used \(.*: correct it"):
            versions.View(repository.with_name("view"), damaged)


def test_a_version_may_be_renumbered_and_the_only_one_is_tried_again_after_a_refusal(repository):
    for model in MODELS:
        (repository / model / "1").rename(repository / model / "2")
    chosen = versions.Versions(repository)
    chosen.refuse(chosen.choose(), "no memory")
    with pytest.raises(StartError, match="- 2: no memory"):
        chosen.choose()
    assert chosen.choose().number == 2


def test_triton_sees_a_versions_whole_files_and_models_of_no_version(repository):
    own, policy = {"own/config.pbtxt": b"", "yolo/1/.part": b""}, b"version_policy { all { } }"
    write_files(repository, own | {"yolo/config.pbtxt": policy})
    folder = versions.View(repository.with_name("view"), *versions.find_versions(repository)).folder
    assert [path.name for path in (folder / "yolo" / "1").iterdir()] == ["weights.bin"]
    assert (folder / "own" / "config.pbtxt").exists()
    assert (folder / "yolo" / "config.pbtxt").read_bytes() == policy, "Triton refuses a second one"


def due(chosen):
    return getattr(chosen.due(), "number", None)


def test_a_new_version_is_due_when_its_files_no_longer_change(repository, monkeypatch):
    monkeypatch.setattr(versions, "SEARCH_EVERY_S", 0.0)
    chosen = versions.Versions(repository)
    chosen.prove(versions.find_versions(repository)[0])
    assert due(chosen) is None
    publish(repository, 2)
    newer = versions.find_versions(repository)[0]
    assert chosen.choose() != newer, "a start takes the version that was served"
    assert due(chosen) is None
    os.utime(repository / "yolo" / "2" / "weights.bin", (1, 1))
    assert [due(chosen), due(chosen)] == [None, 2], "its files have changed since the last check"
    chosen.prove(newer)
    pipeline = repository / "plate_recognition"
    (pipeline / "2" / "exported.json").write_text("{}")
    assert [due(chosen), due(chosen)] == [None, None], "it serves, though its manifest is damaged"
    (pipeline / "2").rename(pipeline / "2.off")
    assert [due(chosen), due(chosen)] == [None, 1]
    with pytest.raises(VersionError, match=r"version 2 lacks .*plate_recognition/2/model\.py"):
        versions.View(repository.with_name("view"), newer)  # removed while it was tried
    (pipeline / "1").rename(pipeline / "1.off")
    assert [due(chosen), due(chosen)] == [None, None], "the last version is kept"


@pytest.mark.parametrize(
    ("plates", "reason"),
    [
        ([], r"must read A123BC77 at \[10, 20, 110, 44\], an unreadable plate .*, it read nothing"),
        ([(TEXT, BOX)], "an unreadable plate at .*, it read A123BC77 at"),
        ([("A123BC78", BOX)], "it read A123BC78"),
        ([(TEXT, [10.0, 20.0, 110.0, 54.0])], "it read A123BC77"),
    ],
)
def test_the_golden_photo_must_be_read_as_at_export(repository, plates, reason):
    (version,) = versions.find_versions(repository)
    version = replace(version, plates=[*version.plates, ("", BOX)])
    triton = Mock(spec=TritonHttp)
    # A second plate and a slightly different box are accepted.
    triton.plates.return_value = [("", BOX), (TEXT, [11.0, 19.0, 112.0, 43.0])]
    versions.read_golden_photo(triton, version)
    triton.plates.return_value = plates
    with pytest.raises(VersionError, match=reason):
        versions.read_golden_photo(triton, version)
