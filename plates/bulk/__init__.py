"""An archive of photos: listed once, read in chunks by Ray Data, kept as Parquet, exactly once.

    source    what a folder, a pattern or a URL holds
    fetching  a photo's bytes, with patience for networks
    taken     when a photo was taken
    rows      the columns, and a photo's rows
    output    the folder that everything is written to; files that are whole or not there
    listing   the snapshot of the source, cut into chunks
    ledger    what of the chunks is done; what failed
    journal   which photo a process was at when it died
    chunks    reads one chunk and commits it
    cluster   Ray: starts it, or finds it, and sends the chunks through
    running   puts these together

The rename of a chunk's finished file is the only commit there is. Whatever dies before it
leaves a chunk undone, and whatever comes after it changes nothing, so a photo can be neither
lost nor counted twice.

    BulkError
    ├── SourceError   the source can't be listed
    ├── OutputError   the output folder is in use, of another run, or can't be written
    └── ClusterError  Ray can't be started, found or kept

Ray, Arrow and fsspec are imported where they are used: what serves photos has none of them.
"""

from importlib import import_module
from types import ModuleType

INSTALL = "pip install -r docker/requirements/bulk.txt"


class BulkError(Exception):
    """The archive can't be read; the message says what to do."""


class SourceError(BulkError):
    """The source can't be listed.

    Attributes:
        reason: A stable word in kebab case, as in ``failed.csv``.
    """

    def __init__(self, message: str, reason: str = "unreadable") -> None:
        super().__init__(message)
        self.reason = reason


class OutputError(BulkError):
    """The output folder is in use, belongs to another run, or can't be written."""


class ClusterError(BulkError):
    """Ray can't be started or found, or gave up."""


def require(*modules: str) -> list[ModuleType]:
    """Import what only the archive needs.

    Args:
        modules: Their names.

    Returns:
        The modules.

    Raises:
        BulkError: One is missing or doesn't fit what else is installed.
    """
    try:
        return [import_module(name) for name in modules]
    except ImportError as error:
        raise BulkError(f"the archive needs another package: {error}; {INSTALL}") from error
