"""`plates read`: photos and videos read in process."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import cv2
import pytest
from command_line import SAMPLES, SCENE, SCENE_TEXT, plates
from photo_files import BAD

from plate_models import weights
from plate_models.images import decode
from plates.cli import main as cli
from plates.cli import output, samples

needs_weights = pytest.mark.skipif(
    not (weights.WEIGHTS_DIR / "SHA256SUMS").exists(), reason="weights/ holds no weights"
)


Read = Callable[..., CompletedProcess[str]]


@pytest.fixture
def read(capsys: pytest.CaptureFixture[str]) -> Read:
    """The command in this process: one of its own takes seconds to load the engines."""

    def run(*words: str) -> CompletedProcess[str]:
        status = cli.main(["read", *words])
        shown = capsys.readouterr()
        return CompletedProcess(words, status, shown.out, shown.err)

    return run


@needs_weights
def test_read_writes_a_table(tmp_path: Path, read: Read) -> None:
    done = read(str(SCENE), "--annotate", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert SCENE_TEXT in done.stdout
    assert "ru.car" in done.stdout
    assert decode((tmp_path / "out" / "green_car.jpg").read_bytes()).shape == (720, 1280, 3)


@needs_weights
def test_read_writes_straightened_plates(tmp_path: Path, read: Read) -> None:
    done = read(str(SCENE), "--crops", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    crop = decode((tmp_path / "out" / f"green_car_plate1_{SCENE_TEXT}.jpg").read_bytes())
    height, width = crop.shape[:2]
    assert 3.5 < width / height < 6  # a plate is 520 mm by 112 mm


@needs_weights
def test_read_goes_on_after_bad_files_and_names_them(tmp_path: Path, read: Read) -> None:
    (tmp_path / "a_truncated.jpg").write_bytes(BAD["truncated jpeg"][0])
    (tmp_path / "b_empty.png").write_bytes(b"")
    (tmp_path / "c_scene.jpg").write_bytes(SCENE.read_bytes())
    done = read(str(tmp_path), str(tmp_path / "nowhere.jpg"), "--json")
    assert done.returncode == 1
    (line,) = map(json.loads, done.stdout.splitlines())
    assert line["file"] == str(tmp_path / "c_scene.jpg")
    assert line["image"] == {"width": 1280, "height": 720}
    assert line["model"] == {"device": "cpu", "engine": "served"}
    assert SCENE_TEXT in [plate["text"] for plate in line["plates"]]
    assert "3 could not be read" in done.stderr
    for name in ("a_truncated.jpg", "b_empty.png", "nowhere.jpg"):
        assert name in done.stderr


@needs_weights
def test_read_writes_csv() -> None:
    done = plates("read", str(SAMPLES), "--csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert tuple(rows[0]) == output.CSV_COLUMNS
    found = {(Path(row["file"]), row["text"]) for row in rows}
    expected = samples.expected_texts(SAMPLES.glob("*.jpg"))
    assert len(expected) >= 5
    for photo, texts in expected.items():
        for text in texts:
            assert (photo, text) in found
    assert all(row["readable"] == ("true" if row["text"] else "false") for row in rows)
    assert "9/9" in done.stderr  # more than a handful: a progress bar


@needs_weights
def test_read_takes_videos(tmp_path: Path, read: Read) -> None:
    path = tmp_path / "drive.avi"
    scene = cv2.imread(str(SCENE))
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 4, scene.shape[1::-1])
    for _ in range(4):
        writer.write(scene)
    writer.release()
    done = read(str(path), "--json", "--annotate", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["frame"], line["time_s"]) for line in lines] == [(0, 0.0), (2, 0.5)]
    for line in lines:
        assert SCENE_TEXT in [plate["text"] for plate in line["plates"]]
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "drive_000000.jpg",
        "drive_000002.jpg",
    }


def test_read_never_replaces_a_photo(tmp_path: Path, read: Read) -> None:
    photo = tmp_path / "scene.jpg"
    photo.write_bytes(SCENE.read_bytes())
    done = read(str(photo), "--annotate", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"plates read: {photo} is one of the photos")
    assert done.stdout == ""
    assert photo.read_bytes() == SCENE.read_bytes()


def test_read_without_weights_says_so(tmp_path: Path, read: Read) -> None:
    done = read(str(SCENE), "--weights", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("plates read: ")
    assert "Traceback" not in done.stderr


def test_long_names_keep_their_end() -> None:
    assert output.shortened("a" * 50 + "/end.jpg", 12) == "…aaa/end.jpg"
    assert output.shortened("short.jpg", 12) == "short.jpg"
