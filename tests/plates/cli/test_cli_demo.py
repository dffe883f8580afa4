"""`plates demo`: its service, its photos, its verdict."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from photo_files import BAD
from support import PLATES, ROOT, SAMPLES, SCENE, SCENE_TEXT, plates, wait_until

from plate_models.detection import choose_canvas
from plate_models.images import check_header
from plate_models.spec import DETECTOR
from plates.cli import demo, samples, serve
from plates.cli import main as cli
from plates.serving import running


def serve_nothing(monkeypatch: pytest.MonkeyPatch, url: str, timeout: float = 60) -> None:
    """Let the demonstration talk to that address instead of starting a service."""
    monkeypatch.setattr(demo, "_service", lambda _: httpx.Client(base_url=url, timeout=timeout))


@pytest.mark.live
@pytest.mark.control
def test_demo_reads_the_samples(repository: Path, tmp_path: Path) -> None:
    environment = {"PLATES_MODEL_REPOSITORY": str(repository)}
    done = plates("demo", "--output", str(tmp_path), **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\n13 of 13 plates of the samples read\n")
    assert len(list(tmp_path.glob("*.jpg"))) == len(list(SAMPLES.glob("*.jpg"))) > 7
    # The table has whole names and no log lines, and no photo pays for the first use of a canvas.
    assert done.stderr == ""
    table = done.stdout.split("\n\n")[1].splitlines()
    rows = [re.fullmatch(r"(\S+) +\S+ +\S+ +[\d.]+ +[\d.]+ +([\d.]+)", row) for row in table[1:]]
    assert all(rows) and len(rows) > 13
    assert {ROOT / row[1] for row in rows} == set(SAMPLES.glob("*.jpg"))
    assert "The service is starting" in (tmp_path / "service.log").read_text()


@pytest.mark.live
def test_demo_fails_if_a_plate_is_not_read(
    gateway_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serve_nothing(monkeypatch, gateway_url)
    (tmp_path / "scene.jpg").write_bytes(SCENE.read_bytes())
    (tmp_path / "broken.jpg").write_bytes(BAD["truncated jpeg"][0])
    (tmp_path / "plates.csv").write_text(f"photo,text\nscene.jpg,{SCENE_TEXT}\nscene.jpg,A1\n")
    assert cli.main(["demo", str(tmp_path), "--output", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert "1 of 2 plates of the samples read" in captured.out
    assert "A1 was not read" in captured.err
    assert "broken.jpg: The JPEG file is damaged or truncated" in captured.err
    assert f"The service's log: {tmp_path / 'out' / 'service.log'}\n" in captured.err


@pytest.mark.parametrize(
    ("photo", "table", "text"),
    [
        ("empty", "", "no photos"),
        ("nope.jpg", "", "nope.jpg: No such file"),
        ("scene.jpg", "a,b\n", "plates.csv: expected the columns photo and text"),
    ],
)
def test_demo_checks_its_photos_before_it_starts_anything(
    photo: str,
    table: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(demo, "_service", lambda _: pytest.fail("started"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "scene.jpg").write_bytes(SCENE.read_bytes())
    (tmp_path / "plates.csv").write_text(table)
    words = [str(tmp_path / photo), "--output", str(tmp_path / "out")]
    assert cli.main(["demo", *words]) == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("output", ["photos", "link", "photos/../photos"])
def test_demo_never_replaces_a_photo(
    output: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(demo, "_service", lambda _: pytest.fail("started"))
    photo = tmp_path / "photos" / "scene.jpg"
    photo.parent.mkdir()
    photo.write_bytes(SCENE.read_bytes())
    (tmp_path / "link").symlink_to(photo.parent)
    assert cli.main(["demo", str(photo), "--output", str(tmp_path / output)]) == 1
    assert "scene.jpg is one of the photos" in capsys.readouterr().err
    assert photo.read_bytes() == SCENE.read_bytes()


def test_demo_names_the_photos_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody listens and says nothing; then nobody listens."""
    arguments = ["demo", str(SCENE), "--output", str(tmp_path)]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        serve_nothing(monkeypatch, url, timeout=0.2)
        assert cli.main(arguments) == 1
        assert "green_car.jpg: no answer from the service: timed out" in capsys.readouterr().err
    serve_nothing(monkeypatch, url)
    assert cli.main(arguments) == 1
    assert "Connection refused" in capsys.readouterr().err


def test_demo_says_that_its_service_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = SimpleNamespace(url="http://127.0.0.1:1", process=SimpleNamespace(poll=lambda: 1))
    monkeypatch.setattr(running, "running_service", lambda **_: nullcontext(dead))
    assert cli.main(["demo", str(SCENE), "--output", str(tmp_path)]) == 1
    message = capsys.readouterr().err
    assert message.startswith("plates demo: the service is not ready: no answer from the service")
    assert message.endswith(f"\nThe service's log: {tmp_path / 'service.log'}\n")


def test_demo_uses_every_canvas_before_it_times_photos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_nothing(monkeypatch, "http://nowhere")
    sizes: list[tuple[int, int]] = []

    def plates(_: httpx.Client, photo: bytes) -> list[object]:
        header = check_header(photo)
        sizes.append((header.height, header.width))
        return []

    monkeypatch.setattr(demo, "_plates", plates)
    assert cli.main(["demo", str(SCENE), "--output", str(tmp_path)]) == 1
    assert {choose_canvas(*size) for size in sizes[:-1]} == set(DETECTOR.canvases_hw)
    assert sizes[-1] == (720, 1280)


@pytest.fixture
def waiting_demo(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A demonstration whose service listens, but never gets ready, and the service's address.

    It runs in a folder with an `api` of somebody else's.
    """
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "__init__.py").write_text("raise ImportError('not ours')\n")
    process = subprocess.Popen(
        [*PLATES, "demo", str(SCENE)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PLATES_TRITON_URL": "127.0.0.1:1"},
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    try:
        line = next(line for line in process.stdout if line.startswith(serve.LISTENING))
        yield process, line.removeprefix(serve.LISTENING).split()[0]
    finally:
        process.kill()
        process.communicate()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=10).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_demo_takes_its_service_with_it(
    waiting_demo: tuple["subprocess.Popen[str]", str], number: signal.Signals
) -> None:
    process, url = waiting_demo
    assert answers(url)
    process.send_signal(number)
    if number != signal.SIGKILL:
        assert process.wait(30) == 128 + number
    wait_until(lambda: not answers(url))


def test_two_plates_of_one_text_must_be_read_twice() -> None:
    assert samples.missing_texts(["A", "A", "B"], ["A", "B", "C"]) == ["A"]
    assert samples.missing_texts(["A"], ["A", "A"]) == []


def test_expectations_belong_to_the_folder_of_the_photo(tmp_path: Path) -> None:
    (tmp_path / "plates.csv").write_text("photo,text\na.jpg,X\na.jpg,Y\n")
    (tmp_path / "sub").mkdir()
    expected = samples.expected_texts([tmp_path / "a.jpg", tmp_path / "sub/a.jpg"])
    assert expected == {tmp_path / "a.jpg": ["X", "Y"]}
