"""What the arguments of `plates read` and `plates demo` mean: files, folders, videos."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from photo_files import GOOD, encode, pattern

from plate_models.images import decode
from plates.cli import CommandError, inputs
from plates.cli.inputs import (
    InputError,
    find_files,
    make_output_folder,
    output_stems,
    pictures,
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name in ("b.jpg", "a.PNG", "sub/c.webp", "sub/b.jpg", "notes.txt", "clip.MP4"):
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def names(files: list[Path], tree: Path) -> list[str]:
    return [path.relative_to(tree).as_posix() for path in files]


def test_folders_mean_every_photo_and_video_below(tree: Path) -> None:
    files, failures = find_files([str(tree)])
    assert names(files, tree) == ["a.PNG", "b.jpg", "clip.MP4", "sub/b.jpg", "sub/c.webp"]
    assert failures == {}


def test_patterns_and_repeated_files(tree: Path) -> None:
    files, _ = find_files([str(tree / "b.jpg"), str(tree / "*.jpg"), str(tree / "**/*.jpg")])
    assert names(files, tree) == ["b.jpg", "sub/b.jpg"]


def test_a_file_is_taken_whatever_its_name(tree: Path) -> None:
    odd = tree / "photo[1].jpg"
    odd.write_bytes(b"")
    files, _ = find_files([str(odd), str(tree / "notes.txt"), str(tree / "missing.jpg")])
    assert names(files, tree) == ["photo[1].jpg", "notes.txt", "missing.jpg"]


def test_arguments_that_mean_nothing_are_failures(tree: Path) -> None:
    (tree / "empty").mkdir()
    files, failures = find_files([str(tree / "empty"), str(tree / "*.tiff")])
    assert files == []
    assert failures.keys() == {str(tree / "empty"), str(tree / "*.tiff")}


def test_outputs_of_one_name_do_not_overwrite_each_other(tree: Path) -> None:
    files = [tree / "b.jpg", tree / "sub/b.jpg", tree / "sub/c.webp"]
    assert list(output_stems(files).values()) == ["b", "b-2", "c"]


def test_numbered_outputs_keep_clear_of_names_that_end_so(tree: Path) -> None:
    files = [tree / "a.jpg", tree / "a-2.jpg", tree / "sub/a.jpg", tree / "sub/a-2.jpg"]
    assert list(output_stems(files).values()) == ["a", "a-2", "a-3", "a-2-2"]


def test_frames_do_not_replace_photos(tree: Path) -> None:
    (tree / "clip_000025.jpg").write_bytes(b"")
    stems = output_stems([tree / "clip.MP4", tree / "clip_000025.jpg"])
    with pytest.raises(CommandError, match=r"clip_000025\.jpg is one of the photos"):
        make_output_folder(tree, stems)


def test_earlier_outputs_are_replaced(tree: Path) -> None:
    (tree / "out").mkdir()
    (tree / "out" / "b.jpg").write_bytes(b"")
    make_output_folder(tree / "out", output_stems([tree / "b.jpg"]))


def test_output_folders_that_can_not_be_made_say_so(tree: Path) -> None:
    with pytest.raises(CommandError, match=r"notes.txt: File exists"):
        make_output_folder(tree / "notes.txt", output_stems([tree / "b.jpg"]))


@pytest.fixture
def video(tmp_path: Path) -> Path:
    """Two seconds at 10 frames a second; each frame is as grey as its number times ten."""
    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (64, 48))
    for number in range(20):
        writer.write(np.full((48, 64, 3), number * 10, np.uint8))
    writer.release()
    return path


@pytest.mark.parametrize(
    ("every_s", "frames"), [(0.5, [0, 5, 10, 15]), (0.7, [0, 7, 14]), (0, list(range(20)))]
)
def test_frames_of_a_video(video: Path, every_s: float, frames: list[int]) -> None:
    found = list(pictures(video, every_s))
    assert [picture.frame for picture in found] == frames
    assert [picture.time_s for picture in found] == [number / 10 for number in frames]
    for picture in found:
        assert picture.image.shape == (48, 64, 3)
        assert abs(int(picture.image.mean()) - picture.frame * 10) < 4


def test_videos_are_in_rgb(tmp_path: Path) -> None:
    path = tmp_path / "red.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (64, 48))
    writer.write(np.full((48, 64, 3), (20, 20, 220), np.uint8))  # OpenCV writes BGR
    writer.release()
    (picture,) = pictures(path, 0)
    assert picture.image[..., 0].mean() > 200 > 50 > picture.image[..., 2].mean()


@pytest.mark.parametrize("name", ["missing.jpg", "missing.mp4", "notes.txt", "clip.MP4"])
def test_files_that_can_not_be_read_say_why(tree: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"\w+"):
        list(pictures(tree / name, 0))


def test_photos_are_read_as_the_service_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "p.jpg"
    path.write_bytes(GOOD["jpeg, orientation 6"])
    (picture,) = inputs.pictures(path, 0)
    assert (picture.image == decode(path.read_bytes())).all()
    path.write_bytes(encode(pattern(), "PNG"))
    (picture,) = inputs.pictures(path, 0)
    assert (picture.image == pattern()).all()
