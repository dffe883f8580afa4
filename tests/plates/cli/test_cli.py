"""The `plates` command itself, and `plates train`."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import PLATES, SCENE, plates

from plate_models.weights import check_manifest
from plates.cli import CommandError, train
from plates.cli import main as cli


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main([name, "--help"])
    assert done.value.code == 0
    assert f"plates {name}" in capsys.readouterr().out


def test_help_loads_neither_torch_nor_opencv_nor_the_server() -> None:
    code = (
        "import sys\nfrom plates.cli import main as cli\n"
        "for name in ['', *cli.COMMANDS]:\n"
        "    try: cli.main([*filter(None, [name]), '--help'])\n"
        "    except SystemExit: pass\n"
        "print({'torch', 'cv2', 'tritonclient', 'uvicorn', 'fastapi'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "required: COMMAND"),
        ("fly", "invalid choice: 'fly'"),
        ("read", "required: FILE|DIR|GLOB|VIDEO"),
        ("read a.jpg --json --csv", "not allowed with argument"),
        ("train detector", "required: --data"),
        ("export --format tensorflow", "unrecognized arguments: --format tensorflow"),
    ],
)
def test_arguments_that_make_no_sense(
    words: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(words.split())
    assert done.value.code == 2
    assert text in capsys.readouterr().err


def test_the_version_names_package_and_weights() -> None:
    done = plates("--version")
    assert done.returncode == 0
    assert re.fullmatch(r"plates \d+\.\d+\.\d+\nweights sha256:\w{64}\n", done.stdout)
    assert check_manifest() in done.stdout


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The trainings that were begun: nothing is trained."""
    begun: list[object] = []

    @dataclass(frozen=True)
    class Training:
        """Something to train.

        Attributes:
            folder: Checkpoints go here, at
                100 % of the pace.
            batch_size: Crops per step.
            rate: Of learning.
            release: Where the ``weights`` go.
            seed: Of chance.
        """

        folder: Path
        batch_size: int = 4
        rate: float = 0.5
        release: Path | None = None
        seed: int = 1

    module = SimpleNamespace(Training=Training, train=lambda config: begun.append(config) or "done")
    monkeypatch.setattr(train, "import_module", lambda _: module)
    monkeypatch.setitem(train.TRAININGS, "detector", ("a.module", "Training"))
    return begun


def test_training_options_are_the_fields_of_the_experiment() -> None:
    from plate_models.training.recognizer import RecognizerTraining

    words = ["--minutes", "0.5", "--batch-size", "8", "--folder", "somewhere"]
    config = train.parse_options(RecognizerTraining, "recognizer", words)
    assert config == RecognizerTraining(minutes=0.5, batch_size=8, folder=Path("somewhere"))
    with pytest.raises(SystemExit):
        train.parse_options(RecognizerTraining, "recognizer", ["--minuets", "3"])


@pytest.mark.usefixtures("trained")
def test_the_help_of_a_training_explains_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "detector", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "Attributes:" not in shown and "``" not in shown
    assert "--folder FOLDER Checkpoints go here, at 100 % of the pace." in shown
    assert "--batch-size N Crops per step. (default: 4)" in shown


def test_the_folders_of_a_training_are_made_before_it_begins(
    trained: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "detector", "--folder", str(tmp_path / "run"), "--release"]
    assert cli.main([*words, str(tmp_path / "new" / "release")]) == 0
    assert (tmp_path / "new" / "release").is_dir() and len(trained) == 1
    (tmp_path / "file").write_text("")
    assert cli.main([*words, str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err == f"plates train: {tmp_path / 'file'}: File exists\n"
    assert len(trained) == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("train detector --folder x --batch-size 0", ": --batch-size: expected 1"),
        ("train detector --folder x --rate -0.1", ": --rate: expected 0 or more"),
        ("train detector --folder x --seed -1", ": --seed: expected 0 or more"),
        ("calibrate", "give --data DIR, or set PLATES_DATA"),
        ("calibrate --crops -3", ": --crops: expected 1 or more, got -3"),
        ("calibrate --seed -1", ": --seed: expected 0 or more"),
        ("calibrate --most-wrong 1.5", ": --most-wrong: expected 0 to 1, got 1.5"),
        ("calibrate --data nowhere", "nowhere"),
        ("calibrate --data nowhere --workers 0", "--workers"),
        ("calibrate --data nowhere --crops 3", "crops, got 3"),
        ("calibrate --data nowhere --weights nowhere_either", "nowhere_either"),
        ("read {scene} --every -1", ": --every: expected 0 or more, got -1"),
        ("read {scene} --every nan", ": --every: expected 0 or more, got nan"),
        ("read {scene} --weights {folder}", "{folder}/SHA256SUMS is missing"),
        ("eval", "PLATES_DATA"),
        ("eval --rendered --per-type 0 --world", "PLATES_DATA"),
        ("eval --rendered --per-type 0 --labelled", "PLATES_DATA"),
        ("eval --rendered --per-type -1", ": --per-type: expected 0 or more"),
        ("eval --threads 0", ": --threads: expected 1 or more, got 0"),
        ("eval --workers -1", ": --workers: expected 0 or more, got -1"),
        ("eval --data . --json {folder}/no/a.json", "its folder does not exist"),
        ("eval --data . --via rest", "--via: expected triton, got 'rest'"),
        ("eval --data . --via triton --rendered", "leave the other parts out"),
        ("eval --data . --triton localhost:8001", "goes with --via triton"),
        *(
            (f"{command} {words}", text)
            for command in ("read {scene}", "eval --data .")
            for words, text in {
                "--engine tensorflow": "expected one of served, torch, got 'tensorflow'",
                "--device tpu": "device: expected cpu or cuda:0, got 'tpu'",
                "--device cuda:x": "device: expected cpu or cuda:0, got 'cuda:x'",
                "--device cuda:99": "device: cuda:99 is not there; torch sees",
                "--device cuda:99 --engine served": "cuda:99",
            }.items()
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    words: str,
    text: str,
    trained: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("PLATES_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    places = {"scene": SCENE, "folder": tmp_path}
    assert cli.main([word.format(**places) for word in words.split()]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith(f"plates {words.split()[0]}: ")
    assert text.format(**places) in shown.err and shown.err.count("\n") == 1
    assert shown.out == "" and not trained


@pytest.mark.parametrize(
    "words",
    [
        ("weights", "--weights", "no\nwhere"),
        ("read", str(SCENE), "--weights", "no\nwhere"),
        ("eval", "--data", "no\nwhere"),
        ("eval", "--data", ".", "--json", "no\nwhere/a.json"),
        ("demo", "no\nwhere.jpg"),
    ],
)
def test_a_line_feed_in_a_name_does_not_break_the_line(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 1
    message = capsys.readouterr().err
    assert "no\\nwhere" in message and message.count("\n") == 1


@pytest.mark.parametrize("error", [CommandError("no such thing"), OSError(28, "no such thing")])
def test_errors_of_commands_are_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr("plates.cli.weights.run", fail)
    assert cli.main(["weights"]) == 1
    assert capsys.readouterr().err == "plates weights: no such thing\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("read", str(SCENE), "--json"), "No space left on device"),
        (("weights", "--weights", "/nowhere"), "/nowhere/detector.safetensors: No such file"),
    ],
)
def test_a_full_disk_and_a_missing_folder_are_one_line(words: tuple[str, ...], text: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*PLATES, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"plates {words[0]}: {text}") and done.stderr.count("\n") == 1


def test_a_closed_pipe_is_no_error() -> None:
    code = (
        "import sys\nfrom plates.cli import main as cli\nfrom plates.cli import weights\n"
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
