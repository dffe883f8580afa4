"""The tables of the cameras' database, for SQLite and PostgreSQL."""

from typing import Any

import sqlalchemy as sa


def _required(kind: type[sa.types.TypeEngine[Any]], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


TABLES = sa.MetaData()

events = sa.Table(
    "events",
    TABLES,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    *_required(sa.Text, "pass_id", "type", "camera", "text", "payload"),
    *_required(sa.Double, "started", "created"),
    *_required(sa.Integer, "revision"),
    sa.Column("picture", sa.LargeBinary),
    sa.UniqueConstraint("pass_id", "revision", "type"),
    sa.Index("events_started", "started"),
    # A deleted event's number isn't given again: clients go on after the last that they saw.
    sqlite_autoincrement=True,
)
ended = events.c.type == "pass.ended"
sa.Index("one_end", events.c.pass_id, unique=True, sqlite_where=ended, postgresql_where=ended)

# What targets are owed: a delivered event's row is deleted, a given up one's is dead.
deliveries = sa.Table(
    "deliveries",
    TABLES,
    sa.Column("seq", sa.ForeignKey(events.c.seq, ondelete="CASCADE"), primary_key=True),
    sa.Column("target", sa.Text, primary_key=True),
    *_required(sa.Integer, "attempts"),
    *_required(sa.Double, "next_at"),
    *_required(sa.Boolean, "dead"),
)

cameras = sa.Table(
    "cameras",
    TABLES,
    sa.Column("name", sa.Text, primary_key=True),
    *_required(sa.Text, "state"),
    *_required(sa.Double, "updated"),
)

_other = events.alias()
_same_pass = _other.c.pass_id == events.c.pass_id
# Conditions on events: another of the same pass came later, or before; a target waits for it.
superseded = sa.exists().where(_same_pass, _other.c.seq > events.c.seq)
preceded = sa.exists().where(_same_pass, _other.c.seq < events.c.seq)
pending = sa.exists().where(deliveries.c.seq == events.c.seq, ~deliveries.c.dead)


def set_up_sqlite(connection: Any, _: object) -> None:
    """Prepare a new connection."""
    # FULL: what is committed is there after a power cut, too.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
