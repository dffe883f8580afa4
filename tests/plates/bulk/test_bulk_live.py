"""`plates bulk` as people run it, on a real Ray: kills, and going on."""

import csv
import json
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas
import psutil
import pytest
from photo_files import BAD
from support import PLATES, ROOT, SAMPLES, SCENE, SCENE_TEXT, plates

from plate_models import weights

pytestmark = [
    pytest.mark.control,
    pytest.mark.skipif(
        not (weights.WEIGHTS_DIR / "SHA256SUMS").exists(), reason="weights/ holds no weights"
    ),
]
_WITHIN_S = 120
PHOTOS = 120


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 photos of the samples' scenes, and three that are none."""
    folder = tmp_path_factory.mktemp("archive")
    scenes = sorted(SAMPLES.glob("*.jpg"))
    for number in range(PHOTOS):
        shutil.copy(scenes[number % len(scenes)], folder / f"{number:03d}.jpg")
    for number, name in enumerate(("truncated jpeg", "text", "empty")):
        (folder / f"bad{number}.jpg").write_bytes(BAD[name][0])
    return folder


def actors_of(command: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that read photos."""
    found = psutil.Process(command.pid).children(recursive=True)
    return [process for process in found if "MapWorker" in "".join(process.cmdline()[:1])]


def parts_of(out: Path) -> dict[str, int]:
    """The committed chunks, and when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in (out / "plates").glob("part-*")}


class Run:
    """The command under way."""

    def __init__(self, source: Path, out: Path) -> None:
        words = ("bulk", str(source), "--out", str(out), "--chunk", "2")
        self.out, self.errors = out, (out.parent / "stderr").open("w+")
        self.process = subprocess.Popen(
            [*PLATES, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )

    def wait_for_chunks(self, count: int) -> None:
        self._wait(lambda: len(parts_of(self.out)) >= count)

    def _wait(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _WITHIN_S
        while not done():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.01)

    def end(self) -> int:
        self.process.communicate(timeout=_WITHIN_S)
        self.errors.close()
        return self.process.returncode

    def said(self) -> str:
        return Path(self.errors.name).read_text(encoding="utf-8")


def test_kills_lose_nothing_and_double_nothing(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    # A worker dies, then everything.
    run = Run(photos, out)
    run.wait_for_chunks(4)
    actors_of(run.process)[0].kill()
    run.wait_for_chunks(10)
    refused = plates("bulk", str(photos), "--out", str(out), "--chunk", "2")
    assert refused.returncode == 2
    assert f"process {run.process.pid}" in refused.stderr
    readers = actors_of(run.process)
    run.process.kill()
    assert run.end() == -signal.SIGKILL
    assert not psutil.wait_procs(readers, timeout=_WITHIN_S)[1]
    before = parts_of(out)
    assert 10 <= len(before) < 62
    # The same command goes on, until it is stopped, and to the end.
    run = Run(photos, out)
    run.wait_for_chunks(len(before) + 6)
    readers = actors_of(run.process)
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 128 + signal.SIGINT, run.said()
    assert "stopped; the same command goes on" in run.said()
    assert not psutil.wait_procs(readers, timeout=_WITHIN_S)[1]
    assert not list((out / "work").iterdir())
    assert json.loads((out / "manifest.json").read_text())["state"] == "stopped"
    run = Run(photos, out)
    assert run.end() == 1, run.said()
    assert "died" not in run.said()
    assert "\r" not in run.said()
    after = parts_of(out)
    assert {name: after[name] for name in before} == before
    check(photos, out)


def check(photos: Path, out: Path) -> None:
    """Every photo once, rightly, and nothing left behind."""
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["state"] == "complete"
    counts = manifest["counts"]
    assert (counts["photos"], counts["done"], counts["failed"]) == (PHOTOS + 3, PHOTOS + 3, 3)
    rows = pandas.read_parquet(out / "plates")
    assert counts["plates"] == rows["plate"].notna().sum()
    with (out / "failed.csv").open(encoding="utf-8", newline="") as file:
        failed = {Path(row["photo"]).name: row["reason"] for row in csv.DictReader(file)}
    assert failed == {
        "bad0.jpg": "broken-image",
        "bad1.jpg": "unsupported-type",
        "bad2.jpg": "empty-image",
    }
    assert set(rows["photo"]) == {str(path) for path in photos.glob("[0-9]*.jpg")}
    assert not rows.duplicated(["photo", "plate"]).any()
    scenes = sorted(SAMPLES.glob("*.jpg"))
    green = {
        str(photos / f"{n:03d}.jpg") for n in range(PHOTOS) if scenes[n % len(scenes)] == SCENE
    }
    texts = Counter(rows.loc[rows["text"] == SCENE_TEXT, "photo"])
    assert set(texts) == green and set(texts.values()) == {1}
    left = [path.name for path in out.rglob(".*") if path.name != ".lock"]
    assert not left


def test_wrong_calls_are_refused_before_anything_starts(tmp_path: Path) -> None:
    for words in ((), ("photos",), ("photos", "--out", "x", "--workers", "0")):
        done = plates("bulk", *words)
        assert done.returncode == 2
        assert done.stderr.startswith("usage: plates bulk")


def test_a_source_that_is_not_there_claims_no_folder(tmp_path: Path) -> None:
    source, out = tmp_path / "nowhere", tmp_path / "out"
    done = plates("bulk", str(source), "--out", str(out))
    assert done.returncode == 1
    assert f"plates bulk: {source}: no such file or folder" in done.stderr
    assert not out.exists()
