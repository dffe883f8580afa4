"""Events on their way to targets, what is kept of them, and the cameras' states, in SQL."""

import json
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from plates.cameras import tables
from plates.cameras.events import Pass
from plates.cameras.settings import Storage
from plates.cameras.tables import deliveries, ended, events, pending, preceded, superseded

# So long an event is kept at least, for those who watch live.
_LIVE_S = 60
# Delays of 2, 4, … 512 and then 600 s are a day, also where the clock jumps.
_LONGEST_DELAY_S, _MAX_ATTEMPTS = 600, 152
_MOMENTS = ("first", "last", "best")
_WILDCARDS = str.maketrans({"!": "!!", "%": "!%", "_": "!_", "*": "%", "?": "_"})


class StoreUnavailable(Exception):
    """The database can't be reached or doesn't do its work; it may later."""


class Delivery(NamedTuple):
    """An event that a target has not received yet."""

    seq: int
    target: str
    attempts: int
    payload: str
    picture: bytes | None


class Store:
    """What workers, deliverer and gateway share; each method may raise `StoreUnavailable`.

    Args:
        url: sqlite:///path or postgresql://user:password@host/name.
        keep_texts: False deletes an event a minute after its last delivery.
        keep_pictures: False deletes a picture after its last delivery.
        days: After which everything is deleted.
    """

    def __init__(self, url: str, keep_texts: bool, keep_pictures: bool, days: float) -> None:
        self._keep_texts, self._keep_pictures, self._days = keep_texts, keep_pictures, days
        self._created = False
        is_sqlite = url.startswith("sqlite")
        self._insert: Any = sqlite.insert if is_sqlite else postgresql.insert
        self._lock = "BEGIN IMMEDIATE" if is_sqlite else "SELECT pg_advisory_xact_lock(7075)"
        # SQLite's transactions begin where the lock is taken, not before.
        options = {"timeout": 10} | ({"isolation_level": None} if is_sqlite else {})
        url = url.replace("postgresql://", "postgresql+pg8000://")
        self._engine = sa.create_engine(url, connect_args=options, pool_pre_ping=True)
        if is_sqlite:
            sa.event.listen(self._engine, "connect", tables.set_up_sqlite)

    @classmethod
    def of(cls, storage: Storage) -> "Store":
        """The store that settings describe."""
        url = storage.url.get_secret_value()
        return cls(url, storage.texts, storage.pictures, storage.days)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def add(self, event: Pass, picture: bytes | None, targets: Iterable[str]) -> bool:
        """Write an event and what targets are owed; False, and nothing, if it is there already."""
        row = event.model_dump(include={"revision", "type", "camera", "text"})
        row |= {"pass_id": event.id, "started": event.time.first, "created": time.time()}
        row |= {"payload": event.model_dump_json(), "picture": picture}
        new = self._insert(events).values(row).on_conflict_do_nothing().returning(events.c.seq)
        with self._transaction(write=True) as connection:
            seq = connection.scalar(new)
            for target in targets if seq is not None else ():
                owed = {"seq": seq, "target": target, "attempts": 0, "next_at": 0, "dead": False}
                connection.execute(sa.insert(deliveries).values(owed))
        return seq is not None

    def search(
        self,
        text: str = "",
        camera: str = "",
        since: float = 0,
        until: float = 1e12,
        before: int = 1 << 62,
        limit: int = 100,
    ) -> list[tuple[int, str]]:
        """Find passes as they last stood: numbers and JSON, the newest first.

        `text` is a part of the text; or all of it, with * for any characters and ? for one. Passes
        began between `since` and `until`, in Unix seconds. A page's last number is the next one's
        `before`.
        """
        pattern = text.upper() if set(text) & set("*?") else f"*{text.upper()}*"
        return self._find(
            ~superseded,
            events.c.text.like(pattern.translate(_WILDCARDS), escape="!"),
            (events.c.camera == camera) | sa.literal(not camera),
            events.c.started.between(since, until),
            events.c.seq < before,
            order=events.c.seq.desc(),
            limit=limit,
        )

    def events_after(self, seq: int, limit: int = 100) -> list[tuple[int, str]]:
        """The events that follow one, in the order in which they were added."""
        return self._find(events.c.seq > seq, limit=limit)

    def last_seq(self) -> int:
        """The number of the last event; 0 without any."""
        with self._transaction() as connection:
            return connection.scalar(sa.select(sa.func.max(events.c.seq))) or 0

    def picture(self, pass_id: str) -> bytes | None:
        """The last picture that is kept of a pass."""
        kept = sa.and_(events.c.pass_id == pass_id, events.c.picture.is_not(None))
        query = sa.select(events.c.picture).where(kept).order_by(events.c.seq.desc())
        with self._transaction() as connection:
            found: bytes | None = connection.scalar(query)
        return found

    def running(self, camera: str) -> list[Pass]:
        """A camera's passes that have not ended, as they last stood."""
        found = self._find(events.c.camera == camera, ~ended, ~superseded)
        passes = [json.loads(payload) for _, payload in found]
        for times in (data["time"] for data in passes):
            times |= {k: datetime.fromisoformat(times[k]).timestamp() for k in _MOMENTS}
        return [Pass.model_validate(data) for data in passes]

    def due(self, target: str, now: float, limit: int = 100) -> list[Delivery]:
        """What to try now, the oldest first."""
        owed = deliveries.c
        # A time further away than any delay is of a clock that has jumped back since.
        is_due = (owed.next_at <= now) | (owed.next_at > now + 2 * _LONGEST_DELAY_S)
        query = sa.select(owed.seq, owed.target, owed.attempts, events.c.payload, events.c.picture)
        query = query.join(events).where(owed.target == target, ~owed.dead, is_due)
        with self._transaction() as connection:
            rows = connection.execute(query.order_by(owed.seq).limit(limit))
            return [Delivery(*row) for row in rows]

    def delivered(self, delivery: Delivery) -> None:
        """Owe it no longer."""
        this = (deliveries.c.seq == delivery.seq) & (deliveries.c.target == delivery.target)
        with self._transaction(write=True) as connection:
            connection.execute(sa.delete(deliveries).where(this))

    def failed(self, delivery: Delivery, now: float) -> bool:
        """It is tried again later; False: that has been done for a day, it is given up."""
        this = (deliveries.c.seq == delivery.seq) & (deliveries.c.target == delivery.target)
        attempts = delivery.attempts + 1
        delay = min(2.0**attempts, _LONGEST_DELAY_S) * random.uniform(0.75, 1.25)  # noqa: S311
        values = {"attempts": attempts, "next_at": now + delay, "dead": attempts >= _MAX_ATTEMPTS}
        with self._transaction(write=True) as connection:
            connection.execute(sa.update(deliveries).where(this).values(values))
        return attempts < _MAX_ATTEMPTS

    def backlog(self) -> dict[str, tuple[int, int]]:
        """For each target, how many events it is still owed, and how many were given up."""
        dead = sa.func.sum(sa.cast(deliveries.c.dead, sa.Integer))
        query = sa.select(deliveries.c.target, sa.func.count(), dead).group_by(deliveries.c.target)
        with self._transaction() as connection:
            return {name: (rows - dead, dead) for name, rows, dead in connection.execute(query)}

    def purge(self, now: float, targets: Iterable[str]) -> None:
        """Delete what isn't kept, and what is owed to others than these targets."""
        done = ~pending & (events.c.created < now - _LIVE_S)
        # A running pass stays, so that it can be ended after a crash; an end goes last.
        unneeded = done & (superseded | (ended & ~preceded))
        old = events.c.created < now - self._days * 86_400
        others = deliveries.c.target.not_in(list(targets))
        with self._transaction(write=True) as connection:
            connection.execute(sa.delete(deliveries).where(others))
            connection.execute(sa.delete(events).where(old if self._keep_texts else old | unneeded))
            if not self._keep_pictures:
                shown = events.c.picture.is_not(None) & ~pending
                connection.execute(sa.update(events).where(shown).values(picture=None))

    def write_state(self, camera: str, state: dict[str, Any]) -> None:
        """Replace a camera's state."""
        row = {"name": camera, "state": json.dumps(state), "updated": time.time()}
        with self._transaction(write=True) as connection:
            connection.execute(sa.delete(tables.cameras).where(tables.cameras.c.name == camera))
            connection.execute(sa.insert(tables.cameras).values(row))

    def states(self) -> dict[str, tuple[dict[str, Any], float]]:
        """Each camera's state, and the Unix time when it was written."""
        with self._transaction() as connection:
            rows = connection.execute(sa.select(tables.cameras))
            return {name: (json.loads(state), updated) for name, state, updated in rows}

    def _find(
        self, *conditions: sa.ColumnElement[bool], order: Any = events.c.seq, limit: int = 1000
    ) -> list[tuple[int, str]]:
        query = sa.select(events.c.seq, events.c.payload).where(*conditions)
        with self._transaction() as connection:
            rows = connection.execute(query.order_by(order).limit(limit))
            return [(seq, payload) for seq, payload in rows]

    @contextmanager
    def _transaction(self, write: bool = False) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                # One writer at a time: no lower number may appear after a higher one.
                if write or not self._created:
                    connection.exec_driver_sql(self._lock)
                if not self._created:
                    tables.TABLES.create_all(connection)
                yield connection
            self._created = True
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            # Without the statement, whose parameters are texts of plates.
            raise StoreUnavailable(str(getattr(error, "orig", error))) from None
