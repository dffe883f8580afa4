"""Read an archive of photos of any size into Parquet files, each photo exactly once.

SOURCE is a folder with its subfolders, a photo, a pattern in quotes, or a URL that fsspec opens
(s3://…, https://…, zip://::photos.zip). It is listed once, then read in chunks by processes of Ray
Data, on this machine or on a cluster. The Parquet files go to DIR/plates/; DIR/failed.csv lists
what could not be read, and why. The same command continues a run that was stopped or killed. Exit
status: 1 if anything failed, 2 if DIR is in use or belongs to another run. See docs/archive.md.
"""

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from tqdm import tqdm

from plate_models.release import WEIGHTS_DIR
from plates.bulk import Request
from plates.cli import printable, stop_signals_raise
from plates.cli.options import add_nets, add_number, default_engine


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="SOURCE")
    add("--out", type=Path, metavar="DIR", required=True, help="output folder of all machines")
    workers = "number of processes, of 1 thread each (default: one per core, or per GPU)"
    add_number(parser, "--workers", None, workers, least=1)
    add_number(parser, "--gpus", 0, "number of GPUs, shared evenly by the processes")
    add_number(parser, "--chunk", 256, "photos per chunk (read again if a process dies)", least=1)
    add_number(parser, "--limit", None, "read the first N files only", least=1)
    add("--address", metavar="HOST:PORT", help="Ray cluster to use (default: start Ray here)")
    add("--extend", action="store_true", help="list SOURCE again and read new files, too")
    purpose = "retry photos that could not be fetched or crashed the reader, not damaged ones"
    add("--retry-failed", action="store_true", help=purpose)
    add_nets(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read the archive or the rest of it; returns 1 if a photo, folder or chunk failed, else 0."""
    from plates.bulk import running

    if arguments.gpus and arguments.device == "cpu":
        arguments.device = "cuda:0"  # Ray makes each process's own GPU the first one
    arguments.gpus = arguments.gpus or int(arguments.device != "cpu")
    arguments.engine = arguments.engine or default_engine(arguments)
    # None: a cluster's machines may have the released weights elsewhere.
    folder = arguments.weights.resolve()
    arguments.weights = None if folder == WEIGHTS_DIR else folder
    request = Request(**{field.name: getattr(arguments, field.name) for field in fields(Request)})
    with stop_signals_raise():
        done = running.run(request, lambda text: tqdm.write(text, file=sys.stderr))
    counts = done["counts"]
    read = counts["done"] - counts["failed"] - counts["others"]
    print(f"{read:,} photos read, {counts['plates']:,} plates: {request.out / 'plates'}")
    if failed := counts["failed"] + counts["folders_not_listed"]:
        print(f"{failed:,} photos or folders could not be read: {request.out / 'failed.csv'}")
    if names := printable(", ".join(done["other_files"])):
        print(f"{counts['others']:,} files are no photos, such as {names}")
    if unwritten := counts["chunks_not_written"]:
        print(f"{unwritten:,} chunks could not be written; free some space and run again")
    return int(bool(failed) or done["state"] != "complete")
