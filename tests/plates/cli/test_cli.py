"""The `plates` command itself, its refusals, and `plates train`."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
from support import PLATES, SCENE

from plate_models.training.recognizer import RecognizerTraining
from plate_models.weights import check_manifest
from plates.cli import train


def test_the_version_names_package_and_weights(run):
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
        ("train detector", "required: --data"),
        ("bulk photos", "required: --out"),
    ],
)
def test_arguments_that_make_no_sense(words, text, run):
    done = run(*words.split())
    assert done.returncode == 2 and text in done.stderr


@dataclass(frozen=True)
class Training:
    """Something to train."""

    folder: Annotated[Path, "checkpoints, at 100 % of the pace"]
    batch_size: Annotated[int, "crops per step"] = 4
    rate: Annotated[float, "of learning"] = 0.5
    release: Annotated[Path | None, "folder for weights"] = None
    seed: Annotated[int, "of chance"] = 1


@pytest.fixture
def trained(monkeypatch):
    """The trainings that were begun; nothing is trained."""
    begun: list[object] = []
    module = SimpleNamespace(Training=Training, train=lambda config: begun.append(config) or "done")
    monkeypatch.setattr(train, "import_module", lambda _: module)
    monkeypatch.setitem(train.TRAININGS, "detector", ("a.module", "Training"))
    return begun


def test_training_options_are_the_fields_of_the_experiment(trained, run):
    shown = " ".join(run("train", "detector", "--help").stdout.split())
    assert "--folder FOLDER checkpoints, at 100 % of the pace" in shown
    assert "--batch-size N crops per step (default: 4)" in shown
    words = ["--minutes", "0.5", "--batch-size", "8", "--folder", "somewhere"]
    config = train.parse_options(RecognizerTraining, "recognizer", words)
    assert config == RecognizerTraining(minutes=0.5, batch_size=8, folder=Path("somewhere"))


def test_the_folders_of_a_training_are_made_before_it_begins(trained, run, tmp_path):
    words = ["train", "detector", "--folder", tmp_path / "run", "--release"]
    assert run(*words, tmp_path / "new" / "release").returncode == 0
    assert (tmp_path / "new" / "release").is_dir() and len(trained) == 1
    (tmp_path / "file").write_text("")
    done = run(*words, tmp_path / "file")
    problem = f"plates train: {tmp_path / 'file'}: File exists\n"
    assert (done.returncode, done.stderr, len(trained)) == (1, problem, 1)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("train detector --folder x --batch-size 0", ": --batch-size: expected 1"),
        ("train detector --folder x --rate -0.1", ": --rate: expected 0 or more"),
        ("train detector --folder x --seed -1", ": --seed: expected 0 or more"),
        ("calibrate --most-wrong 1.5", ": --most-wrong: expected 0 to 1, got 1.5"),
        ("calibrate --workers 0", "--workers"),
        ("calibrate --crops 3", "--crops: expected 5 or more, got 3"),
        ("calibrate --weights nowhere_either", "nowhere_either"),
        ("read {scene} --every -1", ": --every: expected 0 or more, got -1"),
        ("read {scene} --weights {folder}", "{folder}/SHA256SUMS is missing"),
        ("read {scene} --weights {odd}", "no\\nwhere"),
        ("read {scene} --engine tensorflow", "expected one of served, torch, got 'tensorflow'"),
        ("read {scene} --device tpu", "device: expected cpu or cuda:0, got 'tpu'"),
        ("read {scene} --device cuda:99", "device: cuda:99 is not there; torch sees"),
        ("read {scene} --device cuda:99 --engine served", "cuda:99"),
        ("eval", "PLATES_DATA"),
        ("eval --rendered --per-type 0 --world", "PLATES_DATA"),
        ("eval --rendered --per-type -1", ": --per-type: expected 0 or more"),
        ("eval --threads 0", ": --threads: expected 1 or more, got 0"),
        ("eval --workers -1", ": --workers: expected 0 or more, got -1"),
        ("eval --data . --json {folder}/no/a.json", "its folder does not exist"),
        ("demo {odd}.jpg", "no\\nwhere.jpg"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    words, text, trained, run, tmp_path, monkeypatch
):
    monkeypatch.delenv("PLATES_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    places = {"scene": SCENE, "folder": tmp_path, "odd": "no\nwhere"}
    done = run(*[word.format(**places) for word in words.split()])
    assert done.returncode == 1
    assert done.stderr.startswith(f"plates {words.split()[0]}: ")
    assert text.format(**places) in done.stderr and done.stderr.count("\n") == 1
    assert done.stdout == "" and not trained


def test_a_full_disk_is_one_line():
    with Path("/dev/full").open("w") as full:
        command = [*PLATES, "config", "table"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "plates config: No space left on device\n")


def test_a_closed_pipe_is_no_error():
    code = (
        "import sys\nfrom plates.cli import main as cli\nfrom plates.cli import weights\n"
        "def run(_):\n"
        "    for _ in range(100000): print('line')\n"
        "weights.run = run\n"
        "sys.exit(cli.main(['weights']))"
    )
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
