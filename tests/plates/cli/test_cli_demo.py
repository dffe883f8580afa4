"""`plates demo`: its service, its photos, its verdict and errors."""

import os
import re
import socket
import subprocess
from contextlib import nullcontext
from types import SimpleNamespace

import psutil
import pytest
from photo_files import BAD
from support import PLATES, REPOSITORY, ROOT, SAMPLES, SCENE, SCENE_TEXT, plates, write_files

from plates.cli import demo
from plates.cli.serve import LISTENING


@pytest.mark.live
@pytest.mark.control
def test_demo_reads_the_samples(tmp_path):
    done = plates("demo", "--output", str(tmp_path), PLATES_MODEL_REPOSITORY=str(REPOSITORY))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n13 of 13 plates of the samples read\n" in done.stdout
    # The car of the clip, in its native letters.
    assert "Е333СТ61" in done.stdout.splitlines()[-1]
    assert len(list(tmp_path.glob("*.jpg"))) == len(list(SAMPLES.glob("*.jpg"))) > 7
    # The table has whole file names, no log lines, and only boxes of labelled plates.
    assert done.stderr == ""
    table = done.stdout.split("\n\n")[1].splitlines()
    rows = [re.fullmatch(r"(\S+) +\S+ +\S+ +[\d.]+ +[\d.]+", row) for row in table[1:]]
    assert all(rows) and len(rows) == 13
    assert {ROOT / row[1] for row in rows} == set(SAMPLES.glob("*.jpg"))
    log = (tmp_path / "service.log").read_text()
    assert "The service is starting" in log and "Traceback" not in log


@pytest.mark.live
def test_demo_fails_if_a_plate_is_not_read(gateway_url, run, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "running_service", lambda *_: nullcontext((None, gateway_url)))
    files = dict.fromkeys(("scene.jpg", "sub/scene.jpg"), SCENE.read_bytes())
    write_files(tmp_path, files | {"broken.jpg": BAD["truncated jpeg"][0]})
    # The table's rows are for photos in its own folder only, not in "sub".
    rows = f"text,photo\n{SCENE_TEXT},scene.jpg\n{SCENE_TEXT},scene.jpg\nA1\n"
    (tmp_path / "plates.csv").write_text(rows, "utf-8-sig")  # as Excel saves it
    done = run("demo", tmp_path, "--output", tmp_path / "out")
    assert done.returncode == 1
    assert "1 of 2 plates of the samples read" in done.stdout
    assert f"{tmp_path / 'scene.jpg'}: {SCENE_TEXT} was not read" in done.stderr
    assert "broken.jpg: The JPEG file is damaged or truncated" in done.stderr
    assert f"The service's log: {tmp_path / 'out' / 'service.log'}\n" in done.stderr


@pytest.mark.parametrize(
    ("photo", "table", "output", "reason"),
    [
        ("empty", "", "out", "no photos"),
        ("nope.jpg", "", "out", "nope.jpg: No such file"),
        ("photos/scene.jpg", "a,b\n", "out", "plates.csv: expected the columns photo and text"),
        ("photos/scene.jpg", None, "link", "scene.jpg is one of the photos"),
    ],
)
def test_photos_and_output_are_checked_before_the_service_starts(
    photo, table, output, reason, run, tmp_path, monkeypatch
):
    monkeypatch.setattr(demo, "running_service", lambda *_: pytest.fail("started"))
    photos = write_files(tmp_path / "photos", {"scene.jpg": SCENE.read_bytes()})
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(photos)
    if table is not None:
        (photos / "plates.csv").write_text(table)
    done = run("demo", tmp_path / photo, "--output", tmp_path / output)
    assert done.returncode == 1 and reason in done.stderr
    assert (photos / "scene.jpg").read_bytes() == SCENE.read_bytes()


def test_a_killed_demo_takes_its_service_with_it(tmp_path):
    """The service listens but is never ready; folder and environment belong to others."""
    write_files(tmp_path, {"api/__init__.py": b"raise ImportError('not ours')"})
    command = [*PLATES, "demo", str(SCENE)]
    others = {"PLATES_CAMERAS": "/no", "PLATES_TLS_KEY": "/no", "PLATES_TRITON_URL": "127.0.0.1:1"}
    options = {"cwd": tmp_path, "env": os.environ | others}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            assert any(line.startswith(LISTENING) for line in process.stdout)
            service = psutil.Process(process.pid).children(recursive=True)
            assert len(service) == 2
            process.kill()
            assert not psutil.wait_procs(service, timeout=30)[1]
        finally:
            process.kill()


def test_demo_reports_a_silent_service_and_one_that_ends(run, tmp_path, monkeypatch):
    words = ("demo", SCENE, "--output", tmp_path)
    service = SimpleNamespace(poll=lambda: 1), (url := "http://127.0.0.1:1")
    monkeypatch.setattr(demo, "running_service", lambda *_: nullcontext(service))
    done = run(*words)
    assert done.returncode == 1
    assert done.stderr.startswith(f"plates demo: the service at {url} is not ready: ")
    assert done.stderr.endswith(f"\nThe service's log: {tmp_path / 'service.log'}\n")
    monkeypatch.setattr(demo, "wait_until_ready", lambda *_: None)
    monkeypatch.setattr(demo, "_PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        service = None, f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = run(*words)
    assert "green_car.jpg: no answer from the service: timed out" in done.stderr
    assert "0 photos, annotated in" in done.stdout
