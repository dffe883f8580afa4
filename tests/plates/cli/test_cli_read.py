"""`plates read`: its arguments, the photos and videos it reads, its outputs."""

import csv
import io
import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from photo_files import BAD, encode, pattern
from support import SAMPLES, SCENE, SCENE_TEXT, forbid, write_files

from plate_models import export, release
from plate_models.engines import nets
from plate_models.images import decode
from plate_models.recognition.decoding import Reading
from plates.cli.inputs import find_inputs

JPEG, AVIF = encode(pattern(), "JPEG"), BAD["avif"][0]
# A RAW file begins with a small preview.
RAW = encode(np.full((20, 30, 3), 200, np.uint8), "TIFF", tiffinfo={254: 1})
ODD = "a\x1b[31m,\r\n\x9bb\u202e.jpg"


@pytest.fixture
def run_stub(run, monkeypatch):
    """Run a command with nets that find the plate A001AA77 in every photo."""
    reading = Reading("A001AA77", 0.9, "ru.car", (("A", 0.9),), (("A001AA77", 0.9),))
    quad = ((2, 2), (22, 2), (22, 7), (2, 7))
    plate = SimpleNamespace(box=(2, 2, 22, 7), quad=quad, detection_score=0.75, reading=reading)
    monkeypatch.setattr(nets.Nets, "read", lambda *_: [plate])
    monkeypatch.setattr(nets, "load_nets", lambda *given: nets.Nets(*4 * [None], *given[:2]))
    return run


@pytest.mark.parametrize(
    ("given", "found", "failures"),
    [
        (["."], ["[1].jpg", "a.PNG", "b.jpg", "clip.MP4", "sub/b.jpg", "sub/c.webp"], []),
        (["b.jpg", "*b.jpg", "**/*b.jpg"], ["b.jpg", "sub/b.jpg"], []),
        # "[1].jpg" would be a pattern if there were no such file.
        (["[1].jpg", "notes.txt", "gone.jpg"], ["[1].jpg", "notes.txt", "gone.jpg"], []),
        (["empty", "*.tiff"], [], ["empty", "*.tiff"]),
    ],
)
def test_arguments_are_files_folders_or_patterns(given, found, failures, tmp_path):
    names = ("b.jpg", "a.PNG", "sub/c.webp", "sub/b.jpg", "notes.txt", "clip.MP4", ".hidden.jpg")
    write_files(tmp_path, dict.fromkeys((*names, "[1].jpg"), b""))
    (tmp_path / "empty").mkdir()
    inputs = find_inputs([str(tmp_path / name) for name in given])
    assert [path.relative_to(tmp_path).as_posix() for path in inputs.kinds] == found
    assert list(inputs.failures) == [str(tmp_path / name) for name in failures]
    assert inputs.skipped == []


def test_a_forbidden_folder_does_not_stop_the_other_files(tmp_path, run_stub, monkeypatch):
    write_files(tmp_path, {"a.jpg": JPEG, "private/b.jpg": JPEG})
    forbid(monkeypatch, "stat", "private")
    names = [str(tmp_path / name) for name in ("a.jpg", "private/b.jpg")]
    done = run_stub("read", *names, "--json", "--annotate", str(tmp_path / "seen"))
    assert "a.jpg" in done.stdout and "Traceback" not in done.stderr
    assert {path.name for path in (tmp_path / "seen").iterdir()} == {"a.jpg", "b.jpg"}


def test_no_file_of_a_folder_is_dropped_silently(tmp_path, run_stub):
    read = {"photo": JPEG, "odd.txt": JPEG}
    unread = {
        "phone.avif": (AVIF, "AVIF files are not read"),
        "renamed.jpg": (AVIF, "AVIF"),
        "raw": (b"FUJIFILMCCD-RAW " + bytes(99), "RAW"),
        "photo.nef": (RAW, "RAW files are not read"),
        **dict.fromkeys(("damaged.heic", "damaged.hif", "damaged.jfif"), (b"?", "")),
        "empty.png": (b"", "The"),
        "truncated.jpg": (BAD["truncated jpeg"][0], "The JPEG file is damaged"),
        "clip.MP4": (b"", "This video can't be decoded."),
    }
    write_files(tmp_path, read | {name: data for name, (data, _) in unread.items()})
    write_files(tmp_path, {f"{number:02}.bin": b"?" for number in range(25)})
    write_files(tmp_path, {"plates.csv": b"a,b", ".hidden": b"?", "@eaDir/.x/y.jpg": JPEG})
    (tmp_path / "gone.jpg").symlink_to("nowhere")
    done = run_stub("read", tmp_path, tmp_path / "nowhere.jpg", "--json")
    assert done.returncode == 1
    assert {Path(json.loads(line)["file"]).name for line in done.stdout.splitlines()} == {*read}
    first, *reasons, skipped = done.stderr.splitlines()
    assert first == "12 could not be read:" and len(reasons) == 12
    expected = {name: reason for name, (_, reason) in unread.items()}
    for name, reason in (expected | dict.fromkeys(("gone.jpg", "nowhere.jpg"), "No such")).items():
        assert any(line.startswith(f"  {tmp_path / name}: {reason}") for line in reasons), name
    assert skipped.startswith("25 skipped, neither photos nor videos: ")
    assert skipped.endswith("19.bin and 5 more")
    # Skipped files are no failures.
    for name in (*unread, "gone.jpg"):
        (tmp_path / name).unlink()
    assert run_stub("read", tmp_path).returncode == 0


def test_outputs_replace_only_earlier_outputs(tmp_path, run_stub):
    names = ("a.jpg", "a-2.jpg", "sub/a.jpg", "sub/a-2.jpg", f"{'ж' * 125}.jpg")
    write_files(tmp_path, dict.fromkeys(names, JPEG))
    photos, out = [tmp_path / name for name in names], tmp_path / "out"
    for _ in range(2):
        assert run_stub("read", *photos, "--annotate", out, "--crops", out / "b").returncode == 0
    assert {path.stem for path in out.iterdir()} == {"a", "a-2", "a-3", "a-2-2", "ж" * 100, "b"}
    for option in ("--annotate", "--crops"):
        done = run_stub("read", *photos, option, tmp_path / "sub")
        assert done.returncode == 1 and done.stdout == ""
        assert "is one of the photos and would be replaced" in done.stderr
        done = run_stub("read", SCENE, option, photos[0])
        assert done.stderr == f"plates read: {photos[0]}: File exists\n"


def write_video(path, fps, numbers):
    """Write a video; each frame's number is its time stamp and its shade of grey."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mjpeg", fps, width=64, height=48, pix_fmt="yuvj420p")
        for number in numbers:
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), number, np.uint8))
            frame.pts = number
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))


def test_frames_of_videos_are_named_and_counted(run_stub, tmp_path, monkeypatch):
    video = tmp_path / "clip.avi"
    write_video(video, 10, range(20))
    named = video.rename(video.with_name("clip"))  # a video by its content
    words = ("read", named, SCENE, "--json", "--annotate", tmp_path / "out")
    done = run_stub(*words, "--crops", tmp_path / "out")
    assert done.returncode == 0 and done.stderr == ""  # no progress bar without a terminal
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    times = [(line.get("frame"), line.get("time_s")) for line in lines]
    assert times == [(0, 0.0), (5, 0.5), (10, 1.0), (15, 1.5), (None, None)]
    stems = ("clip_000000", "clip_000005", "clip_000010", "clip_000015", "green_car")
    names = {f"{stem}{end}.jpg" for stem in stems for end in ("", "_plate1_A001AA77")}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    done = run_stub(*words)
    assert done.returncode == 0
    assert "21/21" in done.stderr


def test_frame_times_are_those_of_the_video_and_damage_is_reported(run_stub, tmp_path):
    """The files' names are not UTF-8."""
    whole, cut = (str(tmp_path / os.fsdecode(b"\xff" + end)) for end in (b".mkv", b".avi"))
    for path in (whole, cut):
        write_video(path, 30, (0, 1, 2, 60, 61, 90))
    done = run_stub("read", whole, "--json")
    assert [json.loads(line)["time_s"] for line in done.stdout.splitlines()] == [0.0, 2.0, 3.0]
    os.truncate(cut, Path(cut).stat().st_size * 3 // 4)
    done = run_stub("read", cut, "--json")
    assert done.returncode == 1 and "damaged: " in done.stderr and done.stdout


def test_a_photo_is_read_from_a_pipe(run_stub):
    output, into = os.pipe()
    os.write(into, JPEG)
    os.close(into)
    assert '"text": "A001AA77"' in run_stub("read", f"/dev/fd/{output}", "--json").stdout


def test_control_characters_in_file_names_are_escaped(tmp_path, run_stub, monkeypatch):
    write_files(tmp_path, {ODD: JPEG, f"x{ODD}": b"?", f"{ODD}.bin": b"?"})
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    read = run_stub("read", tmp_path, *[tmp_path / f"{n}.jpg" for n in range(5)])
    refused = run_stub("read", tmp_path / ODD, "--annotate", tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    for text in (read.stdout, read.stderr, refused.stderr):
        shown = set(text) - {"\n", "\r"}  # the progress bar returns to the line's start
        assert "a\\x1b[31m,\\r" in text and "\\x9bb\\u202e.jpg" in text
        assert all(character.isprintable() for character in shown)


@pytest.mark.parametrize("name", [ODD, "a\rb.jpg", os.fsdecode(b"\xff.jpg"), "ö🚗.jpg"])
def test_json_and_csv_keep_file_names_unchanged(name, tmp_path, run_stub):
    sys.stdout.reconfigure(encoding="ascii")
    photo = write_files(tmp_path, {name: JPEG}) / name
    line = json.loads(run_stub("read", photo, "--json").stdout)
    assert line["file"] == str(photo) and line["plates"][0]["text"] == "A001AA77"
    if "\udcff" in name:  # CSV must be valid text
        assert "\\udcff.jpg" in run_stub("read", tmp_path).stdout
    else:
        (row,) = csv.DictReader(io.StringIO(run_stub("read", photo, "--csv").stdout, newline=""))
        assert row["file"] == str(photo) and row["text"] == "A001AA77"


def test_read_writes_a_table_annotated_pictures_and_straightened_plates(tmp_path, run, monkeypatch):
    monkeypatch.chdir(SAMPLES.parent)
    done = run("read", SCENE, "--annotate", tmp_path / "out", "--crops", tmp_path / "new" / "out")
    assert done.returncode == 0 and done.stderr == ""
    assert f"\nsamples/green_car.jpg {SCENE_TEXT}    ru.car " in done.stdout
    drawn, photo = (decode(path.read_bytes()) for path in (tmp_path / "out" / SCENE.name, SCENE))
    assert np.abs(drawn.astype(int) - photo).mean() < 6
    crop = decode((tmp_path / f"new/out/green_car_plate1_{SCENE_TEXT}.jpg").read_bytes())
    assert 3.5 < crop.shape[1] / crop.shape[0] < 6  # a plate is 520 mm by 112 mm
    for names, known in (("NL,ru", "ru.car"), ("nl", "unknown")):
        done = run("read", SCENE, "--countries", names)
        assert f" {SCENE_TEXT}    {known} " in done.stdout


def test_weights_and_device_determine_the_engine(run_stub, tmp_path):
    for options, model in {
        (): ("served", "cpu"),
        ("--weights", release.WEIGHTS_DIR): ("served", "cpu"),
        ("--weights", tmp_path): ("torch", "cpu"),
        ("--weights", tmp_path, "--engine", "served"): ("served", "cpu"),
        ("--engine", "torch"): ("torch", "cpu"),
        ("--device", "cuda:0"): ("torch", "cuda:0"),
        # A contradiction is passed on: load_nets must refuse it.
        ("--device", "cuda:0", "--engine", "served"): ("served", "cuda:0"),
    }.items():
        line = json.loads(run_stub("read", SCENE, "--json", *options).stdout)
        assert set(line) == {"file", "image", "plates", "model"}
        assert (line["model"]["engine"], line["model"]["device"]) == model


def test_other_weights_are_not_exported_to_tritons_model_repository(run, tmp_path, monkeypatch):
    def export_nothing(source, repository, *_):
        assert source == others and not list(repository.rglob("model.onnx"))
        assert release.REPOSITORY not in (repository, *repository.parents)
        raise export.ExportError("exported elsewhere")

    monkeypatch.setattr(export, "export", export_nothing)
    others = Path(shutil.copytree(release.WEIGHTS_DIR, tmp_path / "others"))
    done = run("read", SCENE, "--weights", others, "--engine", "served")
    assert done.stderr == "plates read: exported elsewhere\n"
