"""An archive read under kills, and its pace beside plain processes.

First photos are made, all different, some of them broken (kept in build/bulk/). Then:

  kills   `plates bulk` reads them all. A worker is killed with SIGKILL on the way, then the
          command itself; the same command goes on, and is left alone to the end, while the
          memory of all its processes is measured
  once    every photo must be in the result or named as failed, once and rightly; a sample is
          read again in one process and must give the same rows
  pace    part of the photos is read by `plates bulk` and by plain processes, one for each
          core, without Ray, in turns. Counted is the time in which processes work, chunk to
          chunk; what Ray needs to start stands beside it

Floors: nothing lost, nothing twice, the same rows, flat memory, 0.9 of the plain processes' pace.
"""

import argparse
import os
import shutil
import signal
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from plates.benchmarks import report
from plates.benchmarks.bulk_checks import Counts
from plates.benchmarks.bulk_photos import FOLDER_PHOTOS, make_photos, path_of
from plates.benchmarks.bulk_report import draw_bulk, memory_verdict, print_memory
from plates.benchmarks.bulk_run import Watched, actors_of, parts_done, wait_until_gone, watch
from plates.benchmarks.machine import describe_machine
from plates.benchmarks.measuring_process import MeasuringProcess
from plates.cli import CommandError

FLOOR = 0.9
_HOME = Path("build/bulk")
_SAMPLE = 200
_SEED = 6
# Of all chunks: when the worker dies, and when the command does.
_WORKER_DIES, _COMMAND_DIES = 0.1, 0.2


@dataclass
class Trial:
    """What came out.

    Attributes:
        killed: The run that lost a worker and was killed.
        resumed: The one that went on.
        chunks: In all.
        survived: Chunks that were done when the command was killed.
        kept: Of them, those whose file nobody touched afterwards.
        gone: Whether the killed command's readers ended by themselves.
        counts: What is in the output.
        differing: Photos of the sample with other rows than in one process.
        paces: Pairs: photos/s of `plates bulk`, and of plain processes.
        starts: Seconds until the first photo, and after the last one, of each run's pace.
    """

    killed: Watched
    resumed: Watched
    chunks: int
    survived: int
    kept: int
    gone: bool
    counts: Counts | None = None
    differing: list[str] = field(default_factory=list)
    paces: list[tuple[float, float]] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    report.add_outputs(parser, "bulk")
    for name, default, purpose in (
        ("--photos", 20_000, "to make and to read"),
        ("--chunk", 128, "photos in a chunk"),
        ("--pace-photos", 1000, "for one turn of the pace"),
        ("--turns", 3, "of the pace; 0 leaves it out"),
    ):
        parser.add_argument(
            name, type=int, metavar="N", default=default, help=f"{purpose} (default: {default})"
        )


def run(arguments: argparse.Namespace) -> int:
    """Make, read, kill, read on, verify, measure.

    Returns:
        0 if every floor holds, else 1.

    Raises:
        CommandError: There are too few photos, or a run ended as it should not.
    """
    if arguments.photos < 20 * arguments.chunk:
        raise CommandError("--photos: expected at least 20 chunks, or nothing can be killed midway")
    report.make_folders(arguments)
    from plate_models.cores import usable_cores

    cores, began = usable_cores(), time.monotonic()
    folder = (_HOME / f"photos-{arguments.photos}").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with MeasuringProcess({}) as helper:
        made = helper.call(make_photos, folder, arguments.photos, _SEED, cores)
    machine = f"{describe_machine()}, {cores} workers of 1 thread"
    print(f"{arguments.photos:,} photos, {made:,} of them made now\n{machine}\n", flush=True)
    out = _HOME / "out"
    trial = read_under_kills(folder, out, arguments.chunk)
    _verify(trial, folder, out, arguments.photos)
    for _ in range(arguments.turns):
        _take_turn(trial, folder, min(arguments.pace_photos, arguments.photos), cores)
    spent = time.monotonic() - began
    return _tell(arguments, trial, machine, spent)


def read_under_kills(folder: Path, out: Path, chunk: int) -> Trial:
    """Read an archive while a worker and then the command are killed, and read on.

    Args:
        folder: Of the photos.
        out: The output folder; an old one is removed.
        chunk: Photos in a chunk.

    Raises:
        CommandError: A run ended before it was killed, or otherwise than it should.
    """
    shutil.rmtree(out, ignore_errors=True)
    words = (str(folder), "--out", str(out), "--chunk", str(chunk))
    killer = _Killer(out, -(-sum(1 for _ in folder.glob("*/*.jpg")) // chunk))
    killed = watch(words, killer)
    if killed.status != -signal.SIGKILL or not killer.worker_died:
        raise CommandError(
            f"the run ended with {killed.status} before it was killed:\n{killed.said}"
        )
    gone = wait_until_gone(killer.orphans)
    before = _files(out)
    print(f"killed a worker, then the command, at {len(before)} of {killer.chunks} chunks")
    resumed = watch(words)
    print(f"{resumed.said}\nexit status {resumed.status}\n", flush=True)
    after = _files(out)
    kept = sum(after.get(name) == when for name, when in before.items())
    return Trial(killed, resumed, killer.chunks, len(before), kept, gone)


class _Killer:
    """Kills an actor, then the command."""

    def __init__(self, out: Path, chunks: int) -> None:
        self.chunks = chunks
        self.worker_died = False
        self.orphans: list[Any] = []
        self._out = out

    def __call__(self, process: "subprocess.Popen[str]") -> None:
        done = parts_done(self._out)
        if not self.worker_died and done >= _WORKER_DIES * self.chunks:
            actors = actors_of(process.pid)
            if actors:
                os.kill(actors[0].pid, signal.SIGKILL)
                self.worker_died = True
        elif self.worker_died and done >= _COMMAND_DIES * self.chunks:
            self.orphans = actors_of(process.pid)
            process.kill()


def _files(out: Path) -> dict[str, int]:
    return {p.name: p.stat().st_mtime_ns for p in (out / "plates").glob("part-*.parquet")}


def _job(folder: Path, out: Path) -> Any:
    """Runs in a helper: what would name weights loads torch."""
    from plate_models.weights import check_manifest
    from plates.bulk.chunks import Job

    return Job(str(folder), out, check_manifest())


def _verify(trial: Trial, folder: Path, out: Path, photos: int) -> None:
    from plates.benchmarks.bulk_checks import count, differing

    sample = [path_of(folder, n) for n in range(0, photos, max(1, photos // _SAMPLE))]
    with MeasuringProcess({}) as helper:
        trial.counts = helper.call(count, folder, photos, out)
        trial.differing = helper.call(differing, sample, out, helper.call(_job, folder, out))


def _take_turn(trial: Trial, folder: Path, photos: int, cores: int) -> None:
    """Read the same photos with `plates bulk` and with plain processes."""
    from plates.benchmarks.bulk_checks import pace_of, shares_of

    folders = max(1, photos // FOLDER_PHOTOS)
    pattern = f"{folder}/00[0-{min(9, folders - 1)}]/*.jpg"
    out = _HOME / "pace"
    shutil.rmtree(out, ignore_errors=True)
    chunk = ("--chunk", "50")
    began = time.time()
    watched = watch((pattern, "--out", str(out), *chunk), with_memory=False)
    if watched.status not in (0, 1):
        raise CommandError(f"plates bulk ended with {watched.status}:\n{watched.said}")
    paths = sorted(folder.glob(f"00[0-{min(9, folders - 1)}]/*.jpg"))
    with MeasuringProcess({}) as helper:
        shares = helper.call(shares_of, out)
        plain = helper.call(_plain_shares, paths, folder, out, cores)
    trial.starts.append(watched.seconds - (max(s.ended for s in shares) - began))
    trial.starts[-1] += min(s.began for s in shares) - began
    trial.paces.append((pace_of(shares), pace_of(plain)))
    bulk, plainly = trial.paces[-1]
    print(f"plates bulk {bulk:.2f} photos/s, plain processes {plainly:.2f}: {bulk / plainly:.3f}")


def _plain_shares(paths: list[Path], folder: Path, out: Path, cores: int) -> Any:
    from plates.bulk.loop import read_in_processes

    return read_in_processes(paths, _job(folder, out), cores)


def _tell(arguments: argparse.Namespace, trial: Trial, machine: str, spent: float) -> int:
    print()
    print_memory(trial.resumed.memory)
    verdicts = list(_verdicts(trial))
    status = report.print_verdicts(verdicts)
    draw_bulk(trial.killed, trial.resumed, trial.paces, machine, arguments.plot)
    print(f"\nDrawn in {arguments.plot}; {spent / 60:.1f} minutes")
    if arguments.json:
        document = {"machine": machine, "photos": arguments.photos, "seconds": spent}
        document |= {"verdicts": [asdict(v) for v in verdicts], **asdict(trial)}
        for run in (document["killed"], document["resumed"]):
            del run["said"]  # names this machine's folders
        report.write_json(arguments.json, document)
    return status


def _verdicts(trial: Trial) -> "list[report.Verdict]":
    counts = trial.counts
    if counts is None:
        raise CommandError("nothing was counted")
    once = (
        f"{counts.photos:,} photos: {counts.read:,} read, {counts.failed:,} failed, "
        f"{counts.lost} lost, {counts.twice} twice, {counts.unexpected} unexpected"
    )
    verdict = report.Verdict
    found = [
        verdict("every photo once", once, "0 lost, 0 twice, 0 unexpected", counts.exactly_once),
        verdict(
            "exit status after failures", str(trial.resumed.status), "1", trial.resumed.status == 1
        ),
        verdict(
            "chunks done before the kill, untouched after it",
            f"{trial.kept} of {trial.survived}",
            "all",
            trial.kept == trial.survived > 0,
        ),
        verdict("the killed run's readers ended", str(trial.gone), "True", trial.gone),
        verdict(
            "rows unlike those of one process", str(len(trial.differing)), "0", not trial.differing
        ),
    ]
    flat = memory_verdict(trial.resumed.memory)
    if flat is not None:
        found.append(flat)
    return found + ([_pace_verdict(trial)] if trial.paces else [])


def _pace_verdict(trial: Trial) -> "report.Verdict":
    ratio = sum(bulk for bulk, _ in trial.paces) / sum(plain for _, plain in trial.paces)
    turns = [bulk / plain for bulk, plain in trial.paces]
    came = (
        f"{ratio:.3f} ({min(turns):.3f} to {max(turns):.3f}); start and end besides "
        f"{sum(trial.starts) / len(trial.starts):.1f} s"
    )
    what = "pace per core beside plain processes"
    return report.Verdict(what, came, f">= {FLOOR}", ratio >= FLOOR)
