"""The cameras' settings: `cameras.toml`, validated as a whole before anything starts."""

import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Secret

from plates.cameras import BESIDE_VARIABLE
from plates.cameras.events import Kind
from plates.cameras.frames import WHOLE, Crop

# Points (x, y) as shares of the picture's width and height.
Share = Annotated[float, Field(ge=0, le=1)]
Polygon = tuple[tuple[Share, Share], ...]


class CameraSettingsError(ValueError):
    """The file is invalid; the message has a line for each problem."""


def _relative_to_file(place: Path | str, info: pydantic.ValidationInfo) -> Path | str:
    folder = info.context["folder"] if info.context else Path()
    if isinstance(place, Path):
        return folder / place
    return re.sub("^sqlite:///(?!/)", f"sqlite:///{folder}/", place)


def _writable(place: Path | str, info: pydantic.ValidationInfo) -> Path | str:
    """Refuse a file or an SQLite database that has another use or can't be written to."""
    if isinstance(place, Path) or place.startswith("sqlite"):
        path = Path(str(place).removeprefix("sqlite:///"))
        used = info.context["used"] if info.context else set()
        exists = os.path.exists(path)  # False in a locked folder, where Path's methods raise
        if path.resolve() in used or (exists and not path.is_file()):
            raise ValueError("expected a file of its own")
        used.add(path.resolve())
        places = [path if exists else path.parent]
        if path != place:  # SQLite writes to the database's folder, too.
            places.append(path.parent)
        for needed in places:
            if not os.access(needed, os.W_OK) and not os.environ.get(BESIDE_VARIABLE):
                writable = "a place that can be written to (in containers: /var/lib/plates)"
                raise ValueError(f"expected {writable}, found {needed}")
    return place


def _readable(path: Path, info: pydantic.ValidationInfo[Any]) -> Path:
    there = os.path.isfile(path) and os.access(path, os.R_OK)
    if not there and not os.environ.get(BESIDE_VARIABLE):  # A running service goes on without it.
        raise ValueError("expected a file that can be read")
    info.context["used"].add(path.resolve())
    return path


def _with_environment(value: object) -> object:
    if not isinstance(value, str):
        return value  # Pydantic refuses it.
    try:
        return re.sub(r"\$\{(\w+)\}", lambda name: os.environ[name[1]], value)
    except KeyError as error:
        raise ValueError(f"expected an environment variable {error}, found none") from None


def _checked_crop(crop: Crop) -> Crop:
    left, top, right, bottom = crop
    if not (0 <= left <= right - 0.05 <= 0.95 and 0 <= top <= bottom - 0.05 <= 0.95):
        raise ValueError("expected left, top, right, bottom in shares of the picture")
    return crop


def _checked_zone(points: Polygon) -> Polygon:
    # Twice the area (shoelace formula); it is 0 for a rectangle whose corners come row by row.
    sides = pairwise((*points, points[0]))
    if abs(sum(x * v - u * y for (x, y), (u, v) in sides)) < 1e-6:
        raise ValueError("expected an area, with its corners in the order of its outline")
    return points


def _with_valid_server(url: str) -> str:
    # Drop scheme, user and password, which may contain slashes; "///" names a file, not a server.
    address = urlsplit(re.sub("^.*?://(?!/)([^@]*@)?", "//", url))
    _ = address.port, (address.hostname or "").encode("idna")  # ValueError if either is invalid
    return url


_EXPANDED = BeforeValidator(_with_environment)
_PLACED = AfterValidator(_relative_to_file)
_SERVED = AfterValidator(_with_valid_server)
RelativePath = Annotated[Path, _PLACED]
# Names are part of URLs and MQTT topics; Home Assistant allows no other characters in its ids.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_HOST = r"(\[[0-9A-Fa-f:.]+\]|[^/?#@:\s\[\]]+)(:\d{1,5})?"
# No bare "@" in a password: the rest of the password would be parsed as the host and shown.
_SERVER = rf"[^@?]+@({_HOST})?"  # without a host: PostgreSQL's socket on this machine
_DATABASE = Field(pattern=rf"^(sqlite:///[^?]+|postgresql://{_SERVER}/[^?@]+)$")
_BROKER = Field(pattern=rf"^mqtts?://([^/?#\s]*@)?{_HOST}/?$")
_ENDPOINT = Field(pattern=rf"^https?://([^/?#\s]*@)?{_HOST}([/?#]\S*)?$")
_OWN = AfterValidator(_writable)
DatabaseUrl = Secret[Annotated[str, _DATABASE, _PLACED, _OWN, _SERVED, _EXPANDED]]
_WHSEC = Field(pattern=r"^whsec_([A-Za-z0-9+/]{4}){8,}(..==|...=)?$")  # at least 24 bytes


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Storage(_Table):
    """The database in which events wait for delivery, and what is kept after that."""

    url: DatabaseUrl = Field("sqlite:///plates.db", validate_default=True)
    days: float = Field(30, ge=1)  # after which everything is deleted
    texts: bool = False  # keep events after their delivery
    pictures: bool = False  # keep pictures after their delivery


class _Target(_Table):
    name: Name
    events: tuple[Kind, ...] = ("pass.ended",)  # the types of events that are sent


class _HttpTarget(_Target):
    url: Secret[Annotated[str, _ENDPOINT, _SERVED, _EXPANDED]]
    private_addresses: bool = False  # whether the host may have an address in a private network


class WebhookTarget(_HttpTarget):
    """Receives events as JSON, signed according to Standard Webhooks."""

    kind: Literal["webhook"]
    secret: Secret[Annotated[str, _WHSEC, _EXPANDED]]


class PlateRecognizerTarget(_HttpTarget):
    """Receives the messages that Plate Recognizer Stream sends."""

    kind: Literal["plate_recognizer"]
    picture: bool = False  # send the plate's picture, too


class MqttTarget(_Target):
    """A broker on which Home Assistant discovers a sensor for each camera."""

    kind: Literal["mqtt"]
    url: Secret[Annotated[str, _BROKER, _SERVED, _EXPANDED]]
    expire_after_s: int | None = Field(None, gt=0)  # after which Home Assistant drops the plate


class FileTarget(_Target):
    """A file to which each event appends a line: JSON, or Plate Recognizer Stream's CSV."""

    kind: Literal["jsonl", "csv"]
    path: Annotated[RelativePath, _OWN]


Target = WebhookTarget | PlateRecognizerTarget | MqttTarget | FileTarget


class Camera(_Table):
    """One camera; without a source, its frames are pushed to the gateway."""

    name: Name
    source: Secret[Annotated[str, Field(min_length=1), _EXPANDED]] | None = None
    fps: float = Field(5, gt=0, le=60)  # frames read per second, at most
    crop: Annotated[Crop, AfterValidator(_checked_crop)] = WHOLE
    zones: dict[Name, Annotated[Polygon, Field(min_length=3), AfterValidator(_checked_zone)]] = {}
    lists: tuple[str, ...] = ()  # names; if the key is missing, `load` fills in all lists
    targets: tuple[str, ...] = ()  # names; if the key is missing, `load` fills in all targets
    hwaccel: str | None = None  # the device on which PyAV decodes, such as "cuda" or "vaapi"


class CamerasFile(_Table):
    """The whole of `cameras.toml`."""

    storage: Storage = Field({}, validate_default=True)
    lists: dict[Name, Annotated[RelativePath, AfterValidator(_readable)]] = {}
    targets: tuple[Annotated[Target, Field(discriminator="kind")], ...] = ()
    cameras: tuple[Camera, ...]


def load(path: Path) -> CamerasFile:
    """Read the settings; `${NAME}` in a URL or secret is replaced by the environment variable.

    Raises:
        CameraSettingsError: The file can't be read or is invalid: for each problem the message has
            the table, the key, the expected value and, unless it may be a password, the found one.
    """
    problems: list[str] = []
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        with suppress(AttributeError, KeyError, TypeError):  # Pydantic reports wrong types below.
            problems.extend(_wrong_names(document))
        folder = Path(os.environ.get(BESIDE_VARIABLE) or path.resolve().parent)
        file = CamerasFile.model_validate(document, context={"folder": folder, "used": set()})
    except pydantic.ValidationError as error:
        problems += [_line(document, problem) for problem in error.errors(include_url=False)]
    except (OSError, ValueError) as error:
        raise CameraSettingsError(f"{path} can't be read as TOML: {error}") from None
    if problems:
        raise CameraSettingsError("\n".join([f"{path} can't be used:", *problems]))
    return file


def _wrong_names(document: dict[str, Any]) -> Iterator[str]:
    known = {"lists": list(document.get("lists", ()))}
    for table in ("targets", "cameras"):
        names = known[table] = [row.get("name", "") for row in document.get(table, ())]
        for name in {name for name in names if names.count(name) > 1}:
            yield f"{table}.{name}: expected one of this name, found {names.count(name)}"
    for camera in document["cameras"]:
        for key in ("lists", "targets"):
            names = camera.setdefault(key, known[key])
            if unknown := [name for name in names if name not in known[key]]:
                yield f"cameras.{camera.get('name')}.{key}: expected {known[key]}, found {unknown}"


def _line(document: dict[str, Any], problem: Any) -> str:
    keys, found = list(problem["loc"]), repr(problem["input"])
    with suppress(AttributeError, IndexError, KeyError, TypeError):
        keys[1] = document[keys[0]][keys[1]]["name"]
    line = ".".join(map(str, keys)) + ": " + problem["msg"].removeprefix("Value error, ")
    # Passwords may be in these keys, in whole tables, and in the value of a misspelt key.
    hidden = keys[-1] in ("source", "url", "secret") or problem["type"] == "extra_forbidden"
    hidden = hidden or found[0] == "{" or "@" in found
    return line if hidden else f"{line}, found {found}"
