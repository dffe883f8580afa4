"""Read an archive while processes are killed: is every photo read exactly once, and correctly?

The tool makes photos in build/bulk/ from the sample scenes, three in a hundred of them damaged, and
reads them with `plates bulk`. It kills a worker with SIGKILL, later the command itself, then runs
the same command to the end. Every photo must be in the result, read correctly, or be listed as
failed, and only once.
"""

import argparse
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import cv2
import numpy as np
import pandas
import psutil

from plates.benchmarks.report import Report, Verdict, none_of
from plates.cli import CommandError
from plates.cli.options import add_number
from plates.cli.samples import SAMPLES
from plates.serving.child import python

FOLDER_PHOTOS = 1000
# Photos per chunk. With fewer than twenty chunks nothing can be killed midway.
CHUNK = 128
WORKER_DIES, COMMAND_DIES = 0.1, 0.2  # after this share of the chunks
HOME = Path("build/bulk")
# By a photo's number modulo 100: damaged (truncated, empty, a text), and without a plate.
SPOILT, WITHOUT_PLATE = (17, 43, 71), (7, 88)
POLL_S, WAIT_S = 0.02, 180.0


def configure(parser: argparse.ArgumentParser) -> None:
    add_number(parser, "--photos", 20_000, "number of photos to make and read", least=20 * CHUNK)


def run(arguments: argparse.Namespace) -> Report:
    paths = make_photos(HOME / f"photos-{arguments.photos}", arguments.photos)
    return Report({}, read_under_kills(paths, HOME / "out"), {"photos": len(paths)})


def make_photos(folder: Path, count: int) -> list[Path]:
    """Fill a folder with the sample scenes in turns; some photos are damaged or show no plate."""
    scenes = [path.read_bytes() for path in sorted(SAMPLES.glob("*.jpg"))]
    grey = cv2.imencode(".jpg", np.full((720, 1280, 3), 128, np.uint8))[1].tobytes()
    special = dict.fromkeys(WITHOUT_PLATE, grey)
    special |= zip(SPOILT, (scenes[0][:50_000], b"", b"Words, and no photo."), strict=True)
    paths = []
    for number in range(count):
        path = folder.absolute() / f"{number // FOLDER_PHOTOS:03d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(special.get(number % 100, scenes[number % len(scenes)]))
        paths.append(path)
    return paths


def start(
    source: Path, out: Path, chunk: int, stderr: int | TextIO = subprocess.DEVNULL
) -> "subprocess.Popen[str]":
    words = ("bulk", str(source), "--out", str(out), "--chunk", str(chunk))
    command = (*python("plates.cli.main"), *words)
    return subprocess.Popen(command, stderr=stderr, text=True)  # noqa: S603


def actors_of(command: "subprocess.Popen[str]") -> list[psutil.Process]:
    """The processes of the command that read photos."""
    found = psutil.Process(command.pid).children(recursive=True)
    return [process for process in found if "MapWorker" in "".join(process.cmdline()[:1])]


def parts_of(out: Path) -> dict[str, int]:
    """The committed chunks, and the time at which each was written."""
    return {path.name: path.stat().st_mtime_ns for path in (out / "plates").glob("part-*")}


def wait_for_chunks(command: "subprocess.Popen[str]", out: Path, count: float) -> None:
    """Wait until so many chunks are committed; raises CommandError if the command ends."""
    while len(parts_of(out)) < count:
        if command.poll() is not None:
            raise CommandError(f"the run ended with {command.returncode} before it was killed")
        time.sleep(POLL_S)


def read_under_kills(paths: Sequence[Path], out: Path) -> list[Verdict]:
    """Kill a worker and then the command while they read; read the rest with a second command."""
    folder, chunks = paths[0].parent.parent, -(-len(paths) // CHUNK)
    shutil.rmtree(out, ignore_errors=True)
    command = start(folder, out, CHUNK)
    wait_for_chunks(command, out, WORKER_DIES * chunks)
    actors_of(command)[0].kill()
    wait_for_chunks(command, out, COMMAND_DIES * chunks)
    orphans = actors_of(command)
    command.kill()
    command.wait()
    alive = psutil.wait_procs(orphans, timeout=WAIT_S)[1]
    before = parts_of(out)
    status, after = start(folder, out, CHUNK).wait(), parts_of(out)
    changed = (name for name, when in before.items() if after.get(name) != when)
    return [
        none_of("readers that outlived the killed command", (f"process {p.pid}" for p in alive)),
        none_of("chunks that changed after the kill", changed),
        Verdict("exit status after failures", str(status), "1", status == 1),
        verify(paths, out),
    ]


def verify(paths: Sequence[Path], out: Path) -> Verdict:
    """Compare the output with the archive that was made."""
    rows = pandas.read_parquet(out / "plates", columns=["photo", "plate"])
    failed = pandas.read_csv(out / "failed.csv")["photo"]
    all_, read = {str(path) for path in paths}, set(rows["photo"])
    spoilt = {str(path) for path in paths if int(path.stem) % 100 in SPOILT}
    twice = rows.duplicated().sum() + failed.duplicated().sum()
    # A photo without plates has only one row.
    twice += len(set(rows.loc[rows["plate"].isna(), "photo"]) & set(rows.dropna()["photo"]))
    wrong = len(set(failed) ^ spoilt) + len(read ^ (all_ - spoilt))
    came = f"{len(read):,} read, {len(failed):,} failed, {twice} twice, {wrong} lost or wrong"
    return Verdict("every photo once", came, "0 twice, 0 lost or wrong", not (twice + wrong))
