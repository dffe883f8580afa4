"""Events on their way to targets, and what is kept of them, in SQL."""

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic import AwareDatetime, BaseModel, Field
from sqlalchemy.dialects import postgresql, sqlite

from plates.cameras.events import Pass
from plates.cameras.lists import latin
from plates.cameras.settings import Storage

logger = logging.getLogger(__name__)

# So long a writer waits for others, and for a database that is away until it tries again.
_BUSY_S, _AGAIN_S = 10, 2
_AT_ONCE, _PURGED_AT_ONCE = 100, 2000  # events; whoever writes or reads waits for a purge
# So long an event is kept at least, for those who watch live.
_LIVE_S = 60
# Delays of 2, 4, … 512 and then 600 s are a day, also where the clock jumps.
_LONGEST_DELAY_S, _MAX_ATTEMPTS = 600, 152
_WILDCARDS = str.maketrans({"!": "!!", "%": "!%", "_": "!_", "*": "%", "?": "_"})


def _required(kind: type[sa.types.TypeEngine[Any]], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


_TABLES = sa.MetaData()

_events = sa.Table(
    "events",
    _TABLES,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    *_required(sa.Text, "pass_id", "type", "camera", "text", "payload"),
    *_required(sa.Double, "started", "created"),
    *_required(sa.Integer, "revision"),
    sa.Column("picture", sa.LargeBinary),
    sa.UniqueConstraint("pass_id", "revision", "type"),
    sa.Index("events_started", "started"),
    sa.Index("events_created", "created"),
    # What is searched, without the payloads: they are most of the table.
    sa.Index("events_searched", "seq", "pass_id", "camera", "text", "started", "type"),
    # A deleted event's number isn't given again: clients go on after the last that they saw.
    sqlite_autoincrement=True,
)
_ended = _events.c.type == "pass.ended"
sa.Index("one_end", _events.c.pass_id, unique=True, sqlite_where=_ended, postgresql_where=_ended)
_shown = _events.c.picture.is_not(None)
sa.Index("events_shown", _events.c.seq, sqlite_where=_shown, postgresql_where=_shown)

# What targets are owed: the row of an event that is delivered or given up is deleted.
_deliveries = sa.Table(
    "deliveries",
    _TABLES,
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("target", sa.Text, primary_key=True),
    *_required(sa.Integer, "attempts"),
    *_required(sa.Double, "next_at"),
)

_other = _events.alias()
_same_pass = _other.c.pass_id == _events.c.pass_id
# Conditions on events: another of the same pass came later, or before; a target waits for it.
_superseded = sa.exists().where(_same_pass, _other.c.seq > _events.c.seq)
_preceded = sa.exists().where(_same_pass, _other.c.seq < _events.c.seq)
_of_event = _deliveries.c.seq == _events.c.seq
_pending = sa.exists().where(_of_event)


def _first(limit: int, condition: Any, order: Any = None) -> sa.ColumnElement[bool]:
    found = sa.select(_events.c.seq).where(condition).order_by(order).limit(limit)
    return _events.c.seq.in_(found.correlate(None))


class StoreUnavailable(Exception):
    """The database can't be reached or doesn't do its work; it may later."""


class PassesQuery(BaseModel):
    """Which passes are wanted."""

    model_config = {"extra": "forbid"}

    text: str = Field(
        "", max_length=32, description="Part of a text; or a whole one, `*` any characters, `?` one"
    )
    camera: str = ""
    since: AwareDatetime | None = Field(None, description="First seen then or later")
    until: AwareDatetime | None = Field(None, description="First seen before")
    limit: int = Field(50, ge=1, le=500)
    before: int | None = Field(None, ge=0, le=2**62, description="`next` of the page before")


class Delivery(NamedTuple):
    """An event that a target has not received yet."""

    seq: int
    target: str
    attempts: int
    payload: str
    picture: bytes | None
    created: float  # Unix seconds


def _is(delivery: Delivery) -> sa.ColumnElement[bool]:
    return (_deliveries.c.seq == delivery.seq) & (_deliveries.c.target == delivery.target)


class Store:
    """What workers, deliveries and gateway share; each method may raise `StoreUnavailable`.

    Without `texts` an event is deleted a minute after its last delivery, without `pictures` a
    picture after its last delivery, and everything after some days.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage, self._created = storage, False
        url = storage.url.get_secret_value()
        is_sqlite = url.startswith("sqlite")
        self._insert: Any = sqlite.insert if is_sqlite else postgresql.insert
        self._lock = "BEGIN IMMEDIATE" if is_sqlite else "SELECT pg_advisory_xact_lock(7075)"
        # SQLite's transactions begin where the lock is taken, not before.
        how = {"timeout": _BUSY_S} | ({"isolation_level": None} if is_sqlite else {})
        url = url.replace("postgresql://", "postgresql+pg8000://")
        # A file is opened each time: it may have been replaced, as by a backup.
        pool = sa.NullPool if is_sqlite else sa.QueuePool
        self._engine = sa.create_engine(url, connect_args=how, poolclass=pool, pool_pre_ping=True)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def add(
        self,
        event: Pass,
        picture: bytes | None,
        targets: Iterable[str],
        created: float | None = None,
    ) -> bool:
        """Write an event (of now) and what targets are owed; False, and nothing, if it is there."""
        row = event.model_dump(include={"revision", "type", "camera", "text"})
        row |= {"pass_id": event.id, "started": event.time.first, "created": created or time.time()}
        # In ASCII, which databases of any encoding take.
        payload = json.dumps(event.model_dump(mode="json"), separators=(",", ":"))
        row |= {"payload": payload, "picture": picture}
        new = self._insert(_events).values(row).on_conflict_do_nothing().returning(_events.c.seq)
        with self._transaction(write=True) as connection:
            seq = connection.scalar(new)
            for target in targets if seq is not None else ():
                owed = {"seq": seq, "target": target, "attempts": 0, "next_at": 0}
                connection.execute(sa.insert(_deliveries).values(owed))
        return seq is not None

    def search(self, query: PassesQuery) -> list[tuple[int, str]]:
        """Find passes as they last stood: numbers and JSON, the newest first.

        A page's last number is the next one's `before`.
        """
        text = latin(query.text)
        pattern = (text if set(text) & set("*?") else f"*{text}*").translate(_WILDCARDS)
        wanted = [~_superseded, _events.c.text.like(pattern, escape="!")]
        if query.camera:
            wanted.append(_events.c.camera == query.camera)
        if query.since:
            wanted.append(_events.c.started >= query.since.timestamp())
        if query.until:
            wanted.append(_events.c.started < query.until.timestamp())
        if query.before is not None:
            wanted.append(_events.c.seq < query.before)
        return self._find(*wanted, order=_events.c.seq.desc(), limit=query.limit)

    def events_after(self, seq: int) -> list[tuple[int, str]]:
        """The first that follow one, in the order in which they were added."""
        return self._find(_events.c.seq > seq, limit=_AT_ONCE)

    def last_seq(self) -> int:
        """The number of the last event; 0 without any."""
        with self._transaction() as connection:
            return connection.scalar(sa.select(sa.func.max(_events.c.seq))) or 0

    def picture(self, pass_id: str) -> bytes | None:
        """The last picture that is kept of a pass."""
        query = sa.select(_events.c.picture).where(_events.c.pass_id == pass_id, _shown)
        with self._transaction() as connection:
            return connection.scalar(query.order_by(_events.c.seq.desc())) or None

    def running(self, camera: str | None = None) -> list[Pass]:
        """A camera's passes, or all, that have not ended, as they last stood."""
        its = _events.c.camera == camera if camera else sa.true()
        found = self._find(its, ~_ended, ~_superseded)
        return [Pass.model_validate_json(payload) for _, payload in found]

    def due(self, target: str, now: float) -> list[Delivery]:
        """What to try now, the oldest first."""
        owed = _deliveries.c
        # A time further away than any delay is of a clock that has jumped back since.
        is_due = (owed.next_at <= now) | (owed.next_at > now + 2 * _LONGEST_DELAY_S)
        event = _events.c.payload, _events.c.picture, _events.c.created
        query = sa.select(owed.seq, owed.target, owed.attempts, *event)
        query = query.join(_events, _of_event).where(owed.target == target, is_due)
        with self._transaction() as connection:
            rows = connection.execute(query.order_by(owed.seq).limit(_AT_ONCE))
            return [Delivery(*row) for row in rows]

    def delivered(self, delivery: Delivery) -> None:
        """Owe it no longer; had it failed before, the target is back, and what waits goes now."""
        with self._transaction(write=True) as connection:
            connection.execute(sa.delete(_deliveries).where(_is(delivery)))
            if delivery.attempts:
                # What is refused alone keeps its delays, lest it be given up too early.
                owed = _deliveries.c
                waits = (owed.attempts < _MAX_ATTEMPTS // 2) & (owed.next_at > 0)
                waiting = sa.update(_deliveries).where(owed.target == delivery.target, waits)
                connection.execute(waiting.values(next_at=0))

    def failed(self, delivery: Delivery, now: float) -> bool:
        """It is tried again later; False: that has been done for a day, it is given up."""
        attempts = delivery.attempts + 1
        values = {"attempts": attempts, "next_at": now + min(2.0**attempts, _LONGEST_DELAY_S)}
        again = sa.update(_deliveries).values(values)
        change = again if attempts < _MAX_ATTEMPTS else sa.delete(_deliveries)
        with self._transaction(write=True) as connection:
            connection.execute(change.where(_is(delivery)))
        return change is again

    def purge(self, now: float, targets: Iterable[str]) -> None:
        """Delete some of what isn't kept, and what is owed of that or to other targets."""
        done = ~_pending & (_events.c.created < now - _LIVE_S)
        # A running pass stays, so that it can be ended after a crash; an end goes last.
        unneeded = done & (_superseded | (_ended & ~_preceded))
        old = _events.c.created < now - self._storage.days * 86_400
        unowed = _deliveries.c.target.not_in(list(targets)) | ~sa.exists().where(_of_event)
        with self._transaction(write=True) as connection:
            connection.execute(sa.delete(_deliveries).where(unowed))
            unkept = _first(_PURGED_AT_ONCE, old if self._storage.texts else old | unneeded)
            connection.execute(sa.delete(_events).where(unkept))
            if not self._storage.pictures:
                unshown = _first(_PURGED_AT_ONCE, _shown & ~_pending)
                connection.execute(sa.update(_events).where(unshown).values(picture=None))

    def _find(
        self, *conditions: sa.ColumnElement[bool], order: Any = _events.c.seq, limit: int = 1000
    ) -> list[tuple[int, str]]:
        query = sa.select(_events.c.seq, _events.c.payload).order_by(order)
        query = query.where(_first(limit, sa.and_(*conditions), order))
        with self._transaction() as connection:
            return [(seq, payload) for seq, payload in connection.execute(query)]

    @contextmanager
    def _transaction(self, write: bool = False) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                # One writer at a time: no lower number may appear after a higher one.
                if write or not self._created:
                    connection.exec_driver_sql(self._lock)
                if not self._created:
                    _TABLES.create_all(connection)
                    for index in _events.indexes:  # of a table that an earlier version made
                        index.create(connection, checkfirst=True)
                yield connection
            self._created = True
        # pg8000 lets its socket's errors through.
        except (sa.exc.DBAPIError, sa.exc.TimeoutError, OSError) as error:
            self._created = False  # It may be another database now.
            # Without the statement, whose parameters are texts of plates.
            raise StoreUnavailable(str(getattr(error, "orig", error))) from None


class Outbox:
    """Does a worker's writes in order; while the database is away, again and again.

    Until an event is written it is in memory alone: a worker that is killed loses it.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, write: Callable[[], object]) -> None:
        """Hand over a write; never waits."""
        self._queue.put(write)

    def close(self, timeout_s: float = 10) -> bool:
        """Whether everything could be written in time."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        write = self._queue.get()
        while write:
            try:
                write()
            except StoreUnavailable as error:
                logger.warning("Events wait for the database: %s", error)
                time.sleep(_AGAIN_S)
                continue
            except Exception as error:
                # It must not hold what comes after; its message may have texts of plates.
                logger.error("What was to be written is lost: %s", type(error).__name__)
            write = self._queue.get()
