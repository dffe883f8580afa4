"""Read an archive of photos, however large, into Parquet files: each photo exactly once.

SOURCE is a folder with all below it, a photo, a pattern in quotes, or a URL that fsspec opens
(s3://…, https://…, zip://::photos.zip; some need a package, which is named if it is missing).
It is listed once. The photos are read in chunks by processes that Ray Data runs, on this
machine or on a cluster, and each chunk is written to DIR when it is done:

  DIR/plates/       Parquet: one row per plate, one per photo without; pandas.read_parquet
  DIR/failed.csv    photo, reason, message: what could not be read, and why
  DIR/manifest.json settings, weights, counts, state

Photos are recognized by their first bytes, whatever their names; hidden files, tables, texts and
pages are left out. If the command was stopped or killed, the same command goes on where it was:
nothing is lost, nothing is read twice. Exit status: 0, or 1 if anything could not be read or
written.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from plates.bulk import BulkError, OutputError, Request
from plates.cli import CommandError
from plates.cli.options import add_engine, add_weights, default_engine

_FAULTS = ("failed", "folders_not_listed")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = parser.add_argument
    add("source", metavar="SOURCE")
    add("--out", type=Path, metavar="DIR", required=True, help="all machines must share it")
    for name, default, purpose in (
        ("--workers", None, "processes of 1 thread each (default: one per core, or per GPU)"),
        ("--gpus", 0, "GPUs that the processes share evenly (default: none)"),
        ("--chunk", 256, "photos in a chunk: what a death costs, at most (default: 256)"),
        ("--limit", None, "read the first N files only"),
    ):
        add(name, type=_count, metavar="N", default=default, help=purpose)
    add("--address", metavar="HOST:PORT", help="of a Ray cluster (default: one is started here)")
    add("--extend", action="store_true", help="list SOURCE again and read what is new, too")
    add(
        "--retry-failed",
        action="store_true",
        help="read photos again that could not be reached; damaged ones stay as they are",
    )
    add_weights(parser)
    add_engine(parser)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Read the archive, or what is left of it; 0, or 1 if a photo, folder or chunk failed.

    Raises:
        CommandError: The source, the output, the nets or Ray can't be used; status 2 if the
            arguments contradict an earlier run's.
    """
    from tqdm import tqdm

    from plates.bulk import running
    from plates.cli.signals import stop_signals_raise

    gpus, device = arguments.gpus, arguments.device
    if gpus and device == "cpu":
        device = "cuda:0"  # Ray shows each process its own as the first one
    arguments.device = device
    request = Request(
        arguments.source,
        arguments.out,
        arguments.chunk,
        arguments.limit,
        arguments.extend,
        arguments.retry_failed,
        arguments.workers,
        gpus or int(device != "cpu"),
        arguments.address,
        arguments.weights.resolve() if arguments.weights else None,
        arguments.engine or default_engine(arguments),
        device,
    )
    try:
        with stop_signals_raise():
            # Above the progress bar, if there is one.
            done = running.run(request, lambda text: tqdm.write(text, file=sys.stderr))
    except BulkError as error:
        raise CommandError(str(error), 2 if isinstance(error, OutputError) else 1) from error
    except Exception as error:
        # By name: their classes are torch's neighbours, and this process never holds torch.
        if type(error).__name__ not in ("EngineError", "ExportError", "WeightsError"):
            raise
        raise CommandError(str(error)) from error
    _print(arguments.out, done, done["counts"])
    return int(any(done["counts"][name] for name in _FAULTS) or done["state"] != "complete")


def _print(out: Path, done: dict[str, Any], counts: dict[str, int]) -> None:
    read = counts["done"] - counts["failed"] - counts["others"]
    print(f"{read:,} photos read, {counts['plates']:,} plates: {out / 'plates'}")
    if counts["failed"] or counts["folders_not_listed"]:
        number = counts["folders_not_listed"]
        folders = f" and {number:,} folders" if number else ""
        print(f"{counts['failed']:,} photos{folders} could not be read: {out / 'failed.csv'}")
    if counts["others"]:
        names = ", ".join(done["other_files"])
        more = ", …" if counts["others"] > len(done["other_files"]) else ""
        print(f"{counts['others']:,} files are no photos: {names}{more}")
    if chunks := counts["chunks_not_written"]:
        print(f"{chunks:,} chunks could not be written; run again once there is room")
