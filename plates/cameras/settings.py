"""Settings of the cameras: `cameras.toml`, checked as a whole before anything starts."""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Secret
from pydantic_core import ErrorDetails


class CameraSettingsError(ValueError):
    """The file can't be used; the message has a line for each problem."""


def _beside_file(path: Path, info: pydantic.ValidationInfo) -> Path:
    return info.context["folder"] / path if info.context else path


def _database(url: str, info: pydantic.ValidationInfo) -> str:
    kind, _, path = url.partition(":///")
    return f"sqlite:///{_beside_file(Path(path), info)}" if kind == "sqlite" else url


def _with_environment(value: object) -> object:
    """Replace `${NAME}` by what the environment has."""
    for name in re.findall(r"\$\{(\w+)\}", str(value)):
        if name not in os.environ:
            raise ValueError(f"expected an environment variable {name}, which isn't set")
        value = str(value).replace(f"${{{name}}}", os.environ[name])
    return value


_EXPANDED = BeforeValidator(_with_environment)
BesideFile = Annotated[Path, AfterValidator(_beside_file)]
# Part of addresses and topics; Home Assistant allows no other characters in its ids.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_HTTP = Field(pattern=r"^https?://[^/]")
_DATABASE = Field(pattern=r"^(sqlite:///|postgresql://.+/)[^/]")
DatabaseUrl = Secret[Annotated[str, _DATABASE, AfterValidator(_database), _EXPANDED]]
# At least 24 bytes in base64, as `openssl rand -base64 32` prints them.
_WHSEC = Field(pattern=r"^whsec_([A-Za-z0-9+/]{4}){8,}([A-Za-z0-9+/]{2}[A-Za-z0-9+/=]=)?$")
Share = Annotated[float, Field(ge=0, le=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Storage(_Table):
    """Where events wait for their delivery, and what is kept of them afterwards."""

    url: DatabaseUrl = Field("sqlite:///plates.db", validate_default=True)
    days: float = Field(30, ge=1)
    texts: bool = False
    pictures: bool = False


class _Target(_Table):
    name: Name
    events: tuple[Literal["pass.updated", "pass.ended"], ...] = ("pass.ended",)


class WebhookTarget(_Target):
    """Receives the JSON of events, signed (Standard Webhooks)."""

    kind: Literal["webhook"]
    url: Secret[Annotated[str, _HTTP, _EXPANDED]]
    private_addresses: bool = False
    secret: Secret[Annotated[str, _WHSEC, _EXPANDED]]


class PlateRecognizerTarget(_Target):
    """Receives what Plate Recognizer Stream sends."""

    kind: Literal["plate_recognizer"]
    url: Secret[Annotated[str, _HTTP, _EXPANDED]]
    private_addresses: bool = False
    picture: bool = False


class MqttTarget(_Target):
    """A broker; Home Assistant finds a sensor for each camera there."""

    kind: Literal["mqtt"]
    url: Secret[Annotated[str, Field(pattern=r"^mqtts?://[^/]"), _EXPANDED]]
    topic: Name = "plates"
    expire_after_s: int | None = Field(None, gt=0)  # when Home Assistant forgets the plate


class FileTarget(_Target):
    """A file that grows by a line an event: JSON, or Plate Recognizer Stream's CSV."""

    kind: Literal["jsonl", "csv"]
    path: BesideFile


Target = WebhookTarget | PlateRecognizerTarget | MqttTarget | FileTarget


class Zone(NamedTuple):
    """A part of the picture; the polygon's points are shares (x, y) of its width and height."""

    name: str
    polygon: tuple[tuple[float, float], ...]


class Camera(_Table):
    """One camera: where its frames come from, and where its events go."""

    name: Name
    # None: frames are pushed.
    source: Secret[Annotated[str, Field(min_length=1), _EXPANDED]] | None = None
    fps: float = Field(5, gt=0, le=60)
    zones: dict[Name, Annotated[tuple[tuple[Share, Share], ...], Field(min_length=3)]] = {}
    # Names. A camera of the file has all lists and targets unless it names some.
    lists: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    keyframes_only: bool | None = None  # None: once the machine can't keep up
    hwaccel: str | None = None  # a device that PyAV decodes on, such as "cuda" or "vaapi"


class CamerasFile(_Table):
    """All of `cameras.toml`."""

    storage: Storage = Field({}, validate_default=True)
    lists: dict[Name, Annotated[BesideFile, pydantic.types.PathType("file")]] = {}
    targets: tuple[Annotated[Target, Field(discriminator="kind")], ...] = ()
    cameras: tuple[Camera, ...]


def load(path: Path) -> CamerasFile:
    """Read the settings; `${NAME}` in an address or a secret stands for an environment variable.

    Raises:
        CameraSettingsError: It can't be read, or something in it is wrong: the message names each
            table, key, expected and found value, but no passwords.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CameraSettingsError(f"{path} can't be read as TOML: {error}") from None
    problems = list(_wrong_names(document))
    try:
        file = CamerasFile.model_validate(document, context={"folder": path.resolve().parent})
    except pydantic.ValidationError as error:
        problems += [_line(document, problem) for problem in error.errors(include_url=False)]
    if problems:
        raise CameraSettingsError("\n".join([f"{path} can't be used:", *problems]))
    return file


def _wrong_names(document: dict[str, Any]) -> Iterator[str]:
    """Names that occur twice or nowhere; cameras without lists or targets are given all."""
    rows = {table: document.get(table, []) for table in ("targets", "cameras")}
    if not all(isinstance(row, dict) for table in rows.values() for row in table):
        return  # What is no table is found later.
    known = {table: [row.get("name") for row in found] for table, found in rows.items()}
    for table, names in known.items():
        for name in {str(name) for name in names if names.count(name) > 1}:
            yield f"{table}.{name}: expected one of this name, found {names.count(name)}"
    known["lists"] = list(document.get("lists", ()))
    for camera in rows["cameras"]:
        for key in ("lists", "targets"):
            unknown = [
                name for name in camera.setdefault(key, known[key]) if name not in known[key]
            ]
            if unknown:
                yield f"cameras.{camera.get('name')}.{key}: expected {known[key]}, found {unknown}"


def _line(document: dict[str, Any], problem: ErrorDetails) -> str:
    keys, found = list(problem["loc"]), repr(problem["input"])
    if (
        len(keys) > 1
        and isinstance(keys[1], int)
        and isinstance(document[str(keys[0])][keys[1]], dict)
    ):
        keys[1] = document[str(keys[0])][keys[1]].get("name", keys[1])
    expected = problem["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    # Passwords may stand in addresses, in whole tables, and as the value of a misspelt key.
    hidden = (
        problem["type"] == "extra_forbidden"
        or keys[-1] in ("url", "source", "secret")
        or "://" in found
    )
    return f"{'.'.join(map(str, keys))}: {expected}" + f", found {found}" * (not hidden)
