"""The SQL database of events and of the deliveries that are still pending."""

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
# Its pools show a traceback for each connection that the server has cut, and open another.
logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)

# Seconds that a writer waits for other writers, and before a retry if the database is unavailable.
_BUSY_S, _RETRY_S = 10, 2
# Events per query, and per purge, during which all readers and writers wait.
_AT_ONCE, _PURGED_AT_ONCE = 100, 2000
# An event is kept for at least so many seconds, for live viewers.
_LIVE_S = 60
# Retries after 2, 4, … 512, then every 600 s: so many attempts take a day, even if the clock jumps.
_LONGEST_DELAY_S, _MAX_ATTEMPTS = 600, 152
# The characters in ids of passes and names of cameras; not every database takes others.
ASCII = r"^[ -~]*$"
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
    # Covers searches without reading the payloads, which are most of the table.
    sa.Index("events_searched", "seq", "pass_id", "camera", "text", "started", "type"),
    # Don't reuse the number of a deleted event: clients continue after the last number they saw.
    sqlite_autoincrement=True,
)
_ended = _events.c.type == "pass.ended"
sa.Index("one_end", _events.c.pass_id, unique=True, sqlite_where=_ended, postgresql_where=_ended)
_shown = _events.c.picture.is_not(None)
sa.Index("events_shown", _events.c.seq, sqlite_where=_shown, postgresql_where=_shown)

# Pending deliveries; a row is deleted when its event is delivered or given up. The next attempt is
# at a Unix time, or at once: 0 for a new event, 1 for one that waited and whose target is back.
_deliveries = sa.Table(
    "deliveries",
    _TABLES,
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("target", sa.Text, primary_key=True),
    *_required(sa.Integer, "attempts"),
    *_required(sa.Double, "next_at"),
    sa.Index("deliveries_due", "target", "next_at", "seq"),
)

_other = _events.alias()
_same_pass = _other.c.pass_id == _events.c.pass_id
# Conditions on events: the same pass has a later event, or an earlier one; a delivery is pending.
_superseded = sa.exists().where(_same_pass, _other.c.seq > _events.c.seq)
_preceded = sa.exists().where(_same_pass, _other.c.seq < _events.c.seq)
_of_event = _deliveries.c.seq == _events.c.seq
_pending = sa.exists().where(_of_event)


def _first(limit: int, condition: Any, order: Any = None) -> sa.ColumnElement[bool]:
    found = sa.select(_events.c.seq).where(condition).order_by(order).limit(limit)
    return _events.c.seq.in_(found.correlate(None))


class StoreUnavailable(Exception):
    """The database can't be reached or has failed; a retry may succeed."""


class PassesQuery(BaseModel):
    """The filters of a search for passes."""

    model_config = {"extra": "forbid"}

    text: str = Field(
        "",
        max_length=32,
        pattern=r"^[^\x00-\x1f]*$",
        description="Part of the text; or all of it: `*` any characters, `?` one",
    )
    camera: str = Field("", pattern=ASCII)
    since: AwareDatetime | None = Field(None, description="First seen at this time or later")
    until: AwareDatetime | None = Field(None, description="First seen before this time")
    limit: int = Field(50, ge=1, le=500)
    before: int | None = Field(None, ge=0, le=2**62, description="`next` of the previous page")


class Delivery(NamedTuple):
    """An event and a target that has not received it yet."""

    seq: int
    target: str
    attempts: int
    payload: str
    picture: bytes | None
    created: float  # Unix seconds


def _is(delivery: Delivery) -> sa.ColumnElement[bool]:
    return (_deliveries.c.seq == delivery.seq) & (_deliveries.c.target == delivery.target)


class Store:
    """The database shared by workers, deliveries and gateway; methods raise `StoreUnavailable`.

    Without `texts`, an event is deleted a minute after its last delivery; without `pictures`, its
    picture is deleted after the last delivery. After `days` everything is deleted.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage, self._created = storage, False
        self._problem = ""  # why the database is unavailable
        url = storage.url.get_secret_value().replace("postgresql://", "postgresql+pg8000://")
        is_sqlite = url.startswith("sqlite")
        self._insert: Any = sqlite.insert if is_sqlite else postgresql.insert
        # PostgreSQL ends a silent writer's session, else it may hold the lock for hours.
        limit = f"set_config('idle_in_transaction_session_timeout', '{_BUSY_S}s', true)"
        lock = f"SELECT {limit}, pg_advisory_xact_lock(7075)"
        self._lock = "BEGIN IMMEDIATE" if is_sqlite else lock
        # Without an isolation level, SQLite's transactions begin with the statement in `_lock`.
        # Asked for a password that it lacks (None), pg8000 raises AttributeError.
        login = {"password": sa.make_url(url).password or ""}
        args = {"timeout": _BUSY_S} | ({"isolation_level": None} if is_sqlite else login)
        # Open the file anew each time: it may have been replaced, for example by a backup.
        pool = sa.NullPool if is_sqlite else sa.QueuePool
        self._engine = sa.create_engine(url, connect_args=args, poolclass=pool, pool_pre_ping=True)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def add(
        self, event: Pass, picture: bytes | None, targets: Iterable[str], created: float = 0.0
    ) -> bool:
        """Write an event, by default created now, and its deliveries; False if it exists."""
        row = event.model_dump(include={"revision", "type", "camera", "text"})
        row |= {"pass_id": event.id, "started": event.time.first, "created": created or time.time()}
        # ASCII, for databases of any encoding.
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
        """Find passes, newest first: the number (`before` of a next page) and JSON of each."""
        if not (text := latin(query.text)).isascii():
            return []  # No text in a pass has other characters, and not every database takes them.
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
        """The next events after a number, in ascending order: their numbers and JSON."""
        return self._find(_events.c.seq > seq, limit=_AT_ONCE)

    def last_seq(self) -> int:
        """The number of the last event; 0 without events."""
        with self._transaction() as connection:
            return connection.scalar(sa.select(sa.func.max(_events.c.seq))) or 0

    def picture(self, pass_id: str) -> bytes | None:
        """The last stored picture of a pass."""
        query = sa.select(_events.c.picture).where(_events.c.pass_id == pass_id, _shown)
        with self._transaction() as connection:
            return connection.scalar(query.order_by(_events.c.seq.desc())) or None

    def running(self, camera: str | None = None) -> list[Pass]:
        """The last events of passes that have not ended, of one camera or of all."""
        of_camera = _events.c.camera == camera if camera else sa.true()
        found = self._find(of_camera, ~_ended, ~_superseded)
        return [Pass.model_validate_json(payload) for _, payload in found]

    def due(self, target: str, now: float, most: int = _AT_ONCE) -> list[Delivery]:
        """Up to `most` deliveries to try: new ones, then of targets that are back, then retries."""
        pending = _deliveries.c
        event = _events.c.payload, _events.c.picture, _events.c.created
        query = sa.select(pending.seq, pending.target, pending.attempts, *event)
        query = query.join(_events, _of_event).order_by(pending.next_at, pending.seq)
        query = query.where(pending.target == target, pending.next_at <= now).limit(most)
        with self._transaction() as connection:
            return [Delivery(*row) for row in connection.execute(query)]

    def delivered(self, delivery: Delivery) -> None:
        """Remove a delivery; if it was a retry, the target is back: retry its other events now."""
        with self._transaction(write=True) as connection:
            connection.execute(sa.delete(_deliveries).where(_is(delivery)))
            if delivery.attempts:
                # After many attempts an event is refused for itself, and keeps its delays: else it
                # would be given up in less than a day.
                pending = _deliveries.c
                waits = (pending.attempts < _MAX_ATTEMPTS // 2) & (pending.next_at > 1)
                waiting = sa.update(_deliveries).where(pending.target == delivery.target, waits)
                connection.execute(waiting.values(next_at=1))

    def failed(self, delivery: Delivery, now: float) -> bool:
        """Schedule a retry; after a day of retries, give the delivery up and return False."""
        attempts = delivery.attempts + 1
        values = {"attempts": attempts, "next_at": now + min(2.0**attempts, _LONGEST_DELAY_S)}
        retry = sa.update(_deliveries).values(values)
        change = retry if attempts < _MAX_ATTEMPTS else sa.delete(_deliveries)
        with self._transaction(write=True) as connection:
            connection.execute(change.where(_is(delivery)))
        return change is retry

    def purge(self, now: float, targets: Iterable[str], longer_s: float = 0.0) -> None:
        """Delete a batch of events that aren't kept, and deliveries without event or target."""
        done = ~_pending & (_events.c.created < now - _LIVE_S)
        # Keep the last event of an open pass, to end it after a crash; delete a pass's end last.
        unneeded = done & (_superseded | (_ended & ~_preceded))
        old = _events.c.created < now - self._storage.days * 86_400 - longer_s
        obsolete = _deliveries.c.target.not_in(list(targets)) | ~sa.exists().where(_of_event)
        # Retries that are later than any delay allows were scheduled before the clock was set back.
        jumped = _deliveries.c.next_at > now + 2 * _LONGEST_DELAY_S
        with self._transaction(write=True) as connection:
            connection.execute(sa.delete(_deliveries).where(obsolete))
            connection.execute(sa.update(_deliveries).where(jumped).values(next_at=1))
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
                # Writers take turns, so that no lower number becomes visible after a higher one.
                if write or not self._created:
                    connection.exec_driver_sql(self._lock)
                if not self._created:
                    _TABLES.create_all(connection)
                    for index in _events.indexes | _deliveries.indexes:  # Old tables may lack some.
                        index.create(connection, checkfirst=True)
                yield connection
            self._created, self._problem = True, ""
        # OSError: pg8000 doesn't wrap errors of its socket.
        except (sa.exc.DBAPIError, sa.exc.TimeoutError, OSError) as error:
            self._created = False  # It may be another database after a reconnection.
            # Leave out the statement: its parameters contain texts of plates.
            cause = getattr(error, "orig", error)
            # PostgreSQL's fields have the message under "M".
            said = str(next((each["M"] for each in cause.args if isinstance(each, dict)), cause))
            # Workers and deliveries try again every few seconds: the log needs a problem once.
            if said != self._problem:
                self._problem = said
                logger.warning("The database is unavailable: %s", said)
            raise StoreUnavailable(said) from None


class Outbox:
    """Runs a worker's writes in order, and retries them while the database is unavailable.

    Events are in memory until they are written: a killed worker loses them.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, write: Callable[[], object]) -> None:
        """Queue a write; never blocks."""
        self._queue.put(write)

    def close(self, timeout_s: float = 10) -> bool:
        """Finish; returns whether everything was written in time."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        write = self._queue.get()
        while write:
            try:
                write()
            except StoreUnavailable:
                time.sleep(_RETRY_S)
                continue
            except Exception as error:
                # Later writes must go on. The message may contain texts of plates.
                logger.error("A write to the database is lost: %s", type(error).__name__)
            write = self._queue.get()
