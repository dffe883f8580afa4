"""The `plates` command itself, and the subcommands that train and score."""

import subprocess
import sys
from pathlib import Path

import pytest
from photo_files import BAD

from plates.cli import CommandError, train
from plates.cli import main as cli


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


def test_eval_names_a_photo_that_can_not_be_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "torn.jpg").write_bytes(BAD["truncated jpeg"][0])
    (tmp_path / "plates.csv").write_text("image,x0,y0,x1,y1\ntorn.jpg,0,0,9,9\n")
    assert cli.main(["eval", "--data", str(tmp_path)]) == 2
    assert f"plates eval: {tmp_path / 'images' / 'torn.jpg'}: " in capsys.readouterr().err


def test_errors_of_commands_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> int:
        raise CommandError("no such thing")

    monkeypatch.setattr("plates.cli.weights.run", fail)
    assert cli.main(["weights"]) == 1
    assert capsys.readouterr().err == "plates weights: no such thing\n"


def test_a_closed_pipe_is_no_error() -> None:
    code = (
        "import sys\nfrom api import cli\nfrom plates.cli import weights\n"
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
