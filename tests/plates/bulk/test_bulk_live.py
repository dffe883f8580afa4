"""`plates bulk` as a command, on a real Ray: it is killed, stopped, and continued."""

import json
import shutil
import signal
from pathlib import Path

import pandas
import psutil
import pytest
from support import SCENE, SCENE_TEXT, plates

from plates.benchmarks import bulk

pytestmark = pytest.mark.control


def test_no_photo_is_lost_or_read_twice_when_processes_are_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/proc")  # Nobody can write there.
    folder, out, errors = tmp_path / "photos", tmp_path / "out", tmp_path / "stderr"
    paths = bulk.make_photos(folder, 119)
    paths.append(Path(shutil.copy(SCENE, paths[0].with_name("000119.jpg"))))
    with errors.open("w+") as stderr:
        # A worker is killed, then the whole command.
        command = bulk.start(folder, out, 2, stderr)
        bulk.wait_for_chunks(command, out, 4)
        bulk.actors_of(command)[0].kill()
        bulk.wait_for_chunks(command, out, 10)
        refused = plates("bulk", str(folder), "--out", str(out), "--chunk", "2")
        assert refused.returncode == 2
        assert f"process {command.pid}" in refused.stderr
        readers = bulk.actors_of(command)
        command.kill()
        assert command.wait(bulk.WAIT_S) == -signal.SIGKILL
        assert not psutil.wait_procs(readers, timeout=bulk.WAIT_S)[1]
        before = bulk.parts_of(out)
        assert 10 <= len(before) < 60
        # The same command continues until it is stopped, and once more to the end.
        for number in (signal.SIGINT, signal.SIGTERM):
            command = bulk.start(folder, out, 2, stderr)
            bulk.wait_for_chunks(command, out, len(bulk.parts_of(out)) + 6)
            readers = bulk.actors_of(command)
            command.send_signal(number)
            assert command.wait(bulk.WAIT_S) == 128 + number, errors.read_text()
            assert "stopped; the same command continues" in errors.read_text()
            assert not psutil.wait_procs(readers, timeout=bulk.WAIT_S)[1]
            assert not list((out / "work").iterdir())
            assert json.loads((out / "manifest.json").read_text())["state"] == "stopped"
            stderr.truncate(0)
        assert bulk.start(folder, out, 2, stderr).wait(2 * bulk.WAIT_S) == 1, errors.read_text()
        assert "died" not in errors.read_text() and "\r" not in errors.read_text()
    assert bulk.parts_of(out).items() >= before.items()
    assert bulk.verify(paths, out).holds, bulk.verify(paths, out)
    manifest = json.loads((out / "manifest.json").read_text())
    counts = manifest["counts"]
    assert manifest["state"] == "complete"
    assert (counts["photos"], counts["done"], counts["failed"]) == (120, 120, 4)
    rows = pandas.read_parquet(out / "plates")
    assert counts["plates"] == rows["plate"].notna().sum()
    assert rows.loc[rows["photo"] == str(paths[-1]), "text"].tolist() == [SCENE_TEXT]
    reasons = pandas.read_csv(out / "failed.csv").sort_values("photo")["reason"]
    assert reasons.tolist() == ["broken-image", "empty-image", "unsupported-type", "broken-image"]
    assert [path.name for path in out.rglob(".*")] == [".lock"]
