"""The `plates` command: reading in process, serving in the foreground, the demonstration."""

import csv
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import httpx
import numpy as np
import pytest
from gateway_fixtures import serving
from photo_files import BAD, GOOD, encode, pattern

from api import cli
from api.commands import CommandError, demo, inputs, output, samples, serve, train
from api.commands.inputs import InputError, find_files, output_stems, pictures
from plate_models import weights
from plate_models.annotate import Mark, annotate, write_jpeg
from plate_models.images import decode

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "tests" / "samples"
SCENE = SAMPLES / "green_car.jpg"
SCENE_TEXT = "X556XM750"

needs_weights = pytest.mark.skipif(
    not (weights.WEIGHTS_DIR / "SHA256SUMS").exists(), reason="weights/ holds no weights"
)


def plates(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "api.cli", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
        timeout=180,
    )


# --- what is on the command line -------------------------------------------------------


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


# --- annotated pictures ----------------------------------------------------------------


def test_annotations_are_drawn_on_a_copy() -> None:
    image = np.zeros((200, 400, 3), np.uint8)
    quad = ((100, 100), (300, 110), (300, 160), (100, 150))
    drawn = annotate(image, [Mark(quad, "B840CK197", True)])
    assert not image.any()
    changed = np.argwhere(drawn.any(axis=2))
    (top, left), (bottom, right) = changed.min(axis=0), changed.max(axis=0)
    assert top < 100 - 5  # the label is above the plate
    assert abs(left - 100) <= 2
    assert abs(bottom - 160) <= 2
    assert right >= 300
    assert not drawn[125:135, 150:250].any()  # the plate itself stays legible


def test_readable_and_unreadable_plates_differ() -> None:
    image = np.zeros((100, 200, 3), np.uint8)
    quad = ((50, 40), (150, 40), (150, 60), (50, 60))
    good, bad = (annotate(image, [Mark(quad, "", readable)]) for readable in (True, False))
    assert (good != bad).any()


@pytest.mark.parametrize("y", [0, 5, 95])
def test_labels_find_room_at_the_edges(y: int) -> None:
    image = np.zeros((100, 300, 3), np.uint8)
    quad = ((250, y), (300, y), (300, y + 5), (250, y + 5))
    drawn = annotate(image, [Mark(quad, "B840CK197", True)])
    assert drawn.any(axis=2).sum() > 1000
    assert annotate(np.zeros((1, 1, 3), np.uint8), [Mark(quad, "A", False)]).shape == (1, 1, 3)


def test_annotated_pictures_are_rgb_files(tmp_path: Path) -> None:
    write_jpeg(tmp_path / "a.jpg", pattern())
    assert np.abs(decode((tmp_path / "a.jpg").read_bytes()).astype(int) - pattern()).mean() < 6


# --- plates read -----------------------------------------------------------------------


@needs_weights
def test_read_writes_a_table(tmp_path: Path) -> None:
    done = plates("read", str(SCENE), "--annotate", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert SCENE_TEXT in done.stdout
    assert "ru.car" in done.stdout
    assert decode((tmp_path / "out" / "green_car.jpg").read_bytes()).shape == (720, 1280, 3)


@needs_weights
def test_read_goes_on_after_bad_files_and_names_them(tmp_path: Path) -> None:
    (tmp_path / "a_truncated.jpg").write_bytes(BAD["truncated jpeg"][0])
    (tmp_path / "b_empty.png").write_bytes(b"")
    (tmp_path / "c_scene.jpg").write_bytes(SCENE.read_bytes())
    done = plates("read", str(tmp_path), str(tmp_path / "nowhere.jpg"), "--json")
    assert done.returncode == 1
    (line,) = map(json.loads, done.stdout.splitlines())
    assert line["file"] == str(tmp_path / "c_scene.jpg")
    assert line["image"] == {"width": 1280, "height": 720}
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
    assert "7/7" in done.stderr  # more than a handful: a progress bar


@needs_weights
def test_read_takes_videos(tmp_path: Path) -> None:
    path = tmp_path / "drive.avi"
    scene = cv2.imread(str(SCENE))
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 4, scene.shape[1::-1])
    for _ in range(4):
        writer.write(scene)
    writer.release()
    done = plates("read", str(path), "--json", "--annotate", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["frame"], line["time_s"]) for line in lines] == [(0, 0.0), (2, 0.5)]
    for line in lines:
        assert SCENE_TEXT in [plate["text"] for plate in line["plates"]]
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "drive_000000.jpg",
        "drive_000002.jpg",
    }


def test_read_without_weights_says_so(tmp_path: Path) -> None:
    done = plates("read", str(SCENE), "--weights", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("plates read: ")
    assert "Traceback" not in done.stderr


# --- arguments of the others -----------------------------------------------------------


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main([name, "--help"])
    assert done.value.code == 0
    assert f"plates {name}" in capsys.readouterr().out


def test_help_loads_neither_torch_nor_the_server() -> None:
    code = (
        "import sys\nfrom api import cli\n"
        "for name in cli.COMMANDS:\n"
        "    try: cli.main([name, '--help'])\n"
        "    except SystemExit: pass\n"
        "print({'torch', 'tritonclient', 'uvicorn', 'fastapi'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize("words", [[], ["fly"], ["read"], ["read", "a.jpg", "--json", "--csv"]])
def test_arguments_that_make_no_sense(words: list[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(words)
    assert done.value.code == 2


def test_training_options_are_the_fields_of_the_experiment() -> None:
    from plate_models.training.recognizer import RecognizerTraining

    words = ["--minutes", "0.5", "--batch-size", "8", "--folder", "somewhere"]
    config = train.parse_options(RecognizerTraining, "recognizer", words)
    assert config == RecognizerTraining(minutes=0.5, batch_size=8, folder=Path("somewhere"))
    with pytest.raises(SystemExit):
        train.parse_options(RecognizerTraining, "recognizer", ["--minuets", "3"])


def test_detector_training_needs_data(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "detector"])
    assert "--data" in capsys.readouterr().err


def test_eval_needs_data(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.delenv("PLATES_DATA", raising=False)
    assert cli.main(["eval"]) == 1
    assert "PLATES_DATA" in capsys.readouterr().err


# --- serve and demo --------------------------------------------------------------------


def test_serve_says_which_setting_is_wrong() -> None:
    done = plates("serve", PLATES_PORT="eighty")
    assert done.returncode == 1
    assert "PLATES_PORT" in done.stderr
    assert "Traceback" not in done.stderr


def test_serve_says_that_its_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = plates("serve", PLATES_PORT=port, PLATES_TRITON_URL="127.0.0.1:1")
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "PLATES_PORT" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_stops_cleanly_on_a_signal(number: signal.Signals) -> None:
    environment = {"PLATES_PORT": "0", "PLATES_TRITON_URL": "127.0.0.1:1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "api.cli", "serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    for line in process.stdout:
        if line.startswith(serve.LISTENING):
            break
    url = line.removeprefix(serve.LISTENING).split()[0]
    # A connection that is kept open must not hold up the stop.
    with httpx.Client(base_url=url) as client:
        assert client.get("/healthz").status_code == 200
        process.send_signal(number)
        out, errors = process.communicate(timeout=9)
    assert process.returncode == 0
    assert "Stopped." in out
    assert "Traceback" not in errors


@pytest.mark.live
@pytest.mark.control
def test_serve_with_its_own_triton(repository: Path, tmp_path: Path) -> None:
    """Started, ready, and after SIGTERM everything is gone."""
    log = tmp_path / "log"
    with serving(log, PLATES_MODEL_REPOSITORY=str(repository)) as (url, pid):
        for _ in range(100):
            if httpx.get(f"{url}/readyz", timeout=10).status_code == 200:
                break
            time.sleep(0.1)
        answer = httpx.post(
            f"{url}/v1/plates", content=SCENE.read_bytes(), headers={"content-type": "image/jpeg"}
        )
        assert SCENE_TEXT in [plate["text"] for plate in answer.json()["plates"]]
        assert list(Path("/dev/shm").glob(f"plates_{pid}_*"))  # noqa: S108
    assert "Traceback" not in log.read_text()
    # Other servers may run at the same time: segments carry their owner's process id.
    assert not list(Path("/dev/shm").glob(f"plates_{pid}_*"))  # noqa: S108


@pytest.mark.live
@pytest.mark.control
def test_serve_ends_when_its_triton_dies(repository: Path) -> None:
    environment = {"PLATES_PORT": "0", "PLATES_MODEL_REPOSITORY": str(repository)}
    process = subprocess.Popen(
        [sys.executable, "-m", "api.cli", "serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    try:
        for line in process.stdout:
            if line.startswith(serve.LISTENING):
                break
        server = server_below(process.pid)
        assert server is not None, process.stderr.read()
        os.kill(server, signal.SIGKILL)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "Triton has ended by itself" in errors


def server_below(pid: int) -> int | None:
    """The tritonserver among a process's descendants."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if Path(f"/proc/{child}/comm").read_text().strip() == "tritonserver":
            return int(child)
        found = server_below(int(child))
        if found is not None:
            return found
    return None


@pytest.mark.live
@pytest.mark.control
def test_demo_reads_the_samples(repository: Path, tmp_path: Path) -> None:
    environment = {"PLATES_MODEL_REPOSITORY": str(repository)}
    done = plates("demo", "--output", str(tmp_path), **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 of 10 plates of the samples read" in done.stdout
    assert SCENE_TEXT in done.stdout
    assert len(list(tmp_path.glob("*.jpg"))) == 7


@pytest.mark.live
@pytest.mark.control
def test_demo_stops_its_service_when_it_is_stopped(repository: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "api.cli", "demo", "--output", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PLATES_MODEL_REPOSITORY": str(repository)},
    )
    for line in process.stdout:
        if line.startswith(serve.LISTENING):
            break
    url = line.removeprefix(serve.LISTENING).split()[0]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz")


@pytest.fixture
def demo_on(gateway_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the demonstration talk to the tests' gateway instead of starting one."""
    from contextlib import nullcontext

    address = gateway_url.removeprefix("http://")
    monkeypatch.setattr(demo, "_service", lambda: nullcontext(address))
    return None


@pytest.mark.live
@pytest.mark.usefixtures("demo_on")
def test_demo_fails_if_a_plate_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scene.jpg").write_bytes(SCENE.read_bytes())
    (tmp_path / "broken.jpg").write_bytes(BAD["truncated jpeg"][0])
    (tmp_path / "plates.csv").write_text(f"photo,text\nscene.jpg,{SCENE_TEXT}\nscene.jpg,A1\n")
    assert cli.main(["demo", str(tmp_path), "--output", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert "1 of 2 plates of the samples read" in captured.out
    assert "A1 was not read" in captured.err
    assert "broken.jpg" in captured.err


def test_demo_needs_photos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", str(tmp_path)]) == 1
    assert "no photos" in capsys.readouterr().err


def test_two_plates_of_one_text_must_be_read_twice() -> None:
    assert samples.missing_texts(["A", "A", "B"], ["A", "B", "C"]) == ["A"]
    assert samples.missing_texts(["A"], ["A", "A"]) == []


def test_expectations_belong_to_the_folder_of_the_photo(tmp_path: Path) -> None:
    (tmp_path / "plates.csv").write_text("photo,text\na.jpg,X\na.jpg,Y\n")
    (tmp_path / "sub").mkdir()
    expected = samples.expected_texts([tmp_path / "a.jpg", tmp_path / "sub/a.jpg"])
    assert expected == {tmp_path / "a.jpg": ["X", "Y"]}
    (tmp_path / "plates.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match="photo and text"):
        samples.expected_texts([tmp_path / "a.jpg"])


def test_errors_of_commands_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> int:
        raise CommandError("no such thing")

    monkeypatch.setattr("api.commands.weights.run", fail)
    assert cli.main(["weights"]) == 1
    assert capsys.readouterr().err == "plates weights: no such thing\n"


def test_a_closed_pipe_is_no_error() -> None:
    code = (
        "import sys\nfrom api import cli\nfrom api.commands import weights\n"
        "def run(_):\n"
        "    for _ in range(100000): print('line')\n"
        "weights.run = run\n"
        "sys.exit(cli.main(['weights']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(20) == 0
    assert errors == ""


def test_long_names_keep_their_end() -> None:
    assert output.shortened("a" * 50 + "/end.jpg", 12) == "…aaa/end.jpg"
    assert output.shortened("short.jpg", 12) == "short.jpg"


def test_photos_are_read_as_the_service_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "p.jpg"
    path.write_bytes(GOOD["jpeg, orientation 6"])
    (picture,) = inputs.pictures(path, 0)
    assert (picture.image == decode(path.read_bytes())).all()
    path.write_bytes(encode(pattern(), "PNG"))
    (picture,) = inputs.pictures(path, 0)
    assert (picture.image == pattern()).all()
