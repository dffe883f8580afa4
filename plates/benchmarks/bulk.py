"""An archive read under kills, and its pace beside plain processes.

Photos are made, all different, three in a hundred of them spoilt (kept in build/bulk/), and read
by `plates bulk`. A worker is killed with SIGKILL on the way, then the command itself; the same
command goes on to the end, while the memory of all its processes is measured. Every photo must
be in the result or named as failed, once and rightly. Then some are read by `plates bulk` and by
plain processes, one for each core, without Ray, in turns: their rows must be the same, and the
pace 0.9 of theirs (in the time in which processes work; what Ray needs to start is left out).
"""

import argparse
import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas
import psutil
from tqdm import tqdm

from plate_models.cores import usable_cores
from plate_models.images import ImageError
from plates.benchmarks import report
from plates.benchmarks.report import Verdict
from plates.benchmarks.service import footprints
from plates.benchmarks.soak import trend_of
from plates.bulk import Request
from plates.bulk.output import Output
from plates.bulk.reading import columns_of, load_alone, read_file
from plates.cli import CommandError

PACE_FLOOR, MOST_GROWTH = 0.9, 0.02
SEED, SCENES, FOLDER_PHOTOS = 6, 200, 500
# Shares of the chunks, when the worker and the command die; of the time, until caches are full.
WORKER_DIES, COMMAND_DIES, WARM_UP = 0.1, 0.2, 0.25
HOME = Path("build/bulk")
SIZES_WH = ((640, 360), (800, 450), (960, 540), (1280, 720))
SPOILT = {17: "truncated", 43: "empty", 71: "words"}  # by a photo's number modulo 100
BLURRED = (7, 88)  # they show no plate
COMPARED = ["text", "score", "format", "x0", "y0", "x1", "y1", "detection_score"]
MEMORY_EVERY_S, LOOK_EVERY_S, WAIT_S = 5.0, 0.5, 60.0
Rows = list[dict[str, Any]]
_nets: Any = None  # of a process that reads photos
_barrier: Any = None


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    report.add_outputs(parser, "bulk")
    report.add_number(parser, "--photos", 20_000, "photos to make and to read", least=1)
    report.add_number(parser, "--chunk", 128, "photos in a chunk", least=1)
    report.add_number(parser, "--pace-folders", 2, "of 500 photos, for one turn", least=1)
    report.add_number(parser, "--turns", 3, "turns of the pace", least=1)


def run(arguments: argparse.Namespace) -> int:
    """Make, read, kill, read on, verify, measure; 0 if every floor holds, else 1."""
    if arguments.photos < 20 * arguments.chunk:
        raise CommandError("--photos: expected at least 20 chunks, or nothing can be killed midway")
    report.make_folders(arguments)
    print(f"{report.describe_machine()}, {usable_cores()} workers of 1 thread", flush=True)
    paths = make_photos(HOME / f"photos-{arguments.photos}", arguments.photos)
    verdicts, memory = read_under_kills(paths, arguments.chunk)
    folders = sorted({path.parent for path in paths})[: arguments.pace_folders]
    paces = [take_turn(folders) for _ in range(arguments.turns)]
    report.print_table(paces)
    ratio = sum(pace["plates bulk"] for pace in paces) / sum(pace["plain"] for pace in paces)
    unlike = sum(pace["unlike"] for pace in paces)
    verdicts += [
        Verdict("photos with other rows than a plain process's", str(unlike), "0", not unlike),
        Verdict("pace per core", f"{ratio:.3f}", f">= {PACE_FLOOR}", ratio >= PACE_FLOOR),
    ]
    status = report.print_verdicts(verdicts)
    figures = {"verdicts": [vars(verdict) for verdict in verdicts], "paces": paces}
    report.write(arguments, figures | {"memory": memory}, lambda figure: _plot(figure, memory))
    return status


def make_photos(folder: Path, count: int) -> list[Path]:
    """Make the photos that are not there; photo N is the same in every archive of that seed."""
    folder = folder.absolute()
    paths = [folder / f"{n // FOLDER_PHOTOS:03d}" / f"{n:06d}.jpg" for n in range(count)]
    if (folder / ".complete").exists():
        return paths
    scenes = folder.parent / f"scenes-{SEED}"
    for path in {scenes, *(path.parent for path in paths)}:
        path.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(usable_cores(), get_context("spawn")) as pool:
        drawn = pool.map(_render, [scenes / f"{number:03d}.jpg" for number in range(SCENES)])
        list(tqdm(drawn, total=SCENES, unit="scene", disable=None))
        made = pool.map(_make, [scenes] * count, paths, chunksize=100)
        list(tqdm(made, total=count, unit="photo", disable=None))
    (folder / ".complete").touch()
    return paths


def _render(path: Path) -> None:
    from plate_models.training.benchmark import render_photo
    from plate_models.training.synthetic.kinds import KINDS

    if not path.exists():
        kind, number = list(KINDS)[int(path.stem) % len(KINDS)], int(path.stem) // len(KINDS)
        path.write_bytes(render_photo(kind, number, SEED).file)


def _make(scenes: Path, path: Path) -> None:
    """Cut, scale, light and compress a scene anew."""
    number = int(path.stem)
    dice = np.random.default_rng((SEED, number))
    image: Any = cv2.imread(str(scenes / f"{int(dice.integers(SCENES)):03d}.jpg"))
    (height, width), share = image.shape[:2], dice.uniform(0.8, 1.0)
    x, y = (int(dice.uniform(0, 1 - share) * side) for side in (width, height))
    cut = image[y : y + int(share * height), x : x + int(share * width)]
    size = SIZES_WH[int(dice.integers(len(SIZES_WH)))]
    cut = cv2.resize(cut, size, interpolation=cv2.INTER_AREA)
    if number % 100 in BLURRED:
        cut = cv2.GaussianBlur(cut, (0, 0), 25)
    cut = cv2.convertScaleAbs(cut, alpha=dice.uniform(0.7, 1.3), beta=dice.uniform(-15, 15))
    _, file = cv2.imencode(".jpg", cut, [cv2.IMWRITE_JPEG_QUALITY, int(dice.integers(60, 93))])
    data = file.tobytes()
    words = f"Photo {number} was never taken.".encode()
    spoilt = {"truncated": data[: len(data) // 2], "empty": b"", "words": words}
    path.write_bytes(spoilt.get(SPOILT.get(number % 100, ""), data))


def _start(source: Path | str, out: Path, chunk: int) -> "subprocess.Popen[str]":
    words = ("bulk", str(source), "--out", str(out), "--chunk", str(chunk))
    command = (sys.executable, "-P", "-m", "plates.cli.main", *words)
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True)  # noqa: S603


def _actors(command: "subprocess.Popen[str]") -> list[psutil.Process]:
    found = psutil.Process(command.pid).children(recursive=True)
    return [process for process in found if "MapWorker" in "".join(process.cmdline()[:1])]


def _parts(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (out / "plates").glob("part-*")}


def read_under_kills(paths: Sequence[Path], chunk: int) -> tuple[list[Verdict], Rows]:
    """Read the archive while a worker and then the command are killed, read on, and verify."""
    folder, out, chunks = paths[0].parent.parent, HOME / "out", -(-len(paths) // chunk)
    shutil.rmtree(out, ignore_errors=True)
    command = _start(folder, out, chunk)
    _wait_for_chunks(command, out, WORKER_DIES * chunks)
    _actors(command)[0].kill()
    _wait_for_chunks(command, out, COMMAND_DIES * chunks)
    orphans = _actors(command)
    command.kill()
    gone = not psutil.wait_procs(orphans, timeout=WAIT_S)[1]
    before = _parts(out)
    print(f"killed a worker, then the command, at {len(before)} of {chunks} chunks", flush=True)
    command, began = _start(folder, out, chunk), time.monotonic()
    memory: Rows = []
    while command.poll() is None:
        at_s = time.monotonic() - began
        if at_s >= len(memory) * MEMORY_EVERY_S:
            memory.append({"at_s": at_s, **_memory(command.pid)})
        time.sleep(LOOK_EVERY_S)
    after = _parts(out)
    kept = sum(after.get(name) == when for name, when in before.items())
    status, came = command.returncode, f"{kept} of {len(before)}"
    return [
        Verdict("the killed run's readers ended", str(gone), "True", gone),
        Verdict("chunks untouched after the kill", came, "all", kept == len(before) > 0),
        Verdict("exit status after failures", str(status), "1", status == 1),
        _verify(paths, out),
        *_memory_verdict(memory),
    ], memory


def _wait_for_chunks(command: "subprocess.Popen[str]", out: Path, count: float) -> None:
    while len(_parts(out)) < count:
        if command.poll() is not None:
            raise CommandError(f"the run ended with {command.returncode} before it was killed")
        time.sleep(LOOK_EVERY_S)


def _memory(pid: int) -> dict[str, float]:
    """What the command, its actors and the rest of Ray hold, in MiB of PSS."""
    held = {"command": 0.0, "actors": 0.0, "ray": 0.0}
    for one in footprints(pid):
        part = "command" if one.pid == pid else "actors" if "MapWorker" in one.part else "ray"
        held[part] += one.pss_bytes / 2**20
    return {**held, "total": sum(held.values())}


def _memory_verdict(memory: Rows) -> list[Verdict]:
    end = memory[-1]["at_s"]
    warm = [row for row in memory if WARM_UP * end <= row["at_s"] <= 0.97 * end and row["actors"]]
    if len(warm) < 10:
        print("too short for a judgement of its memory: give more --photos")
        return []
    times = [row["at_s"] for row in warm]
    trend, hours = trend_of(times, [row["total"] for row in warm]), (times[-1] - times[0]) / 3600
    grown = trend["slope/h"] * hours
    came = f"{trend['median']:.0f} MiB of PSS, {grown:+.1f} MiB in {hours * 60:.1f} minutes"
    holds = trend["low"] <= 0 or grown <= MOST_GROWTH * trend["median"]
    return [Verdict("flat memory", came, f"no growth, or at most {MOST_GROWTH:.0%}", holds)]


def _plot(figure: Any, memory: Rows) -> None:
    title, axes = "memory of all processes after the kill", figure.subplots()
    pandas.DataFrame(memory).plot("at_s", xlabel="s", ylabel="PSS, MiB", title=title, ax=axes)


def _verify(paths: Sequence[Path], out: Path) -> Verdict:
    """Compare the output with the archive that was made."""
    rows = pandas.read_parquet(out / "plates", columns=["photo", "plate"])
    failed = pandas.read_csv(out / "failed.csv")["photo"]
    all_, read = {str(path) for path in paths}, set(rows["photo"])
    spoilt = {str(path) for path in paths if int(path.stem) % 100 in SPOILT}
    lost = len(all_ - read - set(failed))
    twice = rows.duplicated().sum() + failed.duplicated().sum()
    # A photo without plates has one row, and no other beside it.
    twice += len(set(rows.loc[rows["plate"].isna(), "photo"]) & set(rows.dropna()["photo"]))
    wrong = len(set(failed) ^ spoilt) + len(read ^ (all_ - spoilt))
    came = f"{len(read):,} read, {len(failed):,} failed, {lost} lost, {twice} twice, {wrong} wrong"
    holds = not (lost + twice + wrong)
    return Verdict("every photo once", came, "0 lost, 0 twice, 0 wrong", holds)


def take_turn(folders: Sequence[Path]) -> dict[str, float]:
    """Read photos with `plates bulk` and with plain processes: photos/s while they work."""
    cores, out = usable_cores(), HOME / "pace"
    shutil.rmtree(out, ignore_errors=True)
    pattern = folders[0].parent / f"00[0-{min(9, len(folders) - 1)}]" / "*.jpg"
    command = _start(pattern, out, 50)
    if command.wait() not in (0, 1):
        raise CommandError(f"plates bulk ended with {command.returncode}")
    accounts = pandas.DataFrame(map(vars, map(Output(out).account, Output(out).committed())))
    work = accounts.groupby("process").agg({"photos": "sum", "began": "min", "ended": "max"})
    bulk = float((work["photos"] / (work["ended"] - work["began"])).sum())
    paths = sorted(path for folder in folders[:10] for path in folder.glob("*.jpg"))
    spawn = get_context("spawn")
    begin = (spawn.Barrier(cores),)
    with ProcessPoolExecutor(cores, spawn, initializer=_load, initargs=begin) as pool:
        shares = list(pool.map(_read_share, [paths[n::cores] for n in range(cores)]))
    plain = sum(len(rows) / seconds for rows, seconds in shares)
    found = {path: rows for share, _ in shares for path, rows in share.items()}
    return {"plates bulk": bulk, "plain": plain, "unlike": _unlike(found, HOME / "out")}


def _load(barrier: Any) -> None:
    global _nets, _barrier
    from plate_models.weights import check_manifest

    _nets, _barrier = load_alone(Request("", Path()), check_manifest()), barrier


def _read_share(paths: Sequence[Path]) -> tuple[dict[str, list[Any]], float]:
    """Read photos: the plates of each, as columns, and the seconds that it took."""
    found: dict[str, list[Any]] = {str(path): [] for path in paths}
    _barrier.wait(WAIT_S)
    began = time.monotonic()
    for path in paths:
        with contextlib.suppress(ImageError):
            plates = read_file(path.read_bytes(), _nets)[1]
            found[str(path)] = [columns_of(number, plate) for number, plate in enumerate(plates)]
    return found, time.monotonic() - began


def _unlike(found: dict[str, list[Any]], out: Path) -> int:
    """Count the photos of which the output says something else."""
    columns = ["photo", *COMPARED]
    kept = pandas.read_parquet(out / "plates", filters=[("photo", "in", list(found))])
    kept = kept.dropna(subset="plate")[columns]
    plates = [{"photo": photo, **plate} for photo, rows in found.items() for plate in rows]
    here = pandas.DataFrame(plates)[columns].astype(kept.dtypes)
    both = kept.merge(here, "outer", indicator="in")
    return int(both.loc[both["in"] != "both", "photo"].nunique())
