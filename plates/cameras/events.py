"""A camera's events: the JSON of a pass, the same for files, webhooks, brokers and the gateway."""

import secrets
import time
import uuid
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer

from api.answers import Candidate, Character, Region
from plates.cameras.frames import Box, Clock, Quad

Kind = Literal["pass.updated", "pass.ended"]
Direction = Literal["approaching", "leaving", "left", "right", "unknown"]


def _seconds(moment: float | str) -> float:
    return datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else moment


def _utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


# Unix seconds in Python, "2026-01-31T12:00:00.000Z" in JSON.
Moment = Annotated[float, BeforeValidator(_seconds), PlainSerializer(_utc, str, when_used="json")]


class Evidence(BaseModel):
    """The frames that a pass was read from."""

    frames_seen: int
    frames_read: int
    best_single: Candidate = Field(description="The best candidate of the best single frame")


class Times(BaseModel):
    """The times of the first, last and best frame of the plate."""

    first: Moment
    last: Moment
    best: Moment
    source: Clock
    position_s: float = Field(description="Seconds from the stream's beginning to the first frame")


class Motion(BaseModel):
    """How the plate moved through the picture."""

    direction: Direction
    stationary: bool
    zones: list[str] = Field(description="The zones in which the plate was")


class BestView(BaseModel):
    """The plate's position in its best frame, in pixels."""

    box: Box
    quad: Quad


class Match(BaseModel):
    """A listed plate, and the probability that the pass is that plate."""

    list: str
    text: str
    probability: float


class Stream(BaseModel):
    """What happened to the stream during the pass."""

    frames_dropped: int = 0
    reconnects: int = 0


class Model(BaseModel):
    """The model that read the plate."""

    version: str
    weights: str


class Pass(BaseModel):
    """One vehicle from first to last detection; every revision has the same id."""

    id: str
    type: Kind
    revision: int
    camera: str
    text: str = Field(description='In Latin letters, without spaces; "" if not readable')
    text_native: str
    score: float
    readable: bool
    format: str
    region: Region | None
    characters: list[Character]
    candidates: list[Candidate]
    evidence: Evidence
    time: Times
    motion: Motion
    best: BestView
    match: Match | None
    stream: Stream
    model: Model


def new_id() -> str:
    """A UUID that sorts by time (version 7, RFC 9562)."""
    bits = (time.time_ns() // 10**6) << 80 | 0x7 << 76 | secrets.randbits(76)
    return str(uuid.UUID(int=bits & ~(0x3 << 62) | 0x2 << 62))
