"""Are the settings in an environment, or in a file of variables, known, and do they make sense?"""

import difflib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path

from dotenv.parser import parse_stream
from pydantic import ValidationError

from api.settings import UNREADABLE_FILE, Settings
from plates.cli import CommandError

PREFIX = "PLATES_"
# Read by other commands and by the tests, not by the service.
OF_OTHERS = frozenset(
    PREFIX + name for name in ("CLIENTS", "DATA", "REFERENCE_FONT", "TRITON_HTTP_URL", "URL")
)
SETTINGS = frozenset(f"{PREFIX}{name}".upper() for name in Settings.model_fields)
# ${NAME}, ${NAME:-default}, ${NAME:?message} and $NAME, but not $$NAME.
_COMPOSE_VARIABLE = re.compile(r"(?<!\$)\$\{?([A-Z_][A-Z0-9_]*)")
_KUSTOMIZE_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_.\-]*)=(.*)")

log = logging.getLogger("plates.settings")


def warn_of_unknown_settings(environment: Mapping[str, str] = os.environ) -> None:
    """Log the variables that have our prefix and are no settings."""
    for problem in explain_unknown(environment):
        log.warning("%s. It is ignored.", problem)


def explain_unknown(names: Iterable[str], known: Iterable[str] = ()) -> Iterator[str]:
    """Name the variables with our prefix that are no settings, with the most similar setting."""
    settings = SETTINGS | set(known)
    for name in sorted(names):
        if name.startswith(PREFIX) and name.upper() not in settings | OF_OTHERS:
            like = difflib.get_close_matches(name.upper(), sorted(settings), n=1)
            yield f"{name}: there is no such setting" + (f" (is {like[0]} meant?)" if like else "")


def explain(error: ValidationError, elsewhere: bool = False) -> Iterator[str]:
    """Say which settings are wrong, by the names of their variables; never their values.

    Args:
        error: Of `Settings`.
        elsewhere: They are for another machine or a container, which may have the files that
            can't be read here.
    """
    # The default of one setting can depend on another: only the wrong one is named.
    skipped = {"default_factory_not_called", UNREADABLE_FILE if elsewhere else ""}
    for wrong in error.errors():
        if wrong["type"] not in skipped:
            reason = wrong["msg"].removeprefix("Value error, ")
            yield f"{PREFIX}{wrong['loc'][0]}".upper() + f": {reason}"


def check(
    environment: Mapping[str, str], known: Iterable[str] = (), elsewhere: bool = False
) -> list[str]:
    """Name what is wrong in an environment; see `explain_unknown` and `explain`."""
    problems = list(explain_unknown(environment, known))
    given = {
        name.upper().removeprefix(PREFIX).lower(): value
        for name, value in environment.items()
        if name.upper() in SETTINGS and value
    }
    try:
        # There are no variables with this prefix: only what is given counts.
        Settings(_env_prefix="\0", **given)  # type: ignore[arg-type, call-arg]
    except ValidationError as error:
        problems += explain(error, elsewhere)
    return problems


def check_file(path: Path) -> list[str]:
    """Name what is wrong in a file of variables, by line or by name.

    Beside a ``kustomization.yaml`` it is read as kustomize does, which keeps quotes and trailing
    comments as part of the value, elsewhere as compose does. Variables of the compose files
    beside it, and in ``docker/`` there, count as known.

    Raises:
        CommandError: It can't be read, or is not text.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        hint = "; copy .env.example to begin one" if isinstance(error, FileNotFoundError) else ""
        raise CommandError(f"can't read {path}: {reason}{hint}") from error
    literal = any(path.parent.glob("[kK]ustomization*"))
    variables, wrong_lines = (_as_kustomize if literal else _as_compose)(text)
    compose = [*path.parent.glob("*compose*.y*ml"), *path.parent.glob("docker/*compose*.y*ml")]
    known = {name for file in compose for name in _COMPOSE_VARIABLE.findall(file.read_text())}
    problems = [f"line {number}: expected NAME=value" for number in wrong_lines]
    return problems + check(variables, known, elsewhere=True)


def _as_kustomize(text: str) -> tuple[dict[str, str], list[int]]:
    variables, wrong_lines = {}, []
    for number, line in enumerate(map(str.lstrip, text.splitlines()), 1):
        if found := _KUSTOMIZE_LINE.fullmatch(line):
            variables[found[1]] = found[2]
        elif line and not line.startswith("#"):
            wrong_lines.append(number)
    return variables, wrong_lines


def _as_compose(text: str) -> tuple[dict[str, str], list[int]]:
    variables, wrong_lines = {}, []
    for binding in parse_stream(StringIO(text)):
        if binding.error or (binding.key and binding.value is None):
            wrong_lines.append(binding.original.line)
        elif binding.key and "${" not in (binding.value or ""):  # compose fills these in
            variables[binding.key] = binding.value or ""
    return variables, wrong_lines
