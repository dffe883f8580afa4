"""The `plates` command: version, wrong arguments, missing packages, output, `plates train`."""

import fcntl
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from support import PLATES, ROOT, SCENE, plates, write_files

from plate_models import export
from plate_models.engines import nets
from plate_models.release import check_manifest
from plate_models.training import recognizer
from plates.benchmarks import service as services


def test_the_version_is_that_of_the_package_and_the_weights(run):
    done = run("--version")
    assert done.returncode == 0
    assert re.fullmatch(r"plates \d+\.\d+\.\d+\nweights sha256:\w{64}\n", done.stdout)
    assert check_manifest() in done.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "required: COMMAND"),
        ("read", "required: FILE|DIR|GLOB|VIDEO"),
        ("read a.jpg --json --csv", "not allowed with argument"),
        ("read a.jpg --engine tensorflow", "argument --engine: invalid choice: 'tensorflow'"),
        ("read a.jpg --countries nl,zz", "--countries: expected some of am,ar,"),
        ("bench", "TOOL"),
        ("bench fly", "fly"),
        ("bench overload --seconds soon", "soon"),
        ("bulk '' --jsn --out=", "plates bulk: error: unrecognized or empty: --jsn '' '--out='"),
    ],
)
def test_invalid_arguments_are_refused_by_the_parser(words, text, run):
    done = run(*shlex.split(words))
    assert done.returncode == 2 and text in done.stderr


@pytest.mark.parametrize(
    ("words", "package"),
    [("compare a.json b.json", "scipy.stats"), ("bulk photos --out archive", "ray.data")],
)
def test_an_error_names_a_missing_package_and_how_to_install_it(words, package, run, monkeypatch):
    monkeypatch.delitem(sys.modules, "plate_models.training.evaluation.comparison", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    command, *options = words.split()
    done = run(command, *options)
    assert done.returncode == 1 and "pip install -r" in done.stderr
    assert done.stderr.startswith(f"plates {command}: this installation lacks {package}: ")


@pytest.fixture
def trained(monkeypatch):
    """The configurations of trainings that were started; nothing is trained."""
    started = []

    def train(config: recognizer.RecognizerTraining):
        started.append(config)

    monkeypatch.setattr(recognizer, "train", train)
    return started


def test_training_options_are_the_fields_of_its_configuration(trained, run, tmp_path):
    shown = " ".join(run("train", "recognizer", "--help").stdout.split())
    assert "--batch-size N crops per optimizer step (default: 64)" in shown
    words = ["--minutes", 0.5, "--batch-size", 8, "--folder", tmp_path / "run", "--release"]
    assert run("train", "recognizer", *words, tmp_path / "new" / "release").returncode == 0
    folders = {"folder": tmp_path / "run", "release": tmp_path / "new" / "release"}
    assert trained == [recognizer.RecognizerTraining(minutes=0.5, batch_size=8, **folders)]
    # The folders are created before the training, so that errors don't show after hours.
    assert all(folder.is_dir() for folder in folders.values())
    (tmp_path / "file").write_text("")
    done = run("train", "recognizer", *words, tmp_path / "file")
    problem = f"plates train: {tmp_path / 'file'}: File exists\n"
    assert (done.returncode, done.stderr, len(trained)) == (1, problem, 1)
    with (tmp_path / "run" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run("train", "recognizer", *words, tmp_path)
    assert "run: another training uses it" in done.stderr and len(trained) == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("train recognizer --batch-size 0", ": --batch-size: expected 1 or more, got 0"),
        ("calibrate --most-wrong 1.5", ": --most-wrong: expected 0 to 1, got 1.5"),
        ("calibrate --weights nowhere_either", "nowhere_either"),
        ("read {scene} --every -1", ": --every: expected 0 or more, got -1"),
        ("read {scene} --weights {folder}", "{folder}/SHA256SUMS is missing"),
        ("weights --weights {folder}", "{folder}/detector.safetensors is missing: train it, or"),
        ("read {scene} --weights {odd}", "no\\nwhere"),
        (f"read {{scene}} --engine torch --weights {'x' * 256}", "xx/SHA256SUMS: File name too"),
        ("read {scene} --device tpu", "device: expected cpu or cuda:0, got 'tpu'"),
        ("read {scene} --device cuda:99", "device: cuda:99 is not there; torch sees"),
        ("eval", "PLATES_DATA"),
        ("eval --rendered --per-type 0 --world", "PLATES_DATA"),
        ("eval --data . --json {folder}/no/a.json", "its folder does not exist"),
        ("config check none.env", "none.env: No such file or directory"),
        ("health http://127.0.0.1:1/readyz", "127.0.0.1:1/readyz: "),
        ("health http://127.0.0.1:1/ --ca-file /no/such/file", "--ca-file /no/such/file"),
        ("watch a.mp4 --fps 0", "--fps: expected 1 or more"),
        ("watch a.mp4 --list none.csv", "none.csv: No such file or directory"),
        ("health http://127.0.0.1:1/ --timeout -1", "--timeout: expected 0.1 to 3600"),
        ("bench soak --url http://h", "--url needs --pid"),
        ("bench soak --url http://h --pid 99999999", "--pid 99999999: expected a running process"),
        ("bench serve --pid 1", "--pid 1: expected a running process of yours that serves --url"),
        ("bench serve --url http://h --pid 1", "--pid 1: expected a running process of yours"),
        ("bench faults --json {folder}", "{folder}: Is a directory"),
        ("bench cameras --minutes 1", "--minutes: expected 1.66667 or more"),
        ("bench serve --seconds nan", "--seconds: expected"),
        ("bench overload --url http://127.0.0.1:1", "http://127.0.0.1:1 is not ready"),
        ("bench serve --published /nowhere", "expected stn.pt and lprnet.pt"),
        ("bench serve --photo /nowhere/a.jpg", "/nowhere/a.jpg: No such file"),
    ],
)
def test_invalid_values_are_refused_in_one_line(words, text, trained, run, tmp_path, monkeypatch):
    monkeypatch.delenv("PLATES_DATA", raising=False)
    monkeypatch.setattr(services, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(psutil.Process, "memory_full_info", Mock(side_effect=psutil.AccessDenied))
    monkeypatch.chdir(tmp_path)
    places = {"scene": SCENE, "folder": tmp_path, "odd": "no\nwhere"}
    done = run(*[word.format(**places) for word in words.split()])
    assert done.returncode == (2 if re.search("--[a-z-]+: expected", text) else 1)
    assert done.stderr.startswith(f"plates {words.split()[0]}: ")
    assert text.format(**places) in done.stderr and done.stderr.count("\n") == 1
    assert done.stdout == "" and not trained


def test_a_full_or_unwritable_disk_is_an_error_of_one_line():
    with Path("/dev/full").open("w") as full:
        command = [*PLATES, "config", "table"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "plates config: No space left on device\n")
    done = plates("watch", SCENE, "--annotate", "/proc")
    assert done.stderr == f"plates watch: /proc/{SCENE.stem}.mp4: No such file or directory\n"


def test_a_closed_stream_and_one_without_some_characters_are_no_errors():
    closed = ("table >&-", "check none 2>&-", "check /dev/stdin <&-")
    for words in (*closed, "table | head -c0", "table"):
        script = f'set -o pipefail; PYTHONIOENCODING=ascii "$0" "$@" config {words}'
        done = subprocess.run(["bash", "-c", script, *PLATES], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == ("none" in words, "")
        assert "No such" not in done.stdout


def test_export_runs_unless_its_artifacts_are_current(monkeypatch, run):
    monkeypatch.setattr(export, "export", lambda *_: [Path("made")])
    for current, said in ((True, "up to date"), (False, "made")):
        monkeypatch.setattr(nets, "is_current", lambda *_, current=current: current)
        done = run("export")
        assert done.returncode == 0 and said in done.stdout


def test_clips_are_watched_though_stdout_takes_only_ascii(tmp_path):
    clip = (ROOT / "tests" / "clips" / "crossing.mp4").read_bytes()
    names = [tmp_path / name for name in ("a.mp4", "b/a.mp4", "a-2.mp4", "Höhe.mp4")]
    write_files(tmp_path, dict.fromkeys(names, clip))
    done = plates("watch", *names, "--json", PYTHONIOENCODING="ascii")
    assert done.stdout.isascii()
    events = list(map(json.loads, done.stdout.splitlines()))
    assert [event["text_native"] for event in events] == ["Е333СТ61"] * 8 and not done.returncode
    assert {event["camera"] for event in events} == {"a", "a-2", "a-2-2", "Höhe"}
