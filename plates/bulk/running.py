"""A run: take the listing, read what is not done yet, keep account."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

from plates.bulk import BulkError, OutputError, SourceError, ledger, manifest, require
from plates.bulk.chunks import Job
from plates.bulk.cluster import Cluster, Resources, started
from plates.bulk.fetching import UNREACHABLE, describe
from plates.bulk.listing import Listing, load_listing, take_listing
from plates.bulk.manifest import Manifest, Settings
from plates.bulk.output import Output
from plates.bulk.progress import Progress
from plates.bulk.source import Photo, Unlisted, absolute, find_photos

CHUNK_PHOTOS = 256
_MANIFEST_EVERY_S = 30.0
# Another try may find these; a damaged photo stays damaged.
RETRIED = (UNREACHABLE, "missing", "forbidden", "unreadable", "crashes-the-reader")


@dataclass(frozen=True)
class Request:
    """What is to be read.

    Attributes:
        source: A folder, photo, pattern or URL.
        out: Folder for the result.
        chunk: Photos in a chunk: what is lost when a process dies, and rows of a file.
        limit: At most so many photos.
        extend: List the source again, and add what is new.
        retry_failed: Read chunks again in which photos failed that may be there by now.
        resources: What to spread it over.
        weights: Folder of the weights; None stands for the released ones.
        engine, device: As for `engines.load_nets`.
    """

    source: str
    out: Path
    chunk: int = CHUNK_PHOTOS
    limit: int | None = None
    extend: bool = False
    retry_failed: bool = False
    resources: Resources = field(default_factory=Resources)
    weights: Path | None = None
    engine: str = "served"
    device: str = "cpu"


def run(request: Request, say: Callable[[str], None]) -> Manifest:
    """Read an archive, or what is left of it.

    Args:
        request: What is to be read.
        say: Prints a line for people.

    Returns:
        The manifest, as it was written.

    Raises:
        BulkError: The source or the output can't be used, or Ray; see its kinds.
        EngineError, WeightsError, ExportError: The nets can't be loaded.
    """
    require("pandas", "pyarrow.parquet", "fsspec", "ray.data")
    output = Output(request.out.absolute())
    source = absolute(request.source)
    with output.locked():
        weights = prepare(request)
        settings = Settings(source, request.chunk, request.limit, request.engine, weights)
        account = manifest.begin(output, settings)
        removed = output.remove_leftovers()
        if removed:
            say(f"removed {removed} half-written files of a run that was killed")
        listing = _listing(request, output, account, say)
        job = Job(source, output.folder, weights, request.weights, request.engine, request.device)
        try:
            _read(request, output, listing, job, account, say)
        except BaseException as stopped:
            account.state = manifest.STOPPED
            _close(output, listing, account, say)
            if isinstance(stopped, Exception):
                raise
            say("stopped; the same command goes on from here")
            raise
        _close(output, listing, account, say)
    return account


def prepare(request: Request) -> str:
    """Check weights, engine and device, and export what is served, before anything starts.

    In a process of its own, so that this one never holds torch.

    Returns:
        Hash of the weights.

    Raises:
        EngineError, WeightsError, ExportError: See `engines.load_nets`.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        # A cluster's GPUs need not be here.
        device = "cpu" if request.resources.address else request.device
        engine = "torch" if device != request.device else request.engine
        return pool.submit(_prepare, request.weights, engine, device).result()


def _prepare(folder: Path | None, engine: str, device: str) -> str:
    from plate_models.engines.nets import check_engine
    from plate_models.export import export
    from plate_models.weights import WEIGHTS_DIR, check_manifest

    check_engine(engine, device)
    if engine == "served" and folder is None:
        export()
    return check_manifest(folder or WEIGHTS_DIR)


def _listing(
    request: Request, output: Output, account: Manifest, say: Callable[[str], None]
) -> Listing:
    """Find the snapshot, or take it."""
    listing = load_listing(output.listing)
    if listing is None or request.extend:
        say(f"listing {account.settings.source}")
        try:
            if listing is None:
                account.write(output)
            found = _limited(find_photos(account.settings.source), request, listing)
            listing = take_listing(output.listing, found, request.chunk, listing)
        except SourceError as error:
            if listing is None:  # an older snapshot stays in force
                account.state, account.problem = manifest.UNLISTED, str(error)
                account.write(output)
                nothing = Unlisted(account.settings.source, error.reason, str(error))
                ledger.write_failed(output, [nothing], [])
            raise
        except OSError as error:
            raise OutputError(f"{output.folder}: {describe(error)[1]}") from error
    account.photos, account.chunks = listing.photos, listing.chunks
    account.unlisted = len(listing.unlisted)
    say(f"{listing.photos:,} photos in {listing.chunks:,} chunks, listed {listing.listed_at}")
    return listing


def _limited(
    found: Iterator[Photo | Unlisted], request: Request, before: Listing | None
) -> Iterator[Photo | Unlisted]:
    if request.limit is None:
        return found
    if before is not None:
        raise BulkError("--extend: the run was begun with --limit; leave one of them out")
    return itertools.islice(found, request.limit)


def _read(
    request: Request,
    output: Output,
    listing: Listing,
    job: Job,
    account: Manifest,
    say: Callable[[str], None],
) -> None:
    """Read what is not committed, and count."""
    done = ledger.committed(output)
    for one in ledger.accounts(output, sorted(done)):
        if request.retry_failed and any(f.reason in RETRIED for f in one.failures):
            done.discard(one.chunk)
        else:
            account.done += one.photos
            account.failed += len(one.failures)
    todo = [chunk for chunk in range(listing.chunks) if chunk not in done]
    if done and todo:
        say(f"{len(done):,} chunks are done, {len(todo):,} are left")
    if not todo:
        return
    _keep(account, output, say)
    with (
        started(request.resources, output.folder) as cluster,
        Progress(listing.photos, account.done, account.failed) as progress,
    ):
        _follow(cluster, job, todo, output, account, progress)


def _follow(
    cluster: Cluster,
    job: Job,
    todo: Iterable[int],
    output: Output,
    account: Manifest,
    progress: Progress,
) -> None:
    written = time.monotonic()
    for outcome in cluster.read(job, list(todo)):
        account.deaths += outcome.deaths
        if outcome.deaths:
            times = f"{outcome.deaths} time{'s' * (outcome.deaths != 1)}"
            progress.say(f"chunk {outcome.chunk}: its process died {times}; it was begun anew")
        if outcome.problem is not None:
            account.not_written.append(outcome)
            progress.say(f"chunk {outcome.chunk}: not written: {outcome.problem}")
            continue
        account.done += outcome.photos
        account.failed += outcome.failed
        progress.add(outcome.photos, outcome.failed)
        if time.monotonic() - written > _MANIFEST_EVERY_S:
            written = time.monotonic()
            _keep(account, output, progress.say)


def _keep(account: Manifest, output: Output, say: Callable[[str], None]) -> None:
    """Write the manifest; on a full disk the run goes on without."""
    try:
        account.write(output)
    except OSError as error:
        say(f"{output.manifest}: not written: {describe(error)[1]}")


def _close(output: Output, listing: Listing, account: Manifest, say: Callable[[str], None]) -> None:
    """Count anew from what is committed, and write manifest and ``failed.csv``."""
    chunks = sorted(ledger.committed(output))
    counted = replace(account, done=0, failed=0, plates=0)
    for one in ledger.accounts(output, chunks):
        counted.done += one.photos
        counted.failed += len(one.failures)
        counted.plates += one.plates
    account.done, account.failed, account.plates = counted.done, counted.failed, counted.plates
    if account.state != manifest.STOPPED:
        whole = len(chunks) == listing.chunks
        account.state = manifest.COMPLETE if whole else manifest.INCOMPLETE
    try:
        ledger.write_failed(output, listing.unlisted, ledger.accounts(output, chunks))
        account.write(output)
    except OSError as error:
        say(f"{output.manifest}, {output.failed.name}: not written: {describe(error)[1]}")
