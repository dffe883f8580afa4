"""Read an archive of photos, however large, into Parquet files: each photo exactly once.

SOURCE is a folder with all below it, a photo, a pattern in quotes, or a URL that fsspec opens
(s3://…, https://…, zip://::photos.zip; some need a package, which is named if it is missing).
It is listed once. The photos are read in chunks by processes that Ray Data runs, on this
machine or on a cluster, and each chunk is written to DIR when it is done:

  DIR/plates/       Parquet: one row per plate, one per photo without; pandas.read_parquet
  DIR/failed.csv    photo, reason, message: what could not be read, and why
  DIR/manifest.json settings, weights, counts, state

Whatever stopped it, the same command goes on where it was: nothing is lost, nothing is read
twice. Exit status: 0, or 1 if anything could not be read or written.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from plates.cli import CommandError
from plates.cli.options import add_engine, add_weights, default_engine

if TYPE_CHECKING:
    from plates.bulk.manifest import Manifest
    from plates.bulk.running import Request


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", required=True, help="all machines must share it"
    )
    for name, purpose in (
        ("--workers", "processes (default: one per core, or per GPU; each computes in 1 thread)"),
        ("--gpus", "GPUs that the processes share evenly (default: none)"),
        ("--chunk", "photos in a chunk: what a death costs, at most (default: 256)"),
        ("--limit", "read the first N photos only"),
    ):
        parser.add_argument(name, type=_count, metavar="N", help=purpose)
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="of a Ray cluster (default: one is started here)"
    )
    parser.add_argument(
        "--extend", action="store_true", help="list SOURCE again and read what is new, too"
    )
    parser.add_argument(
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
    """Read the archive, or what is left of it.

    Returns:
        0, or 1 if a photo, folder or chunk failed.

    Raises:
        CommandError: The source, the output, the nets or Ray can't be used; status 2 where
            the arguments contradict an earlier run's.
    """
    from plates.bulk import running
    from plates.cli.signals import stop_signals_raise

    with _errors_told(), stop_signals_raise():
        done = running.run(_request(arguments), _say)
    _print(arguments.out, done)
    return 1 if done.failed or done.unlisted or done.state != "complete" else 0


def _request(arguments: argparse.Namespace) -> "Request":
    from plates.bulk.cluster import Resources
    from plates.bulk.running import CHUNK_PHOTOS, Request

    device, gpus = arguments.device, arguments.gpus or 0
    if gpus and device == "cpu":
        device = "cuda:0"  # Ray shows each process its own as the first one
    elif device != "cpu":
        gpus = gpus or 1
    arguments.device = device
    return Request(
        arguments.source,
        arguments.out,
        arguments.chunk or CHUNK_PHOTOS,
        arguments.limit,
        arguments.extend,
        arguments.retry_failed,
        Resources(arguments.workers, gpus, arguments.address),
        arguments.weights.resolve() if arguments.weights else None,
        arguments.engine or default_engine(arguments),
        device,
    )


@contextmanager
def _errors_told() -> Iterator[None]:
    """Import torch for its errors only once there are some."""
    from plates.bulk import BulkError, OutputError

    try:
        yield
    except OutputError as error:
        raise CommandError(str(error), status=2) from error
    except BulkError as error:
        raise CommandError(str(error)) from error
    except Exception as error:
        if type(error).__name__ not in ("EngineError", "ExportError", "WeightsError"):
            raise
        raise CommandError(str(error)) from error


def _print(out: Path, done: "Manifest") -> None:
    print(f"{done.done - done.failed:,} photos read, {done.plates:,} plates: {out / 'plates'}")
    if done.failed or done.unlisted:
        folders = f" and {done.unlisted:,} folders" if done.unlisted else ""
        print(f"{done.failed:,} photos{folders} could not be read: {out / 'failed.csv'}")
    if done.not_written:
        chunks = len(done.not_written)
        print(f"{chunks:,} chunks could not be written; run again once there is room")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
