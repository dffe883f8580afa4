"""`plates demo`: its service, its photos, its verdict."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from command_line import SCENE, SCENE_TEXT, plates
from photo_files import BAD

from api import cli
from api.commands import demo, samples, serve


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
