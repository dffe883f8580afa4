"""A run of the command: take the listing, send its chunks through Ray Data, count.

Only numbers of chunks are sent: Ray's actors read the files and write the results themselves. Ray
Data restarts an actor that died and gives it the same chunk again, until `reading.Journal` ends it.
"""

import contextlib
import itertools
import logging
import math
import os
import secrets
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
from plates.bulk.reading import RETRIED, ChunkReader
from plates.bulk.source import Failure, Photo, describe, find_photos, is_url

_REPORT_EVERY_S, _KEPT_NAMES = 15.0, 5
# Per actor: it reads one chunk, and the next one waits.
_CHUNKS_IN_FLIGHT = 2
# Ray Data keeps some kilobytes for each block until its run ends, so each run has only so many.
_CHUNKS_PER_ROUND = 2000
# Enough for numbers of chunks; by default Ray takes 30 % of the machine's memory.
_OBJECT_STORE_BYTES = 80 * 2**20


def run(request: Request, say: Callable[[str], None]) -> dict[str, Any]:
    """Read an archive, or the rest of it, and return the manifest; `say` prints a line.

    Raises BulkError if source, output or Ray can't be used, and what loading the nets raises.
    """
    if request.address:
        # Ray reads it when it is imported; by default a wrong address fails only after minutes.
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
    import ray.data  # noqa: F401 - if it is missing, fail before the source is listed

    output = Output(request.out.absolute())
    source = request.source if is_url(request.source) else str(Path(request.source).absolute())
    request = replace(request, source=source, out=output.folder)
    try:
        f"{source}{output.folder}".encode()  # Ray accepts only UTF-8, too.
    except UnicodeEncodeError:
        hint = "a pattern such as b?d/*.jpg matches other names"
        raise BulkError(f"SOURCE and DIR must be valid UTF-8; {hint}") from None
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
        current = _Run(request, weights, output, found, say)
        try:
            current.read()
        except BaseException as stopped:
            current.manifest["state"] = "stopped"
            if isinstance(stopped, Exception):
                current.manifest["problem"] = str(stopped)
            else:
                for journal in output.work.glob("chunk-*.journal"):  # not a photo's fault
                    journal.unlink()
                say("stopped; the same command continues from here")
            raise
        finally:
            current.close()
    return current.manifest


def prepare(request: Request) -> str:
    """Check weights, engine and device, export the served engine, and return the weights' hash."""
    from plate_models.engines.nets import check_engine, ensure_exported

    on_cluster = request.address and request.device != "cpu"  # this machine may have no GPU
    check_engine(*(("torch", "cpu") if on_cluster else (request.engine, request.device)))
    if request.engine == "served" and request.weights is None:
        ensure_exported()
    return check_manifest(request.weights or WEIGHTS_DIR)


class _Run:
    """A run; its output folder is locked."""

    def __init__(
        self,
        request: Request,
        weights: str,
        output: Output,
        found: Iterator[Photo | Failure],
        say: Callable[[str], None],
    ) -> None:
        """Continue the run in the folder, or begin one; OutputError if it has other settings."""
        self._request, self._weights, self._output, self._say = request, weights, output, say
        settings = {name: getattr(request, name) for name in ("source", "chunk", "limit", "engine")}
        settings |= {"weights": weights, "model_version": MODEL_VERSION}
        settings["countries"] = ",".join(request.countries or ()) or None
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
            "not_written": [],  # the next run reads these chunks again
            "other_files": [],  # names of the first files that are no photos
            "began": before.get("began", now()),
        }
        # Of the committed chunks that are not read again.
        self._accounts: dict[int, Account] = {}
        # Without a manifest the listing is of a run that was killed before it claimed the folder.
        self._listing = self._list(found, load_listing(output.listing) if before else None)

    def _list(self, found: Iterator[Photo | Failure], listing: Listing | None) -> Listing:
        """Take a snapshot if there is none, or extend it with --extend."""
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
        retried = RETRIED if self._request.retry_failed else ()
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
        # Without a terminal (disable=None) there is no bar, but a line every `_REPORT_EVERY_S`.
        bar = tqdm(total=counts["photos"], initial=counts["done"], unit="file", disable=None)
        reported = -math.inf
        with contextlib.closing(read_chunks(self._request, self._weights, todo)) as outcomes, bar:
            for chunk, problem in outcomes:
                if problem:
                    self.manifest["not_written"].append({"chunk": chunk, "problem": problem})
                    self._say(f"chunk {chunk}: not written: {problem}")
                else:
                    account = self._accounts[chunk] = self._output.account(chunk)
                    bar.update(account.photos)
                    if deaths := account.deaths:
                        self._say(f"chunk {chunk}: read again; processes that died: {deaths}")
                if time.monotonic() - reported < _REPORT_EVERY_S:
                    continue
                reported = time.monotonic()
                counts = self._write()
                bar.set_postfix(failed=counts["failed"])
                if bar.disable:
                    done = f"{counts['done']:,} of {counts['photos']:,} files are done"
                    self._say(f"{done}, {counts['failed']:,} could not be read")

    def close(self) -> None:
        """Count all committed chunks, and write the manifest and ``failed.csv``."""
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
        others = [name for account in accounts for name in account.others]
        counts = self.manifest["counts"] = {
            "photos": self._listing.photos,
            "done": sum(account.photos for account in accounts),
            "failed": sum(len(account.failures) for account in accounts),
            "others": len(others),
            "plates": sum(account.plates for account in accounts),
            "chunks": self._listing.chunks,
            "chunks_not_written": len(self.manifest["not_written"]),
            "folders_not_listed": len(self._listing.unlisted),
            "process_deaths": sum(account.deaths for account in accounts),
        }
        self.manifest["other_files"] = others[:_KEPT_NAMES]
        self.manifest["written"] = now()
        try:
            self._output.write_manifest(self.manifest)
        except OSError as error:  # a full disk: the run continues
            self._say(f"{self._output.manifest}: not written: {describe(error)[1]}")
        return counts


def read_chunks(
    request: Request, weights: str, chunks: Sequence[int]
) -> Generator[tuple[int, str], None, None]:
    """Read chunks with Ray, which is stopped when the generator ends or is closed.

    Yields each chunk's number, and "" or why it could not be written. Raises BulkError if Ray can't
    be started, found or kept, or the actors can't load the nets.
    """
    with _ray(request) as ray:
        workers = request.workers or request.gpus or int(ray.cluster_resources().get("CPU", 1))
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
    """Start Ray on this machine, or connect to a cluster; disconnect at the end."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # It warns of successful restarts.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray.data

    on_sigterm = signal.getsignal(signal.SIGTERM)  # Ray's own exits at once
    # Ray's sockets are in it; their paths may have at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="plates-ray-", ignore_cleanup_errors=True) as folder:
        settings: dict[str, Any] = {"address": request.address}
        if request.address is None:
            # Else Ray writes one into the home folder, which a service's user may not have.
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))
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
            except SystemExit:  # raised by Ray on SIGTERM
                signal.signal(signal.SIGTERM, on_sigterm)
                signal.raise_signal(signal.SIGTERM)
                raise
            finally:
                signal.signal(signal.SIGTERM, on_sigterm)
            # The command reports progress itself, and a chunk may take long.
            logging.getLogger("ray.data").setLevel(logging.CRITICAL)
            context = ray.data.DataContext.get_current()
            context.enable_progress_bars = context.print_on_execution_start = False
            context.execution_no_progress_timeout_s = -1
            yield ray
        finally:
            ray.shutdown()


def _cause_of(error: BaseException) -> str:
    """The message of the innermost error, in one line."""
    while isinstance(inner := getattr(error, "cause", None) or error.__cause__, BaseException):
        error = inner
    return str(error).strip().rpartition("\n")[2] or type(error).__name__
