"""A run of the command: take the listing, send its chunks through Ray Data, count.

Only numbers of chunks travel: Ray's actors read the files and write the results themselves. Ray
Data restarts an actor that died, and gives its chunk to it again, as often as it takes;
`reading.Journal` sees to it that this ends.
"""

import contextlib
import itertools
import logging
import math
import os
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from plate_models.cores import usable_cores
from plate_models.release import WEIGHTS_DIR, check_manifest
from plate_models.spec import MODEL_VERSION
from plates.bulk import BulkError, OutputError, Request
from plates.bulk.listing import Listing, load_listing, take_listing
from plates.bulk.output import Account, Output, now
from plates.bulk.reading import ChunkReader
from plates.bulk.source import UNREACHABLE, Failure, Photo, describe, find_photos, is_url

# Another try may read these; a damaged photo stays damaged.
_RETRIED = (UNREACHABLE, "missing", "forbidden", "unreadable", "crashes-the-reader")
_REPORT_EVERY_S, _KEPT_NAMES = 15.0, 5
# Of each actor: one is worked on, the next one waits.
_CHUNKS_IN_FLIGHT = 2
# Ray Data keeps some kilobytes for each block until a run of it ends: so a run has an end.
_CHUNKS_PER_ROUND = 2000
# It carries numbers of chunks; Ray would take a third of the machine's memory.
_OBJECT_STORE_BYTES = 80 * 2**20


def run(request: Request, say: Callable[[str], None]) -> dict[str, Any]:
    """Read an archive, or what is left of it, and return the manifest; `say` prints a line.

    Raises BulkError if source, output or Ray can't be used, and what loading the nets raises.
    """
    if request.address:
        # Ray reads it when it is imported; by default a wrong address takes minutes.
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
    import ray.data  # noqa: F401 - where it is missing, that is said before anything is listed

    output = Output(request.out.absolute())
    source = request.source if is_url(request.source) else str(Path(request.source).absolute())
    request = replace(request, source=source, out=output.folder)
    try:
        f"{source}{output.folder}".encode()  # Ray, too, takes UTF-8 alone.
    except UnicodeEncodeError:
        hint = "a pattern such as b?d/*.jpg finds others"
        raise BulkError(f"SOURCE and DIR must be names in UTF-8; {hint}") from None
    found = find_photos(source)
    if not output.manifest.exists():  # a wrong source must not claim the folder
        say(f"listing {source}")
        first = next(found, None)
        if not isinstance(first, Photo):
            what = "photos in the folders that can be read" if first else "photos there"
            raise BulkError(f"no {what}: expected files such as photo.jpg")
        found = itertools.chain((first,), found)
    weights = prepare(request)
    with output.locked():
        one = _Run(request, weights, output, found, say)
        try:
            one.read()
        except BaseException as stopped:
            one.manifest["state"] = "stopped"
            if isinstance(stopped, Exception):
                one.manifest["problem"] = str(stopped)
            else:
                for journal in output.work.glob("chunk-*.journal"):  # no photo is to blame
                    journal.unlink()
                say("stopped; the same command goes on from here")
            raise
        finally:
            one.close()
    return one.manifest


def prepare(request: Request) -> str:
    """Check weights, engine and device, export what is served, and return the weights' hash."""
    from plate_models.engines.nets import bring_up_to_date, check_engine

    on_cluster = request.address and request.device != "cpu"  # its GPUs need not be here
    check_engine(*(("torch", "cpu") if on_cluster else (request.engine, request.device)))
    if request.engine == "served" and request.weights is None:
        bring_up_to_date()
    return check_manifest(request.weights or WEIGHTS_DIR)


class _Run:
    """A run into an output folder that is locked."""

    def __init__(
        self,
        request: Request,
        weights: str,
        output: Output,
        found: Iterator[Photo | Failure],
        say: Callable[[str], None],
    ) -> None:
        """Take up what is in the folder, or begin it; raises OutputError for other settings."""
        self._request, self._weights, self._output, self._say = request, weights, output, say
        settings = {name: getattr(request, name) for name in ("source", "chunk", "limit", "engine")}
        settings |= {"weights": weights, "model_version": MODEL_VERSION}
        before = output.read_manifest()
        if not before and any(output.plates.iterdir()):
            raise OutputError(
                f"{output.folder}: expected an empty folder or one of an earlier run, found "
                f"plates/ without {output.manifest.name}. Give another --out."
            )
        for name, value in settings.items():
            if before and (begun := before["settings"].get(name)) != value:
                raise OutputError(
                    f"{output.folder}: its run was begun with {name} {begun!r}, now it is "
                    f"{value!r}. Give the same again, or another --out."
                )
        self.manifest: dict[str, Any] = {
            "state": "running",
            "problem": None,
            "settings": settings,
            "counts": {},
            "not_written": [],  # the next run takes these chunks again
            "other_files": [],  # the first ones of files that are no photos
            "began": before.get("began", now()),
        }
        # Of the committed chunks that stay.
        self._accounts: dict[int, Account] = {}
        # Without a manifest it is of a run that was killed before it claimed the folder.
        self._listing = self._list(found, load_listing(output.listing) if before else None)

    def _list(self, found: Iterator[Photo | Failure], listing: Listing | None) -> Listing:
        """Take or extend the snapshot if that is wanted; a new one claims the folder."""
        request, output = self._request, self._output
        if listing is None or request.extend:
            if listing is not None and request.limit is not None:
                raise BulkError("--extend: a run that was begun with --limit can't be extended")
            try:
                some = itertools.islice(found, request.limit)
                listing = take_listing(output.listing, some, request.chunk, listing)
            except OSError as error:
                raise OutputError(f"{output.folder}: {describe(error)[1]}") from error
        size = f"{listing.photos:,} files in {listing.chunks:,} chunks"
        self._say(f"{size}, listed {listing.listed_at}")
        return listing

    def read(self) -> None:
        """Read the chunks that are not committed."""
        retried = _RETRIED if self._request.retry_failed else ()
        for chunk in self._output.committed():
            account = self._output.account(chunk)
            if not any(failure.reason in retried for failure in account.failures):
                self._accounts[chunk] = account
        todo = sorted(set(range(self._listing.chunks)).difference(self._accounts))
        counts = self._write()
        if not todo:
            return
        if self._accounts:
            self._say(f"{len(self._accounts):,} chunks are done, {len(todo):,} are left")
        chunks = read_chunks(self._request, self._weights, todo)
        # Without a terminal nothing is drawn (None); lines are printed now and then.
        bar = tqdm(total=counts["photos"], initial=counts["done"], unit="file", disable=None)
        reported = -math.inf
        with contextlib.closing(chunks) as outcomes, bar:
            for chunk, problem in outcomes:
                bar.update(self._take(chunk, problem))
                if time.monotonic() - reported < _REPORT_EVERY_S:
                    continue
                reported = time.monotonic()
                counts = self._write()
                bar.set_postfix(failed=counts["failed"])
                if bar.disable:
                    done = f"{counts['done']:,} of {counts['photos']:,} files are done"
                    self._say(f"{done}, {counts['failed']:,} could not be read")

    def _take(self, chunk: int, problem: str) -> int:
        """Take note of what became of a chunk; returns the number of its files that are done."""
        if problem:
            self.manifest["not_written"].append({"chunk": chunk, "problem": problem})
            self._say(f"chunk {chunk}: not written: {problem}")
            return 0
        account = self._accounts[chunk] = self._output.account(chunk)
        if account.deaths:
            self._say(f"chunk {chunk}: begun anew; processes that died: {account.deaths}")
        return account.photos

    def close(self) -> None:
        """Count all that is committed, and write manifest and ``failed.csv``."""
        for chunk in set(self._output.committed()).difference(self._accounts):
            self._accounts[chunk] = self._output.account(chunk)
        if self.manifest["state"] != "stopped":
            whole = len(self._accounts) == self._listing.chunks
            self.manifest["state"] = "complete" if whole else "incomplete"
        self._write()
        failures = list(self._listing.unlisted)
        for _, account in sorted(self._accounts.items()):
            failures += account.failures
        try:
            self._output.write_failed(failures)
        except OSError as error:
            self._say(f"{self._output.failed}: not written: {describe(error)[1]}")

    def _write(self) -> dict[str, int]:
        """Count, and write the manifest; returns the counts."""
        accounts = self._accounts.values()
        others = [name for one in accounts for name in one.others]
        counts = self.manifest["counts"] = {
            "photos": self._listing.photos,
            "done": sum(one.photos for one in accounts),
            "failed": sum(len(one.failures) for one in accounts),
            "others": len(others),
            "plates": sum(one.plates for one in accounts),
            "chunks": self._listing.chunks,
            "chunks_not_written": len(self.manifest["not_written"]),
            "folders_not_listed": len(self._listing.unlisted),
            "process_deaths": sum(one.deaths for one in accounts),
        }
        self.manifest["other_files"] = others[:_KEPT_NAMES]
        self.manifest["written"] = now()
        try:
            self._output.write_manifest(self.manifest)
        except OSError as error:  # on a full disk the run goes on without
            self._say(f"{self._output.manifest}: not written: {describe(error)[1]}")
        return counts


def read_chunks(
    request: Request, weights: str, chunks: Sequence[int]
) -> Generator[tuple[int, str], None, None]:
    """Read chunks on Ray, which is stopped when the generator ends or is closed.

    Yields a chunk's number and, if it could not be written, why.

    Raises BulkError if Ray can't be started, found or kept, or the actors can't load the nets.
    """
    with _ray(request) as ray:
        cores = int(ray.cluster_resources().get("CPU", 1))
        workers = request.workers or request.gpus or cores
        size = max(_CHUNKS_PER_ROUND, 100 * workers)
        try:
            for start in range(0, len(chunks), size):
                numbers = [{"chunk": chunk} for chunk in chunks[start : start + size]]
                blocks = ray.data.from_items(numbers, override_num_blocks=len(numbers))
                outcomes = blocks.map_batches(
                    ChunkReader,
                    fn_constructor_args=(request, weights),
                    batch_size=1,
                    compute=ray.data.ActorPoolStrategy(
                        size=min(workers, len(numbers)),
                        max_tasks_in_flight_per_actor=_CHUNKS_IN_FLIGHT,
                    ),
                    num_cpus=1,
                    num_gpus=request.gpus / workers if request.gpus else None,
                )
                for row in outcomes.iter_rows():
                    yield row["chunk"], row["problem"]
        except ray.exceptions.RayError as error:
            raise BulkError(f"Ray gave up: {_cause_of(error)}") from error


@contextlib.contextmanager
def _ray(request: Request) -> Iterator[Any]:
    """Start Ray on this machine, or connect to a cluster, and let go of it at the end."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # It warns of restarts that do work.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray.data

    on_sigterm = signal.getsignal(signal.SIGTERM)  # Ray's own would exit on the spot
    # Ray's sockets lie in it, and their paths may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="plates-ray-", ignore_cleanup_errors=True) as folder:
        settings: dict[str, Any] = {"address": request.address}
        if request.address is None:
            settings = {
                "address": "local",
                "num_cpus": request.workers or request.gpus or usable_cores(),
                "num_gpus": request.gpus,
                "include_dashboard": False,
                "object_store_memory": _OBJECT_STORE_BYTES,
                "_temp_dir": folder,
            }
        try:
            try:
                ray.init(logging_level=logging.ERROR, log_to_driver=False, **settings)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise BulkError(f"Ray can't be used: {_cause_of(error)}") from error
            except SystemExit:  # Ray's own answer to SIGTERM
                signal.signal(signal.SIGTERM, on_sigterm)
                signal.raise_signal(signal.SIGTERM)
                raise
            finally:
                signal.signal(signal.SIGTERM, on_sigterm)
            # The command reports progress itself, and chunks may take their time.
            logging.getLogger("ray.data").setLevel(logging.CRITICAL)
            context = ray.data.DataContext.get_current()
            context.enable_progress_bars = context.print_on_execution_start = False
            context.execution_no_progress_timeout_s = -1
            yield ray
        finally:
            ray.shutdown()


def _cause_of(error: BaseException) -> str:
    """The innermost reason, in one line."""
    while isinstance(inner := getattr(error, "cause", None) or error.__cause__, BaseException):
        error = inner
    return str(error).strip().rpartition("\n")[2] or type(error).__name__
