"""`plates read`: what its arguments mean, and photos and videos read in process."""

import csv
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from photo_files import BAD, GOOD, encode, pattern
from support import SAMPLES, SCENE, SCENE_TEXT, plates

from plate_models import weights
from plate_models.engines import nets
from plate_models.images import decode
from plates.cli import CommandError, read, samples
from plates.cli import main as cli
from plates.cli.inputs import Inputs, Picture, find_inputs, make_output_folder

needs_weights = pytest.mark.skipif(
    not (weights.WEIGHTS_DIR / "SHA256SUMS").exists(), reason="weights/ holds no weights"
)
JPEG, AVIF = encode(pattern(), "JPEG"), BAD["avif"][0]
NAMES = ("b.jpg", "a.PNG", "sub/c.webp", "sub/b.jpg", "notes.txt", "clip.MP4", ".hidden.jpg")

Read = Callable[..., CompletedProcess[str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Read:
    """The command in this process: one of its own takes seconds to load the engines."""

    def run(*words: str) -> CompletedProcess[str]:
        status = cli.main(["read", *words])
        shown = capsys.readouterr()
        return CompletedProcess(words, status, shown.out, shown.err)

    return run


@pytest.fixture
def run_blind(run: Read, monkeypatch: pytest.MonkeyPatch) -> Read:
    """The command with nets that find nothing."""
    blind = SimpleNamespace(engine="none", device="cpu", read=lambda _: [])
    monkeypatch.setattr(nets, "load_nets", lambda *_: blind)
    return run


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name in NAMES:
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def names(inputs: Inputs, tree: Path) -> list[str]:
    return [path.relative_to(tree).as_posix() for path in inputs.kinds]


def frames(path: Path, every_s: float = 0) -> list[Picture]:
    return list(Inputs({path: "video"}).pictures(every_s))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["."], ["a.PNG", "b.jpg", "clip.MP4", "sub/b.jpg", "sub/c.webp"]),
        (["b.jpg", "*.jpg", "**/*.jpg"], ["b.jpg", "sub/b.jpg"]),
        (["[1].jpg", "notes.txt", "gone.jpg"], ["[1].jpg", "notes.txt", "gone.jpg"]),
    ],
)
def test_files_folders_and_patterns(given: list[str], found: list[str], tree: Path) -> None:
    if "[1].jpg" in given:  # which would be a pattern, if there were no such file
        (tree / "[1].jpg").write_bytes(b"")
    inputs = find_inputs([str(tree / name) for name in given])
    assert names(inputs, tree) == found
    assert inputs.failures == {} and inputs.skipped == []


def test_arguments_that_mean_nothing_are_failures(tree: Path) -> None:
    (tree / "empty").mkdir()
    inputs = find_inputs([str(tree / "empty"), str(tree / "*.tiff")])
    assert not inputs.kinds
    assert inputs.failures.keys() == {str(tree / "empty"), str(tree / "*.tiff")}


def test_no_file_of_a_folder_is_dropped_silently(tmp_path: Path, run_blind: Read) -> None:
    for name, data in {
        "photo": JPEG,
        "odd.txt": JPEG,
        "phone.avif": AVIF,
        "renamed.jpg": AVIF,
        "raw": b"FUJIFILMCCD-RAW " + bytes(99),
        "damaged.heic": b"?",
        "letter": b"Dear all",
        "plates.csv": b"a,b",
        ".hidden": b"?",
        "@eaDir/.x/y.jpg": JPEG,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "gone.jpg").symlink_to("nowhere")
    done = run_blind(str(tmp_path), "--json")
    assert done.returncode == 1
    read = {Path(json.loads(line)["file"]).name for line in done.stdout.splitlines()}
    assert read == {"photo", "odd.txt"}
    assert "5 could not be read" in done.stderr
    assert f"{tmp_path / 'phone.avif'}: AVIF files are not read" in done.stderr
    for name in ("renamed.jpg: AVIF", "raw: RAW", "damaged.heic: ", "gone.jpg: No such file"):
        assert f"{tmp_path}/{name}" in done.stderr
    assert f"1 skipped, neither photos nor videos: {tmp_path / 'letter'}\n" in done.stderr
    assert "plates.csv" not in done.stderr and "hidden" not in done.stderr


def test_files_that_are_no_photos_are_named_and_no_failure(tmp_path: Path, run_blind: Read) -> None:
    (tmp_path / "photo.jpg").write_bytes(JPEG)
    for number in range(25):
        (tmp_path / f"{number:02}.bin").write_bytes(b"?")
    done = run_blind(str(tmp_path))
    assert done.returncode == 0
    assert done.stderr.startswith("25 skipped, neither photos nor videos: ")
    assert done.stderr.endswith("19.bin and 5 more\n") and done.stderr.count("\n") == 1


def test_raw_files_are_not_taken_for_their_previews(tmp_path: Path, run_blind: Read) -> None:
    pixels = np.full((20, 30, 3), 200, np.uint8)
    preview = encode(pixels, "TIFF", tiffinfo={254: 1})
    (tmp_path / "photo.nef").write_bytes(preview)
    done = run_blind(str(tmp_path))
    assert done.returncode == 1 and "photo.nef: Of RAW files only" in done.stderr


def test_outputs_of_one_name_do_not_overwrite_each_other(tree: Path) -> None:
    files = [tree / "b.jpg", tree / "sub/b.jpg", tree / "sub/c.webp"]
    assert list(read.output_stems(files).values()) == ["b", "b-2", "c"]
    files = [tree / "a.jpg", tree / "a-2.jpg", tree / "sub/a.jpg", tree / "sub/a-2.jpg"]
    assert list(read.output_stems(files).values()) == ["a", "a-2", "a-3", "a-2-2"]


def test_only_earlier_outputs_are_replaced(tree: Path) -> None:
    (tree / "out").mkdir()
    (tree / "out" / "b.jpg").write_bytes(b"")
    make_output_folder(tree / "out", [tree / "b.jpg"])
    (tree / "clip_000025.jpg").write_bytes(b"")
    with pytest.raises(CommandError, match=r"clip_000025\.jpg is one of the photos"):
        make_output_folder(tree, [tree / "clip.MP4", tree / "clip_000025.jpg"])


@pytest.mark.parametrize("option", ["--annotate", "--crops"])
def test_output_folders_that_can_not_be_made_say_so(
    option: str, tree: Path, run_blind: Read
) -> None:
    (tree / "b.jpg").write_bytes(JPEG)
    done = run_blind(str(tree / "b.jpg"), option, str(tree / "notes.txt"))
    assert done.returncode == 1
    assert done.stderr == f"plates read: {tree / 'notes.txt'}: File exists\n"


def write_video(path: Path, fps: int, *bgr: np.ndarray) -> Path:
    height, width = bgr[0].shape[:2]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), fps, (width, height))
    for frame in bgr:
        writer.write(frame)
    writer.release()
    return path


@pytest.fixture
def video(tmp_path: Path) -> Path:
    """Two seconds at 10 frames a second; each frame is as grey as its number times ten."""
    greys = (np.full((48, 64, 3), number * 10, np.uint8) for number in range(20))
    return write_video(tmp_path / "clip.avi", 10, *greys)


@pytest.mark.parametrize(
    ("every_s", "numbers"), [(0.5, [0, 5, 10, 15]), (0.7, [0, 7, 14]), (0, list(range(20)))]
)
def test_frames_of_a_video(video: Path, every_s: float, numbers: list[int]) -> None:
    found = frames(video, every_s)
    assert [picture.frame for picture in found] == numbers
    assert [picture.time_s for picture in found] == [number / 10 for number in numbers]
    for picture in found:
        assert picture.image.shape == (48, 64, 3)
        assert abs(int(picture.image.mean()) - picture.frame * 10) < 4


def test_videos_are_in_rgb(tmp_path: Path) -> None:
    red = np.full((48, 64, 3), (20, 20, 220), np.uint8)
    (picture,) = frames(write_video(tmp_path / "red.avi", 10, red))
    assert picture.image[..., 0].mean() > 200 > 50 > picture.image[..., 2].mean()


@pytest.mark.parametrize("name", ["missing.jpg", "missing.mp4", "notes.txt", "clip.MP4"])
def test_files_that_can_not_be_read_say_why(tree: Path, name: str) -> None:
    inputs = find_inputs([str(tree / name)])
    assert not list(inputs.pictures())
    assert list(inputs.failures) == [str(tree / name)] and inputs.failures[str(tree / name)]


def test_the_help_names_the_unit_of_the_pause(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["read", "--help"])
    assert "--every SECONDS" in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_counts_the_frames_of_a_video(
    video: Path, run_blind: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = video.rename(video.with_name("clip"))  # a video by its content
    done = run_blind(str(named), str(SCENE), "--json")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 4 + 1
    assert done.stderr == ""  # not a terminal
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert run_blind(str(named), str(SCENE), "--json").returncode == 0
    assert "21/21" in terminal.getvalue()


def test_photos_are_read_as_the_service_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "p.jpg"
    for data in (GOOD["jpeg, orientation 6"], encode(pattern(), "PNG")):
        path.write_bytes(data)
        (picture,) = Inputs({path: "photo"}).pictures()
        assert (picture.image == decode(data)).all()


ODD = "a\x1b[31m,\r\n\x9bb\u202e.jpg"


def test_names_of_files_can_not_write_to_the_terminal(
    tmp_path: Path, run_blind: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ODD).write_bytes(JPEG)
    (tmp_path / f"x{ODD}").write_bytes(b"?")
    (tmp_path / f"{ODD}.bin").write_bytes(b"?")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    done = run_blind(str(tmp_path), *[str(tmp_path / f"{n}.jpg") for n in range(5)])
    error = printed_error(run_blind, tmp_path)
    assert error.count("\n") == 1
    for text in (done.stdout, terminal.getvalue(), error):
        shown = set(text) - {"\n", "\r"}  # the progress bar returns to the line's start
        assert "a\\x1b[31m,\\r" in text and "\\x9bb\\u202e.jpg" in text
        assert all(character.isprintable() for character in shown)


def printed_error(run: Read, folder: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", shown := Terminal())
        assert run(str(folder / ODD), "--annotate", str(folder)).returncode == 1
    return shown.getvalue()


@pytest.mark.parametrize("name", [ODD, "a\rb.jpg"])
def test_json_and_csv_keep_names(name: str, tmp_path: Path, run: Read) -> None:
    photo = tmp_path / name
    photo.write_bytes(SCENE.read_bytes())
    assert json.loads(run(str(photo), "--json").stdout)["file"] == str(photo)
    (row,) = csv.DictReader(io.StringIO(run(str(photo), "--csv").stdout, newline=""))
    assert row["file"] == str(photo) and row["text"] == SCENE_TEXT


def test_names_that_are_not_text(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.jpg"
    Path(os.fsdecode(name)).write_bytes(SCENE.read_bytes())
    environment = {"PYTHONIOENCODING": "utf-8"}
    line = json.loads(plates("read", str(tmp_path), "--json", **environment).stdout)
    assert os.fsencode(line["file"]) == name
    done = plates("read", str(tmp_path), **environment)
    assert "\\udcff.jpg" in done.stdout and done.returncode == 0


@needs_weights
def test_read_writes_a_table(tmp_path: Path, run: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SAMPLES.parent)
    done = run(str(SCENE), "--annotate", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert f"\nsamples/green_car.jpg {SCENE_TEXT}    ru.car " in done.stdout
    assert decode((tmp_path / "out" / "green_car.jpg").read_bytes()).shape == (720, 1280, 3)


@needs_weights
def test_read_writes_straightened_plates(tmp_path: Path, run: Read) -> None:
    done = run(str(SCENE), "--crops", str(tmp_path / "new" / "out"))
    assert done.returncode == 0, done.stderr
    crop = decode((tmp_path / f"new/out/green_car_plate1_{SCENE_TEXT}.jpg").read_bytes())
    height, width = crop.shape[:2]
    assert 3.5 < width / height < 6  # a plate is 520 mm by 112 mm


@needs_weights
def test_read_goes_on_after_bad_files_and_names_them(tmp_path: Path, run: Read) -> None:
    (tmp_path / "a_truncated.jpg").write_bytes(BAD["truncated jpeg"][0])
    (tmp_path / "b_empty.png").write_bytes(b"")
    (tmp_path / "c_scene.jpg").write_bytes(SCENE.read_bytes())
    done = run(str(tmp_path), str(tmp_path / "nowhere.jpg"), "--json")
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
    assert done.returncode == 0 and done.stderr == ""
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert tuple(rows[0]) == read.CSV_COLUMNS
    found = {(Path(row["file"]), row["text"]) for row in rows}
    expected = samples.expected_texts(SAMPLES.glob("*.jpg"))
    assert len(expected) >= 5
    for photo, texts in expected.items():
        for text in texts:
            assert (photo, text) in found
    assert all(row["readable"] == ("true" if row["text"] else "false") for row in rows)


@needs_weights
def test_read_takes_videos(tmp_path: Path, run: Read) -> None:
    path = write_video(tmp_path / "drive.avi", 4, *[cv2.imread(str(SCENE))] * 4)
    done = run(str(path), "--json", "--annotate", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["frame"], line["time_s"]) for line in lines] == [(0, 0.0), (2, 0.5)]
    for line in lines:
        assert SCENE_TEXT in [plate["text"] for plate in line["plates"]]
    written = {p.name for p in (tmp_path / "out").iterdir()}
    assert written == {"drive_000000.jpg", "drive_000002.jpg"}


def test_read_never_replaces_a_photo(tmp_path: Path, run: Read) -> None:
    photo = tmp_path / "scene.jpg"
    photo.write_bytes(SCENE.read_bytes())
    done = run(str(photo), "--annotate", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"plates read: {photo} is one of the photos")
    assert done.stdout == ""
    assert photo.read_bytes() == SCENE.read_bytes()
