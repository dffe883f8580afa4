"""A worker's events on their way to the store."""

import logging
import queue
import threading
import time
from collections.abc import Iterable

from plates.cameras.events import Pass
from plates.cameras.store import Store, StoreUnavailable

logger = logging.getLogger(__name__)


class Outbox:
    """Writes a worker's events in order; while the database is away, again and again.

    Until an event is written it is in memory alone: a worker that is killed loses it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[tuple[Pass, bytes | None, tuple[str, ...]] | None]
        self._queue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="outbox", daemon=True)
        self._thread.start()

    def put(self, event: Pass, picture: bytes | None, targets: Iterable[str]) -> None:
        """Hand over an event; never waits."""
        self._queue.put((event, picture, tuple(targets)))

    def close(self, timeout_s: float = 10) -> bool:
        """Whether all events could be written in time."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _write(self) -> None:
        is_away = False
        while (item := self._queue.get()) is not None:
            while True:
                try:
                    self._store.add(*item)
                except StoreUnavailable as error:
                    if not is_away:
                        logger.warning("Events wait for the database: %s", error)
                    is_away = True
                    time.sleep(1)
                else:
                    is_away = False
                    break
