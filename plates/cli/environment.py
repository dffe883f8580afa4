"""What stands in an environment or in a file of variables: is it known, does it make sense?"""

import difflib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path

from dotenv.parser import Binding, parse_stream
from pydantic import ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from api.settings import Settings

PREFIX = "PLATES_"
# Of other commands and of the tests; none of the service's business.
OF_OTHERS = frozenset(
    {
        "PLATES_CLIENTS",
        "PLATES_DATA",
        "PLATES_REFERENCE_FONT",
        "PLATES_TRITON_HTTP_URL",
        "PLATES_URL",
    }
)
SETTINGS = frozenset(f"{PREFIX}{name}".upper() for name in Settings.model_fields)
# ${NAME}, ${NAME:-default}, ${NAME:?message} and $NAME, but not $$NAME.
_COMPOSE_VARIABLE = re.compile(r"(?<!\$)\$\{?([A-Z_][A-Z0-9_]*)")
# What kustomize reads line by line, and takes as it is.
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")

log = logging.getLogger("plates.settings")


class EnvironmentFileError(Exception):
    """A file of variables can't be read."""


class _Given(Settings):
    """Settings of given values alone, whatever this process's environment says."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        *_others: PydanticBaseSettingsSource,
        **_more: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)

    @field_validator("tokens_file")
    @classmethod
    def _check_tokens_file(cls, value: Path | None) -> Path | None:
        return value  # it lies where the service runs, not here


def explain_unknown(names: Iterable[str], known: Iterable[str] = ()) -> Iterator[str]:
    """Name the variables with our prefix that nobody reads.

    Args:
        names: Of an environment.
        known: Further ones that somebody reads.

    Yields:
        Each with the known name that is most like it, if one is.
    """
    settings = SETTINGS | set(known)
    for name in sorted(names):
        if name.startswith(PREFIX) and name.upper() not in settings | OF_OTHERS:
            like = difflib.get_close_matches(name.upper(), sorted(settings), n=1)
            yield f"{name}: there is no such setting" + (f" (is {like[0]} meant?)" if like else "")


def warn_of_unknown_settings(environment: Mapping[str, str] = os.environ) -> None:
    """Log the variables that look like settings and are none; whatever is set stays set."""
    for problem in explain_unknown(environment):
        log.warning("%s. It is ignored.", problem)


def explain_values(environment: Mapping[str, str]) -> Iterator[str]:
    """Name the settings whose values make no sense.

    Args:
        environment: Variables and their values; empty ones and those of others are left alone.

    Yields:
        Each with what was expected; never the value, which may be a secret.
    """
    given = {
        name.upper().removeprefix(PREFIX).lower(): value
        for name, value in environment.items()
        if name.upper() in SETTINGS and value
    }
    try:
        _Given(**given)  # type: ignore[arg-type]  # texts, as in the environment
    except ValidationError as error:
        yield from explain(error)


def explain(error: ValidationError) -> Iterator[str]:
    """Say which settings are wrong, by the names of their variables.

    Args:
        error: Of `Settings`.
    """
    for wrong in error.errors():
        # One setting's default can depend on another: only the wrong one is named.
        if wrong["type"] != "default_factory_not_called":
            reason = wrong["msg"].removeprefix("Value error, ")
            yield f"{PREFIX}{wrong['loc'][0]}".upper() + f": {reason}"


def check_file(path: Path) -> list[str]:
    """Check a file of variables: compose's ``.env``, or one that kustomize reads.

    Args:
        path: Beside a ``kustomization.yaml`` it is read as kustomize does, which keeps quotes
            and trailing comments as part of the value; elsewhere as compose does. Variables of
            the compose files beside it, and in ``docker/`` there, count as known.

    Returns:
        What is wrong, by line or by name; nothing if all is well.

    Raises:
        EnvironmentFileError: It can't be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise EnvironmentFileError(f"can't read {path}: {reason}") from error
    literal = any((path.parent / name).exists() for name in _KUSTOMIZATIONS)
    variables, problems = _literal(text) if literal else _as_compose(text)
    problems += explain_unknown(variables, _compose_variables(path.parent))
    problems += explain_values(variables)
    return problems


def _literal(text: str) -> tuple[dict[str, str], list[str]]:
    """The variables as kustomize reads them, and what it would stumble over."""
    variables, problems = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        name, found, value = line.lstrip().partition("=")
        if not name or name.startswith("#"):
            continue
        if not found or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.\-]*", name):
            problems.append(f"line {number}: expected NAME=value")
            continue
        variables[name] = value
    return variables, problems


def _as_compose(text: str) -> tuple[dict[str, str], list[str]]:
    """The variables as compose reads them, and what it would stumble over."""
    variables, problems = {}, []
    for binding in parse_stream(StringIO(text)):
        if binding.error or _has_no_value(binding):
            problems.append(f"line {binding.original.line}: expected NAME=value")
        elif binding.key and binding.value is not None:
            variables[binding.key] = binding.value
    # Compose fills in other variables, which nobody knows here.
    return {name: value for name, value in variables.items() if "${" not in value}, problems


def _has_no_value(binding: Binding) -> bool:
    return binding.key is not None and binding.value is None


def _compose_variables(folder: Path) -> set[str]:
    """What the compose files of a folder want to be told."""
    files = [*folder.glob("*compose*.y*ml"), *folder.glob("docker/*compose*.y*ml")]
    texts = (file.read_text(encoding="utf-8") for file in files)
    return {name for text in texts for name in _COMPOSE_VARIABLE.findall(text)}
